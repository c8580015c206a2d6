"""Texts that tokenizers disagree on: digits, emoji, code, CJK, white space, contractions, special tokens. Seeded."""

from __future__ import annotations

import random
from collections.abc import Iterator

_SENTENCE = (
    "the of and Paris don't I'LL we've it's e.g. naïve Über straße résumé Привет мир κόσμος שלום مرحبا हिन्दी "
    "snake_case camelCase HTTPServer x86_64 3.14 1e-9 0xFF 12:30 2026-11-30 $1,299.99 50% #tag @name ... -- ?! (a+b)"
)
_WORDS = _SENTENCE.split()
_CODE = (
    "def f(x):\n    return x + 1\n", "for (int i = 0; i < 10; i++) {\n\t", "SELECT * FROM t WHERE id = 42;",
    "<div class='a'>",
    "std::vector<int> v{1, 2};", "if x == None:\r\n        pass", "λ x → x²",
    "// TODO(someone): fix\n\n\n", "a[i]->b *= &c;",
)  # fmt: skip
_EMOJI = ("😀", "👩‍👩‍👧‍👦", "🇫🇷", "👍🏽", "❤️", "🤖🚀", "☃", "🏴󠁧󠁢󠁥󠁮󠁧󠁿")
_CJK = ("日本語のテキスト", "漢字123", "你好，世界！", "한국어 문장", "ｆｕｌｌｗｉｄｔｈ１２", "、。「」", "㍿㌀")
_SPACE = (" ", "  ", "   ", "\n", "\n\n", "\t", " \n ", "\r\n", "\u00a0", "\u3000", "\u200b")
_SPECIAL = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_start", "<repo_name>")
_ODD = ("\u0301", "é", "\ufeff", "\u0000", "\u2028", "\ud7ff", "\U0010ffff", "½", "Ⅷ", "٣٤", "१२३")


def random_texts(count: int, seed: int = 3) -> Iterator[str]:
    """The same texts for the same seed, each of 1 to 12 pieces."""
    source = random.Random(seed)
    for _ in range(count):
        yield "".join(_piece(source) for _ in range(source.randint(1, 12)))


def _piece(source: random.Random) -> str:
    kind = source.random()
    if kind < 0.25:
        return source.choice(_WORDS) + source.choice((" ", "", " "))
    if kind < 0.45:
        return str(source.randrange(10 ** source.randint(1, 12)))
    if kind < 0.55:
        return source.choice(_CODE)
    if kind < 0.65:
        return source.choice(_EMOJI)
    if kind < 0.75:
        return source.choice(_CJK)
    if kind < 0.87:
        return source.choice(_SPACE)
    if kind < 0.90:
        return source.choice(_SPECIAL)
    if kind < 0.94:
        return source.choice(_ODD)
    return "".join(chr(source.randint(32, 0x2FF)) for _ in range(source.randint(1, 6)))
