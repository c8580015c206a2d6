"""When pods are rolled, and when they are left alone."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from tidegate_operator.decide.pod_template import TEMPLATE, TEMPLATE_HASH, Template, next_template, spec_hash
from tidegate_operator.resource import read_spec

MODEL = {"source": "pvc://models/m.gguf"}
SPEC: dict[str, Any] = {
    "model": MODEL,
    "resources": {"limits": {"cpu": "1"}},
    "pod": {"env": [{"name": "A", "value": "1"}]},
}


def first(spec: dict[str, Any] = SPEC) -> Template:
    return next_template("web", read_spec(spec), "engine:1", None)


def laid_over(spec: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    merged = copy.deepcopy(spec)
    for key, value in more.items():
        merged[key] = laid_over(merged.get(key, {}), value) if isinstance(value, dict) else value
    return merged


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"engine": {"image": "engine:2"}}, id="another image"),
        pytest.param({"engine": {"maxRunningRequests": 3}}, id="another number of slots"),
        pytest.param({"engine": {"extraArgs": ["--max-body-size=1Mi"]}}, id="a flag more"),
        pytest.param({"model": {"source": "pvc://models/other.gguf"}}, id="another model"),
        pytest.param({"model": {"servedName": "other"}}, id="another name for clients"),
        pytest.param({"resources": {"limits": {"cpu": "2"}}}, id="more of a processor"),
        pytest.param({"drain": {"timeout": "1m"}}, id="a shorter drain, which the engine is told"),
        pytest.param({"rollout": {"progressDeadline": "20m"}}, id="longer to load"),
        pytest.param({"pod": {"env": [{"name": "A", "value": "2"}]}}, id="another variable"),
        pytest.param({"pod": {"annotations": {"a": "b"}}}, id="an annotation, which is how to roll by hand"),
    ],
)
def test_a_change_of_what_a_pod_is_makes_a_new_template(change: dict[str, Any]) -> None:
    kept = first()
    new = next_template("web", read_spec(laid_over(SPEC, change)), "engine:1", kept.annotations())
    assert new.spec_hash != kept.spec_hash
    assert new.body != kept.body


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"replicas": 3}, id="another number of replicas"),
        pytest.param({"scaling": {"maxReplicas": 3, "targets": {"ttft": {"p99": "1s"}}}}, id="another target"),
        pytest.param({"rollout": {"maxSurge": 2}}, id="another surge"),
        pytest.param({"cost": {"perReplicaHour": 2}}, id="another price"),
        pytest.param({"paused": True}, id="a pause"),
        pytest.param({"engine": {"maxRunningRequests": 32}, "drain": {"timeout": "5m"}}, id="a default that is said"),
        pytest.param({"drain": {"timeout": "300s"}}, id="a default in another unit"),
        pytest.param({"pod": {"labels": {}, "volumes": []}}, id="something empty"),
    ],
)
def test_any_other_change_restarts_no_pod(change: dict[str, Any]) -> None:
    kept = first()
    assert next_template("web", read_spec(laid_over(SPEC, change)), "engine:1", kept.annotations()) == kept


def test_a_new_operator_with_a_new_default_image_restarts_no_pod() -> None:
    # What an older operator rendered, of which this one would render nothing alike.
    older = Template(
        first().spec_hash, {"metadata": {}, "spec": {"containers": [{"name": "engine", "image": "old:1"}]}}
    )
    assert next_template("web", read_spec(SPEC), "engine:2", older.annotations()) == older


def test_the_next_change_of_the_spec_takes_the_new_default_image() -> None:
    changed = read_spec(laid_over(SPEC, {"engine": {"maxRunningRequests": 3}}))
    new = next_template("web", changed, "engine:2", first().annotations())
    assert new.body["spec"]["containers"][0]["image"] == "engine:2"


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param("", id="nothing"),
        pytest.param("{", id="half a document"),
        pytest.param("[]", id="a list"),
        pytest.param("{}", id="no pod"),
    ],
)
def test_a_kept_template_that_is_none_is_made_anew(kept: str) -> None:
    fresh = first()
    assert next_template("web", read_spec(SPEC), "engine:1", {TEMPLATE_HASH: fresh.spec_hash, TEMPLATE: kept}) == fresh


def test_what_is_kept_is_what_is_applied() -> None:
    template = first()
    assert json.loads(template.annotations()[TEMPLATE]) == template.body
    assert template.body["metadata"]["annotations"][TEMPLATE_HASH] == template.spec_hash


def test_the_hash_of_a_spec_is_the_same_in_every_version() -> None:
    """Were it to change, every model in every cluster would restart with the operator's upgrade."""
    assert spec_hash(read_spec({"model": MODEL})) == "2c3f2f7941f36c43"
    assert spec_hash(read_spec(SPEC)) == "4e12cde3fc3d15f2"
