"""What is run: the model, and the engine's own settings."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple, Self

from pydantic import Field, field_validator, model_validator

from tidegate_operator.resource.base import Asked
from tidegate_operator.resource.quantity import BytesOrAuto

_SOURCE = re.compile(r"pvc://(?P<claim>[a-z0-9][-a-z0-9.]*)/(?P<path>[^/].*)|file://(?P<file>/[^/].*)")


class Source(NamedTuple):
    """Where the model's file or folder is."""

    claim: str | None
    """The claim it is on; None: on the pod's own file system."""
    path: str
    """Relative to the claim, or absolute."""


def parse_source(text: str) -> Source:
    """Read `pvc://CLAIM/PATH` or `file:///PATH`. Raises ValueError, also for what is not supported yet."""
    match = _SOURCE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} says not where the model is; write pvc://CLAIM/PATH or file:///PATH")
    return Source(match["claim"], match["path"] or match["file"])


class SecretKey(Asked):
    """One key of a Secret; the operator passes the name on and cannot read it."""

    name: str
    key: str = "token"


class Model(Asked):
    """Which model, and under what name clients ask for it."""

    source: str
    """`pvc://CLAIM/PATH` or `file:///PATH`; see `parse_source`."""
    served_name: str | None = None
    """None: the object's name."""
    quantization: Literal["none", "int8", "int4", "fp8"] = "none"
    max_model_len: int | None = Field(default=None, ge=1)
    """Tokens; None: the model's own."""
    revision: str | None = None
    token_secret_ref: SecretKey | None = None

    @field_validator("source")
    @classmethod
    def _names_a_place(cls, source: str) -> str:
        parse_source(source)
        return source


class Speculative(Asked):
    """Tokens guessed ahead and checked by the model."""

    method: Literal["ngram", "draft"]
    tokens: int = Field(default=4, ge=1)
    draft_source: str | None = None
    """Where the smaller model is, for method draft; see `parse_source`."""

    @model_validator(mode="after")
    def _draft_has_a_source(self) -> Self:
        if (self.method == "draft") != (self.draft_source is not None):
            raise ValueError(f"draftSource is for method draft, and needed by it; the method is {self.method}")
        if self.draft_source is not None:
            parse_source(self.draft_source)
        return self


class Engine(Asked):
    """How the engine runs it; each field is a flag of its (docs/seams.md)."""

    tensor_parallel: int = Field(default=1, ge=1)
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = "auto"
    max_running_requests: int = Field(default=32, ge=1)
    max_queued_requests: int = Field(default=256, ge=0)
    kv_cache_memory: BytesOrAuto = None
    kv_cache_dtype: Literal["auto", "float32", "float16", "bfloat16", "int8", "fp8"] = "auto"
    prefix_caching: bool = True
    chunked_prefill_tokens: int = Field(default=512, ge=1)
    speculative: Speculative | None = None
    image: str | None = None
    """None: the operator's default when the service was first rendered."""
    extra_args: tuple[str, ...] = ()
