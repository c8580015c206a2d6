"""Whether a grammar can be used, found out beside the event loop, before the request goes to the runtime."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from llguidance import LLMatcher, LLParserLimits

from tidegate_engine.server.errors import InvalidRequest
from tidegate_engine.server.structured import Form

LARGEST = 256 * 2**10
"""Characters of a grammar."""
_KEPT = 256
_SHOWN = 300


class Grammars:
    """Checks grammars one at a time, in a thread; llguidance lets go of the interpreter meanwhile."""

    def __init__(self) -> None:
        self._limits = LLParserLimits(precompute_large_lexemes=False, verbose_errors=False)
        self._turn = asyncio.Semaphore(1)
        self._known: OrderedDict[str, str | None] = OrderedDict()

    async def check(self, form: Form) -> None:
        """Raises InvalidRequest for a grammar that is wrong, too large, or uses what llguidance does not support."""
        if len(form.grammar) > LARGEST:
            raise InvalidRequest(
                f"{form.param}: a grammar of {len(form.grammar)} characters is over {LARGEST}; make it smaller",
                param=form.param,
            )
        if form.grammar not in self._known:
            async with self._turn:
                self._known[form.grammar] = await asyncio.to_thread(self._error, form.grammar)
            if len(self._known) > _KEPT:
                self._known.popitem(last=False)
        error = self._known.get(form.grammar)
        if error is not None:
            raise InvalidRequest(f"{form.param}: cannot be held: {error}; change it", param=form.param)

    def _error(self, grammar: str) -> str | None:
        wrong, said = LLMatcher.validate_grammar_with_warnings(grammar, limits=self._limits)
        # Warnings are of what only a tokenizer can tell.
        return " ".join(said[0].replace("<non-verbose/>", "").split())[:_SHOWN] if wrong else None
