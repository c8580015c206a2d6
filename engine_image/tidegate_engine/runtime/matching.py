"""llguidance's matchers over this model's vocabulary. Imported only once a grammar is asked for."""

from __future__ import annotations

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper

from tidegate_engine.link.messages import Vocabulary
from tidegate_engine.runtime.constraints import Matcher

_SILENT = 0
_MAX_LEXER_STATES = 20_000
"""Each takes some 2 kB, so 40 MB a request at most; usual schemas need hundreds."""
_STEP_LEXER_FUEL = 100_000
_STEP_MAX_ITEMS = 20_000
"""Together some 10 ms for a mask at worst: about a step of the smallest model. Usual masks take 0.07 ms."""


class GrammarError(ValueError):
    """The grammar does not compile with this vocabulary; one line."""


class _Tokens:
    """What llguidance asks of a tokenizer. It asks for the tokens of text that the grammar forces, and allows only
    those: the longest first here, which is what the model's own tokenizer says in nearly all cases, and the same text
    in every case.
    """

    def __init__(self, vocabulary: Vocabulary, vocab_size: int) -> None:
        padding = [b""] * max(0, vocab_size - len(vocabulary.tokens))
        self.tokens = [*vocabulary.tokens[:vocab_size], *padding]
        self.special_token_ids = [id for id in vocabulary.special if id < vocab_size]
        self.eos_token_id = vocabulary.ends[0]
        self.bos_token_id = None
        self.trie: LLTokenizer | None = None

    def __call__(self, text: bytes) -> list[int]:
        # The wrapper tries this once before there is a trie.
        return [] if self.trie is None else self.trie.greedy_tokenize(text.decode())


class MatcherFactory:
    """Holds the vocabulary as a trie: 120 ms and 10 MB for 49,152 tokens, once."""

    def __init__(self, vocabulary: Vocabulary, vocab_size: int) -> None:
        tokens = _Tokens(vocabulary, vocab_size)
        self._tokenizer = LLTokenizer(TokenizerWrapper(tokens), eos_token=list(vocabulary.ends))
        tokens.trie = self._tokenizer
        self._limits = LLParserLimits(
            max_lexer_states=_MAX_LEXER_STATES,
            step_lexer_fuel=_STEP_LEXER_FUEL,
            step_max_items=_STEP_MAX_ITEMS,
            precompute_large_lexemes=False,
            verbose_errors=False,
        )

    def matcher(self, grammar: str) -> Matcher:
        """A matcher at the grammar's beginning. Raises GrammarError."""
        matcher = LLMatcher(self._tokenizer, grammar, log_level=_SILENT, limits=self._limits)
        if matcher.is_error():
            raise GrammarError((matcher.get_error().splitlines() or ["no reason given"])[0])
        return matcher
