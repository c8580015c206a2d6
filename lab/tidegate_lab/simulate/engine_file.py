"""Engine models as people name them: one that was measured, a file of `tidegate calibrate`, or three numbers."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tidegate_lab.simulate.engine import ENGINES, EngineModel, StepModel


class EngineError(ValueError):
    """It names no engine; the message is one line."""


Seconds = Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=2**40)]


class _Step(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: Seconds
    b: Seconds
    c: Seconds


class _Engine(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str
    step: _Step
    slots: Count
    kv_tokens: Count
    block_size: Count
    token_budget: Count
    most_queued: Annotated[int, Field(ge=0)] | None = None


def engine_of(text: str) -> EngineModel:
    """A name of ENGINES, a file that `written` made, or `a,b,c` (seconds, else as a default); raises EngineError."""
    if text in ENGINES:
        return ENGINES[text]
    if text.count(",") == 2:
        try:
            a, b, c = (float(part) for part in text.split(","))
            step = _Step(a=a, b=b, c=c)
        except ValueError:
            raise EngineError(f"engine {text!r}: give a,b,c as three numbers of seconds, none negative") from None
        return EngineModel(name=text, step=StepModel(step.a, step.b, step.c))
    path = Path(text)
    if not path.is_file():
        raise EngineError(f"engine {text!r}: is no file, no a,b,c, and none of {', '.join(ENGINES)}")
    try:
        read = _Engine.model_validate_json(path.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise EngineError(
            f"engine {text}: {where}: {first['msg']}; `tidegate calibrate --write` makes such a file"
        ) from error
    fields = read.model_dump() | {"step": StepModel(read.step.a, read.step.b, read.step.c)}
    return EngineModel(**fields)


def written(engine: EngineModel) -> str:
    """The model as JSON, which `engine_of` reads back."""
    return json.dumps(asdict(engine), indent=2) + "\n"
