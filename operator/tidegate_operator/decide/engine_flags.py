"""The engine's command line for a spec (docs/seams.md); `tests/contract` parses it with the engine's own parser."""

from __future__ import annotations

from tidegate_operator.resource import InferenceServiceSpec, parse_source

MODELS = "/models"
"""Where the model's claim is mounted."""


def engine_flags(name: str, spec: InferenceServiceSpec) -> list[str]:
    """Every field is said, not only what differs from a default: an engine with other defaults runs the same."""
    model, engine = spec.model, spec.engine
    flags = ["--model", model_path(spec), "--served-name", model.served_name or name]
    if model.max_model_len is not None:
        flags += ["--max-model-len", str(model.max_model_len)]
    flags += ["--dtype", engine.dtype, "--tensor-parallel", str(engine.tensor_parallel)]
    flags += ["--max-running-requests", str(engine.max_running_requests)]
    flags += ["--max-queued-requests", str(engine.max_queued_requests)]
    if engine.kv_cache_memory is not None:
        flags += ["--kv-cache-memory", str(engine.kv_cache_memory)]
    flags += ["--prefix-caching" if engine.prefix_caching else "--no-prefix-caching"]
    flags += ["--chunked-prefill-tokens", str(engine.chunked_prefill_tokens)]
    flags += ["--drain-timeout", str(int(spec.drain.timeout))]
    return [*flags, *engine.extra_args]


def model_path(spec: InferenceServiceSpec) -> str:
    """The model's path inside the pod."""
    source = parse_source(spec.model.source)
    return source.path if source.claim is None else f"{MODELS}/{source.path}"
