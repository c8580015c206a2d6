"""The flags the operator renders are read by the engine's own parser as what the spec says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from tidegate_engine.settings import Settings, parse_settings
from tidegate_operator.decide.engine_flags import engine_flags
from tidegate_operator.resource import read_spec

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = [
    document
    for path in sorted((ROOT / "crds/examples").glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
    if document["kind"] == "InferenceService"
]


NGRAM_2 = {"method": "ngram", "tokens": 2}


def drafted(source: str) -> dict[str, Any]:
    return {"engine": {"speculative": {"method": "draft", "draftSource": source}}}


def parsed(name: str, spec: dict[str, Any]) -> Settings:
    return parse_settings(engine_flags(name, read_spec(spec)))


def test_an_empty_spec_asks_for_the_engines_own_defaults() -> None:
    model = {"source": "pvc://models/m.gguf"}
    assert parsed("web", {"model": model}) == parse_settings(["--model", "/models/m.gguf", "--served-name", "web"])


@pytest.mark.parametrize(
    ("spec", "field", "value"),
    [
        pytest.param({"model": {"source": "file:///opt/m"}}, "model", Path("/opt/m"), id="a file of the image"),
        pytest.param({"model": {"source": "pvc://m/a b/c"}}, "model", Path("/models/a b/c"), id="a path with a space"),
        pytest.param({"model": {"servedName": "org/m:1"}}, "served_name", "org/m:1", id="a served name"),
        pytest.param({"model": {"maxModelLen": 4096}}, "max_model_len", 4096, id="a longest prompt"),
        pytest.param({"engine": {"dtype": "float16"}}, "dtype", "float16", id="a dtype"),
        pytest.param({"model": {"quantization": "int4"}}, "quantization", "int4", id="weights in four bits"),
        pytest.param({"engine": {"kvCacheDtype": "fp8"}}, "kv_cache_dtype", "fp8", id="a cache in float8"),
        pytest.param({"engine": {"tensorParallel": 3}}, "tensor_parallel", 3, id="ranks"),
        pytest.param({"engine": {"maxRunningRequests": 7}}, "max_running_requests", 7, id="slots"),
        pytest.param({"engine": {"maxQueuedRequests": 0}}, "max_queued_requests", 0, id="no queue"),
        pytest.param({"engine": {"kvCacheMemory": "512Mi"}}, "kv_cache_memory", 2**29, id="a cache in Mi"),
        pytest.param({"engine": {"kvCacheMemory": "auto"}}, "kv_cache_memory", None, id="a cache of what there is"),
        pytest.param({"engine": {"prefixCaching": False}}, "prefix_caching", False, id="no prefix caching"),
        pytest.param({"engine": {"chunkedPrefillTokens": 64}}, "chunked_prefill_tokens", 64, id="a token budget"),
        pytest.param({"engine": {"extraArgs": ["--max-body-size", "1Mi"]}}, "max_body_size", 2**20, id="a flag more"),
        pytest.param({"engine": {"speculative": {"method": "ngram"}}}, "speculative", "ngram", id="guesses looked up"),
        pytest.param({"engine": {"speculative": NGRAM_2}}, "speculative_tokens", 2, id="fewer guesses"),
        pytest.param(
            drafted("pvc://models/d"),
            "draft_model",
            Path("/models/d"),
            id="a draft model beside the model",
        ),
        pytest.param(
            drafted("pvc://other/d"),
            "draft_model",
            Path("/draft-models/d"),
            id="a draft model on a claim of its own",
        ),
        pytest.param(
            drafted("file:///opt/d"),
            "draft_model",
            Path("/opt/d"),
            id="a draft model of the image",
        ),
        pytest.param({"drain": {"timeout": "2m"}}, "drain_timeout", 120.0, id="a drain in minutes"),
        pytest.param({"drain": {"timeout": "99999h"}}, "drain_timeout", 99999 * 3600.0, id="the longest drain"),
    ],
)
def test_a_field_of_the_spec_reaches_the_engine(spec: dict[str, Any], field: str, value: Any) -> None:
    whole = spec | {"model": {"source": "pvc://models/m.gguf"} | spec.get("model", {})}
    assert getattr(parsed("web", whole), field) == value


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda document: document["metadata"]["name"])
def test_an_example_gives_flags_that_are_understood(example: dict[str, Any]) -> None:
    assert parsed(example["metadata"]["name"], example["spec"]).served_name
