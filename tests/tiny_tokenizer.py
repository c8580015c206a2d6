"""A model folder with a tokenizer of one token a byte and no weights: for the server before a scripted runtime."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

END = 256
TEMPLATE = (
    "{% for message in messages %}{% if message.role == 'system' and not loop.first %}"
    "{{ raise_exception('the system message comes first') }}{% endif %}{{ message.content }}{% endfor %}"
)


def tiny_model(folder: Path) -> Path:
    """Ids 0 to 255 are the bytes, 256 ends an answer. The chat template puts the contents one after another."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    by_byte = sorted(alphabet, key=lambda character: _byte(character))
    tokenizer = Tokenizer(models.BPE({character: index for index, character in enumerate(by_byte)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<end>", normalized=False)])
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "<end>", "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def _byte(character: str) -> int:
    """Printable Latin-1 stands for itself, the other 68 bytes for U+0100 onwards, in order."""
    itself = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in itself]
    return ord(character) if ord(character) < 256 else others[ord(character) - 256]
