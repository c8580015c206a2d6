"""What the endpoints share: the parts of a served model as they become available, and the pod's state."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tidegate_engine.server.chat_template import ChatTemplate
from tidegate_engine.server.engine import Engine
from tidegate_engine.server.errors import Unavailable, UnknownModel
from tidegate_engine.server.grammars import Grammars
from tidegate_engine.server.load import Boot, State
from tidegate_engine.server.sampling import Limits
from tidegate_engine.server.telemetry import Telemetry
from tidegate_engine.server.tokenizer import Tokenizer
from tidegate_engine.server.tool_format import ToolFormat
from tidegate_engine.settings import Settings


@dataclass(frozen=True, slots=True)
class ServedModel:
    """Everything needed to answer; exists only once a first token is possible."""

    name: str
    created: int
    tokenizer: Tokenizer
    template: ChatTemplate | None
    engine: Engine
    limits: Limits
    tool_format: ToolFormat
    visible_bytes: Sequence[bytes]
    """By token id, as the tokenizer has it, and the text of special tokens that begin a call."""
    adapters: tuple[str, ...] = ()
    """Names of the low-rank adapters that are served beside the model itself."""
    adapter: int = 0
    """Which of them this is, from 1 on; 0: the model itself."""

    @property
    def names(self) -> tuple[str, ...]:
        """What a request may ask for."""
        return (self.name, *self.adapters)

    def named(self, name: str) -> ServedModel:
        """The model, or the model with the adapter of that name. Raises UnknownModel where neither is called so."""
        if name not in self.names:
            given = " or ".join(map(repr, self.names))
            raise UnknownModel(f"model: {name!r} is not served here; give {given}", param="model")
        return replace(self, name=name, adapters=(), adapter=self.names.index(name))


@dataclass(slots=True)
class Service:
    """Grows from nothing to a served model, and then towards its end."""

    settings: Settings
    telemetry: Telemetry = field(default_factory=Telemetry)
    boot: Boot = field(default_factory=lambda: Boot(secrets.token_hex(8), time.monotonic()))
    engine: Engine | None = None
    model: ServedModel | None = None
    grammars: Grammars = field(default_factory=Grammars)
    drained: bool = False
    """By `POST /drain`; can be undone."""
    ending: bool = False
    """By SIGTERM; cannot."""

    @property
    def draining(self) -> bool:
        """Whether clients should take their connections elsewhere."""
        return self.drained or self.ending

    @property
    def state(self) -> State:
        """As `/load` says it."""
        if self.draining:
            return "draining"
        return "starting" if self.model is None else "ready"

    def require_model(self) -> ServedModel:
        """Raises Unavailable while the model is loading."""
        if self.model is None:
            raise Unavailable("the model is loading; try again shortly", retry_after=2)
        return self.model
