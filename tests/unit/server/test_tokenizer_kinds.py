"""Which tokenizers are understood, what others are told, and what a chat template may do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import pytest
from tidegate_engine.server.chat_template import ChatTemplate, ChatTemplateError
from tidegate_engine.server.tokenizer import TokenizerError, load_tokenizer
from tiny_tokenizer import END, tiny_model
from tokenizers import Tokenizer as Encoder
from tokenizers import decoders, models, normalizers

HELLO = [{"role": "user", "content": "hello"}]


def gguf_file(path: Path, kind: str = "gpt2", pre: str = "gpt-2", leave_out: str = "") -> Path:
    """A file with a vocabulary of four tokens and nothing else."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model(kind)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(["a", "b", "ab", "<end>"])
    writer.add_token_types([1, 1, 1, 3])
    if leave_out != "merges":
        writer.add_token_merges(["a b"])
    if leave_out != "eos_token_id":
        writer.add_eos_token_id(3)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("pre", ["smollm", "gpt-2", "llama-bpe", "qwen2"])
def test_a_gguf_file_with_a_known_way_to_split_text(tmp_path: Path, pre: str) -> None:
    tokenizer = load_tokenizer(gguf_file(tmp_path / "m.gguf", pre=pre))
    assert tokenizer.encode("abb<end>", add_special_tokens=True) == [2, 1, 3]
    assert tokenizer.eos_ids == (3,)
    assert tokenizer.text_of([2, 1, 3]) == "abb"
    assert tokenizer.chat_template is None


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        pytest.param({"kind": "llama"}, "tokenizer.ggml.model 'llama'", id="a SentencePiece vocabulary"),
        pytest.param({"pre": "tekken"}, "tokenizer.ggml.pre 'tekken'", id="an unknown way to split text"),
        pytest.param({"leave_out": "merges"}, "tokenizer.ggml.merges is missing", id="no merges"),
        pytest.param({"leave_out": "eos_token_id"}, "tokenizer.ggml.eos_token_id is missing", id="no end token"),
    ],
)
def test_a_gguf_file_that_is_not_understood_is_one_line(tmp_path: Path, fields: dict[str, Any], said: str) -> None:
    with pytest.raises(TokenizerError) as caught:
        load_tokenizer(gguf_file(tmp_path / "m.gguf", **fields))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_with_bytes_for_what_its_vocabulary_lacks(tmp_path: Path) -> None:
    vocabulary = {"<unk>": 0, "\u2581a": 1, "<0xF0>": 2, "<0x9F>": 3, "<0x98>": 4, "<0x80>": 5}
    encoder = Encoder(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    encoder.normalizer = normalizers.Replace(" ", "\u2581")
    encoder.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    encoder.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": [0, 5]}))
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.text_of([1, 2, 3, 4, 5]) == " a😀"
    assert tokenizer.eos_ids == (0, 5)


def test_a_folders_template_may_be_a_file_of_its_own_or_a_named_one(tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "tiny")
    named = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}]
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": {"content": "<end>"}, "chat_template": named})
    )
    tokenizer = load_tokenizer(folder)
    assert (tokenizer.chat_template, tokenizer.eos_ids) == ("d", (END,))
    (folder / "chat_template.jinja").write_text("own")
    assert load_tokenizer(folder).chat_template == "own"


@pytest.mark.parametrize(
    ("gone", "said"), [("tokenizer.json", "tokenizer.json"), ("tokenizer_config.json", "end token")]
)
def test_a_folder_that_lacks_a_file_is_told_which(tmp_path: Path, gone: str, said: str) -> None:
    folder = tiny_model(tmp_path / "tiny")
    (folder / gone).unlink()
    with pytest.raises(TokenizerError, match=said):
        load_tokenizer(folder)


@pytest.mark.parametrize(
    ("source", "text"),
    [
        pytest.param("{{ bos_token }}{{ messages[0].content }}", "<s>hello", id="special tokens by name"),
        pytest.param(
            "{{ messages[0] | tojson }}", '{"role": "user", "content": "hello"}', id="JSON without HTML escapes"
        ),
        pytest.param("{{ '<é>' | tojson }}", '"<é>"', id="JSON in the model's own letters"),
        pytest.param("{% if add_generation_prompt %}go{% endif %}\n", "go", id="the assistant's turn begins"),
        pytest.param("{% for m in messages %}x{% break %}{% endfor %}", "x", id="loops can be left"),
        pytest.param("a\n  {% if true %}\nb\n  {% endif %}\n", "a\nb\n", id="lines of tags alone leave nothing"),
        pytest.param("{{ strftime_now('%%') }}", "%", id="the date"),
    ],
)
def test_templates_find_what_hugging_face_gives_them(source: str, text: str) -> None:
    assert ChatTemplate(source, {"bos_token": "<s>"}).render(HELLO) == text


@pytest.mark.parametrize(
    ("source", "said"),
    [
        pytest.param("{{ raise_exception('roles must alternate') }}", "roles must alternate", id="in its own words"),
        pytest.param("{{ messages[0].content + 1 }}", "str", id="a fault of the template"),
        pytest.param(
            "{{ ''.__class__.__mro__ }}{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe", id="a way out"
        ),
        pytest.param("{{ messages.append(1) }}", "unsafe", id="changing what it was given"),
    ],
)
def test_a_template_that_refuses_or_misbehaves_says_so(source: str, said: str) -> None:
    with pytest.raises(ChatTemplateError, match=said):
        ChatTemplate(source, {}).render(HELLO)


def test_a_template_that_is_none_is_found_at_the_start() -> None:
    with pytest.raises(ChatTemplateError, match="chat template"):
        ChatTemplate("{% for %}", {})
