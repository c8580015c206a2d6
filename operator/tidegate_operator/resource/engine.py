"""What is run: the model, and the engine's own settings."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from tidegate_operator.resource.base import Asked
from tidegate_operator.resource.quantity import BytesOrAuto


class SecretKey(Asked):
    """One key of a Secret; the operator passes the name on and cannot read it."""

    name: str
    key: str = "token"


class Model(Asked):
    """Which model, and under what name clients ask for it."""

    source: str
    """`pvc://claim/path`, `file:///path` or `hf://org/name`."""
    served_name: str | None = None
    """None: the object's name."""
    quantization: Literal["none", "int8", "int4", "fp8"] = "none"
    max_model_len: int | None = Field(default=None, ge=1)
    """Tokens; None: the model's own."""
    revision: str | None = None
    token_secret_ref: SecretKey | None = None


class Speculative(Asked):
    """Tokens guessed ahead and checked by the model."""

    method: Literal["ngram", "draft"]
    tokens: int = Field(default=4, ge=1)
    draft_source: str | None = None


class Engine(Asked):
    """How the engine runs it; each field is a flag of its (docs/seams.md)."""

    tensor_parallel: int = Field(default=1, ge=1)
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = "auto"
    max_running_requests: int = Field(default=32, ge=1)
    max_queued_requests: int = Field(default=256, ge=0)
    kv_cache_memory: BytesOrAuto = None
    prefix_caching: bool = True
    chunked_prefill_tokens: int = Field(default=512, ge=1)
    speculative: Speculative | None = None
    image: str | None = None
    """None: the operator's default when the service was first rendered."""
    extra_args: tuple[str, ...] = ()
