"""What an engine pod says of itself on `GET /load` (docs/seams.md), read with strict bounds."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, GetCoreSchemaHandler, GetPydanticSchema, ValidationError
from pydantic_core import core_schema
from typing_extensions import TypedDict

from tidegate_operator.observed_sketch import GAMMA, HIGHEST_BIN, LOWEST_BIN, Sketch

MAX_LOAD_BYTES = 24 * 1024

Count = Annotated[int, Field(ge=0, le=2**53)]
Seconds = Annotated[float, Field(ge=0, le=1e10, allow_inf_nan=False)]


class UnreadableLoad(ValueError):
    """The pod answered, but not with a load report: treat it as not scraped. The message is one line."""


_STRICT = ConfigDict(frozen=True, strict=True, extra="ignore", hide_input_in_errors=True)


class _Wire(BaseModel):
    """Strict types; fields a newer engine adds are left aside."""

    model_config = _STRICT


class _SketchOnTheWire(TypedDict):
    __pydantic_config__ = _STRICT  # type: ignore[misc]  # pydantic's way to give a TypedDict its rules
    gamma: Annotated[float, Field(ge=GAMMA - 1e-6, le=GAMMA + 1e-6)]
    zero: Count
    bins: dict[Annotated[int, Field(strict=False, ge=LOWEST_BIN, le=HIGHEST_BIN)], Count]


def _sketch(wire: _SketchOnTheWire) -> Sketch:
    bins = wire["bins"]
    return Sketch.counted(wire["zero"], {k: n for k, n in bins.items() if n} if 0 in bins.values() else bins)


def _from_wire(_: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
    """Read bins from JSON without a Python object for each key and count in between: half a report's time."""
    read = core_schema.no_info_after_validator_function(_sketch, handler.generate_schema(_SketchOnTheWire))
    made = core_schema.union_schema([core_schema.is_instance_schema(Sketch), read])
    return core_schema.json_or_python_schema(json_schema=read, python_schema=made)


SketchField = Annotated[Sketch, GetPydanticSchema(_from_wire)]


class KvBlocks(_Wire):
    """Blocks of the paged KV cache."""

    total: Count = 0
    used: Count = 0
    size: Annotated[int, Field(ge=1, le=65536)] = 16
    """Tokens a block holds."""


class Counters(_Wire):
    """Totals since `boot`; the first three count HTTP requests, the tokens count tokens."""

    received: Count = 0
    finished: Count = 0
    rejected: Count = 0
    prompt_tokens: Count = 0
    cached_tokens: Count = 0
    generated_tokens: Count = 0
    preemptions: Count = 0
    steps: Count = 0


class Sketches(_Wire):
    """Seconds of finished requests since `boot`."""

    ttft: SketchField = Sketch()
    tpot: SketchField = Sketch()
    e2e: SketchField = Sketch()


class StepModel(_Wire):
    """What a step takes on this pod, in seconds: a + b * tokens computed + c * tokens held in the cache."""

    a: Seconds
    b: Seconds
    c: Seconds
    error: Annotated[float, Field(ge=0, le=1e6, allow_inf_nan=False)]
    """By how much steps are off, as a share of their duration."""


class LoadReport(_Wire):
    """One pod's load. Counters and sketches begin again at zero where `boot` changes; all times are seconds."""

    version: Literal[1]
    boot: Annotated[str, Field(min_length=1, max_length=128)]
    state: Literal["starting", "ready", "draining"]
    uptime_s: Seconds
    slots: Annotated[int, Field(ge=0, le=1_000_000)]
    running: Annotated[int, Field(ge=0, le=1_000_000)]
    waiting: Annotated[int, Field(ge=0, le=1_000_000)]
    oldest_waiting_s: Seconds | None = None
    oldest_unfinished_s: Seconds | None = None
    kv_blocks: KvBlocks = KvBlocks()
    counters: Counters
    last_step_age_s: Seconds | None = None
    sketches: Sketches = Sketches()
    waiting_ages: SketchField = Sketch()
    running_tpot: SketchField = Sketch()
    step_model: StepModel | None = None
    """None: it has not stepped enough to know, or is of an age that does not say."""


def read_load(body: bytes) -> LoadReport:
    """Parse the body of `GET /load`. Anything out of bounds raises UnreadableLoad: a bad number is never a number."""
    if len(body) > MAX_LOAD_BYTES:
        raise UnreadableLoad(f"/load answered {len(body)} bytes; at most {MAX_LOAD_BYTES} are read")
    try:
        return LoadReport.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the body"
        raise UnreadableLoad(f"/load is not a load report: {where}: {first['msg']}") from error
