"""The engine's command line for a spec (docs/seams.md); `tests/contract` parses it with the engine's own parser."""

from __future__ import annotations

from tidegate_operator.resource import InferenceServiceSpec, parse_source

MODELS = "/models"
"""Where the model's claim is mounted."""
DRAFT_MODELS = "/draft-models"
"""Where the draft model's claim is, if it is another one."""


def engine_flags(name: str, spec: InferenceServiceSpec) -> list[str]:
    """Every field is said, not only what differs from a default: an engine with other defaults runs the same."""
    model, engine = spec.model, spec.engine
    flags = ["--model", model_path(spec), "--served-name", model.served_name or name]
    if model.max_model_len is not None:
        flags += ["--max-model-len", str(model.max_model_len)]
    flags += ["--dtype", engine.dtype, "--quantization", model.quantization]
    flags += ["--kv-cache-dtype", engine.kv_cache_dtype, "--tensor-parallel", str(engine.tensor_parallel)]
    flags += ["--max-running-requests", str(engine.max_running_requests)]
    flags += ["--max-queued-requests", str(engine.max_queued_requests)]
    if engine.kv_cache_memory is not None:
        flags += ["--kv-cache-memory", str(engine.kv_cache_memory)]
    flags += ["--prefix-caching" if engine.prefix_caching else "--no-prefix-caching"]
    flags += ["--chunked-prefill-tokens", str(engine.chunked_prefill_tokens)]
    if engine.speculative is not None:
        flags += ["--speculative", engine.speculative.method, "--speculative-tokens", str(engine.speculative.tokens)]
    draft = draft_path(spec)
    if draft is not None:
        flags += ["--draft-model", draft]
    flags += ["--drain-timeout", str(int(spec.drain.timeout))]
    return [*flags, *engine.extra_args]


def draft_path(spec: InferenceServiceSpec) -> str | None:
    """The draft model's path inside the pod; None where there is none."""
    speculative = spec.engine.speculative
    if speculative is None or speculative.draft_source is None:
        return None
    source = parse_source(speculative.draft_source)
    if source.claim is None:
        return source.path
    return f"{MODELS if draft_claim(spec) is None else DRAFT_MODELS}/{source.path}"


def draft_claim(spec: InferenceServiceSpec) -> str | None:
    """The claim of a draft model that is on another than the model; None where there is no such claim."""
    speculative = spec.engine.speculative
    if speculative is None or speculative.draft_source is None:
        return None
    claim = parse_source(speculative.draft_source).claim
    return None if claim == parse_source(spec.model.source).claim else claim


def model_path(spec: InferenceServiceSpec) -> str:
    """The model's path inside the pod."""
    source = parse_source(spec.model.source)
    return source.path if source.claim is None else f"{MODELS}/{source.path}"
