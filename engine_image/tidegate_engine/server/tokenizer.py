"""The model's own tokenizer, from a GGUF file's metadata or from a Hugging Face folder's tokenizer.json."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers

from tidegate_engine.files.gguf import read_gguf
from tidegate_engine.link.messages import Vocabulary

_CONTROL, _USER_DEFINED = 3, 4
"""Values of `tokenizer.ggml.token_type`: tokens that are found whole in text, before it is split."""


class TokenizerError(Exception):
    """The model's tokenizer cannot be used; one line saying what is wrong and what works."""


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """Text to token ids and back, and the special ids and template that belong to the model."""

    encoder: tokenizers.Tokenizer
    token_bytes: list[bytes]
    """By id, the bytes a token stands for; empty for special tokens, which users do not see."""
    names: list[str]
    """By id, the token as the vocabulary writes it."""
    eos_ids: tuple[int, ...]
    bos_id: int | None
    add_bos: bool
    """Whether a plain prompt begins with `bos_id`, where the encoder does not put it there itself."""
    chat_template: str | None
    special_names: Mapping[str, str]
    """`bos_token` and such, for the chat template."""

    def encode(self, text: str, add_special_tokens: bool) -> list[int]:
        """Token ids of a text; special tokens written in it are recognised."""
        ids: list[int] = self.encoder.encode(text, add_special_tokens=add_special_tokens).ids
        if add_special_tokens and self.add_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            ids.insert(0, self.bos_id)
        return ids

    def vocabulary(self) -> Vocabulary:
        """What the runtime needs to know of tokens where an answer must match a grammar."""
        special = [index for index, known in enumerate(self.token_bytes) if not known]
        tokens = [known or name.encode() for known, name in zip(self.token_bytes, self.names, strict=True)]
        return Vocabulary(tokens, special, list(self.eos_ids))

    def text_of(self, ids: Iterable[int]) -> str:
        """The text of token ids as users see it, without special tokens."""
        return b"".join(self.token_bytes[i] for i in ids if i < len(self.token_bytes)).decode("utf-8", "replace")

    def bytes_of(self, token: int) -> bytes:
        """The bytes to show for one token on its own, special or not; empty for an id without text."""
        if token >= len(self.token_bytes):
            return b""
        return self.token_bytes[token] or self.names[token].encode()


def load_tokenizer(model: Path) -> Tokenizer:
    """The tokenizer of a GGUF file or a Hugging Face folder; raises TokenizerError or files.gguf.ModelFileError."""
    return _from_folder(model) if model.is_dir() else _from_gguf(model)


def _digits_then_gpt2() -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )


def _split(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def _pre_tokenizer(name: str) -> pre_tokenizers.PreTokenizer:
    match name:
        case "smollm":
            return _digits_then_gpt2()
        case "gpt-2":
            return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        case "llama-bpe":
            return _split(_WORDS + r"\p{N}{1,3}" + _REST)
        case "qwen2":
            return _split(_WORDS + r"\p{N}" + _REST)
        case _:
            raise TokenizerError(
                f"tokenizer.ggml.pre {name!r}: not supported; use a model with smollm, gpt-2, llama-bpe or qwen2, "
                "or its Hugging Face folder"
            )


def _from_gguf(path: Path) -> Tokenizer:
    metadata = read_gguf(path).metadata
    kind = metadata.get("tokenizer.ggml.model")
    if kind != "gpt2":
        raise TokenizerError(
            f"tokenizer.ggml.model {kind!r}: not supported; use a model with a byte-level BPE tokenizer (gpt2), "
            "or its Hugging Face folder"
        )
    try:
        names: list[str] = metadata["tokenizer.ggml.tokens"]
        merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
        eos = int(metadata["tokenizer.ggml.eos_token_id"])
    except KeyError as missing:
        raise TokenizerError(f"{path.name}: {missing.args[0]} is missing; convert the model again") from missing
    types: list[int] = metadata.get("tokenizer.ggml.token_type") or [1] * len(names)
    encoder = tokenizers.Tokenizer(models.BPE({name: index for index, name in enumerate(names)}, merges))
    encoder.pre_tokenizer = _pre_tokenizer(metadata.get("tokenizer.ggml.pre", "gpt-2"))
    encoder.decoder = decoders.ByteLevel()
    control = {index for index, kind in enumerate(types) if kind == _CONTROL}
    literal = {index for index, kind in enumerate(types) if kind == _USER_DEFINED}
    encoder.add_special_tokens([AddedToken(names[index], normalized=False) for index in sorted(control)])
    encoder.add_tokens([AddedToken(names[index], normalized=False) for index in sorted(literal)])
    ends = [eos, metadata.get("tokenizer.ggml.eot_token_id"), metadata.get("tokenizer.ggml.eom_token_id")]
    bos = metadata.get("tokenizer.ggml.bos_token_id")
    known = {"bos_token": bos, "eos_token": eos, "unk_token": metadata.get("tokenizer.ggml.unknown_token_id")}
    return Tokenizer(
        encoder=encoder,
        token_bytes=_byte_level_bytes(names, control, literal),
        names=names,
        eos_ids=tuple(dict.fromkeys(end for end in ends if end is not None)),
        bos_id=bos,
        add_bos=bool(metadata.get("tokenizer.ggml.add_bos_token", False)),
        chat_template=metadata.get("tokenizer.chat_template"),
        special_names={key: names[index] for key, index in known.items() if index is not None and index < len(names)},
    )


def _from_folder(folder: Path) -> Tokenizer:
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise TokenizerError(f"{folder.name}: tokenizer.json is missing; add it, or serve a GGUF file")
    layout = _read_json(path)
    encoder = tokenizers.Tokenizer.from_file(str(path))
    size = encoder.get_vocab_size(with_added_tokens=True)
    names = ["" for _ in range(size)]
    for name, index in encoder.get_vocab(with_added_tokens=True).items():
        if index >= len(names):
            names.extend("" for _ in range(index + 1 - len(names)))
        names[index] = name
    added = layout.get("added_tokens") or []
    control = {int(token["id"]) for token in added if token.get("special")}
    literal = {int(token["id"]) for token in added if not token.get("special")}
    tokenizer_config = _read_json(folder / "tokenizer_config.json")
    eos_ids = _end_ids(folder, tokenizer_config, encoder)
    if not eos_ids:
        raise TokenizerError(f"{folder.name}: no end token; name eos_token_id in generation_config.json")
    special = {
        key: _token_text(tokenizer_config.get(key)) for key in ("bos_token", "eos_token", "unk_token", "pad_token")
    }
    bos = special.get("bos_token")
    return Tokenizer(
        encoder=encoder,
        token_bytes=_token_bytes(layout, names, control, literal),
        names=names,
        eos_ids=eos_ids,
        bos_id=encoder.token_to_id(bos) if bos else None,
        add_bos=False,
        chat_template=_folder_template(folder, tokenizer_config),
        special_names={key: text for key, text in special.items() if text},
    )


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TokenizerError(f"{path.name}: is not JSON ({error}); copy the file again") from error
    return found if isinstance(found, dict) else {}


def _token_text(value: object) -> str | None:
    """A special token is written as a string, or as an object with its text in `content`."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _end_ids(folder: Path, tokenizer_config: dict[str, Any], encoder: tokenizers.Tokenizer) -> tuple[int, ...]:
    for name in ("generation_config.json", "config.json"):
        ids = _read_json(folder / name).get("eos_token_id")
        if isinstance(ids, int):
            return (ids,)
        if isinstance(ids, list) and ids:
            return tuple(int(index) for index in ids)
    text = _token_text(tokenizer_config.get("eos_token"))
    index = encoder.token_to_id(text) if text else None
    return () if index is None else (index,)


def _folder_template(folder: Path, tokenizer_config: dict[str, Any]) -> str | None:
    own = folder / "chat_template.jinja"
    if own.is_file():
        return own.read_text(encoding="utf-8")
    template = tokenizer_config.get("chat_template")
    if isinstance(template, list):
        template = next((entry["template"] for entry in template if entry.get("name") == "default"), None)
    return template if isinstance(template, str) else None


def _token_bytes(layout: dict[str, Any], names: list[str], control: set[int], literal: set[int]) -> list[bytes]:
    decoder = layout.get("decoder") or {}
    kinds = {decoder.get("type")} | {part.get("type") for part in decoder.get("decoders", [])}
    if "ByteLevel" in kinds:
        return _byte_level_bytes(names, control, literal)
    if "ByteFallback" in kinds:
        return [b"" if i in control else _sentencepiece_bytes(name, i in literal) for i, name in enumerate(names)]
    raise TokenizerError(
        f"tokenizer.json: decoder {sorted(map(str, kinds))} is not supported; use ByteLevel or ByteFallback"
    )


def _sentencepiece_bytes(name: str, literal: bool) -> bytes:
    if not literal and len(name) == 6 and name.startswith("<0x") and name.endswith(">"):
        return bytes([int(name[3:5], 16)])
    return (name if literal else name.replace("\u2581", " ")).encode()


def _byte_level_bytes(names: Iterable[str], control: set[int], literal: set[int]) -> list[bytes]:
    """GPT-2's vocabulary writes each byte as a printable character; undo that, once, for every token."""
    table = {ord(character): byte for byte, character in _gpt2_characters()}
    found: list[bytes] = []
    for index, name in enumerate(names):
        if index in control:
            found.append(b"")
        elif index in literal:
            found.append(name.encode())
        else:
            try:
                found.append(name.translate(table).encode("latin-1"))
            except UnicodeEncodeError:  # a token that is no bytes in disguise
                found.append(name.encode())
    return found


def _gpt2_characters() -> Iterable[tuple[int, str]]:
    """Printable Latin-1 bytes stand for themselves, the other 68 for U+0100 onwards. Source: GPT-2's encoder.py."""
    spare = 256
    for byte in range(256):
        if 33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte <= 255:
            yield byte, chr(byte)
        else:
            yield byte, chr(spare)
            spare += 1
