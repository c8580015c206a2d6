"""What docs/scaling.md tells people to write is understood: fields by the schema's mirror, metrics by their names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tidegate_operator.resource import Cost, InferenceServiceSpec, Scaling
from tidegate_operator.world.service_metrics import FAMILIES, P99

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/scaling.md").read_text()
BLOCKS = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)]
TELLING = ["docs/scaling.md", "docs/operations.md", "crds/examples/external-hpa.yaml"]


def blocks(key: str) -> list[Any]:
    found = [block[key] for block in BLOCKS if key in block]
    assert found, f"docs/scaling.md has no example of {key}"
    return found


def test_the_fields_shown_are_fields() -> None:
    for scaling in blocks("scaling"):
        assert Scaling.model_validate(scaling).schedules
    for cost in blocks("cost"):
        assert Cost.model_validate(cost).max_per_hour


@pytest.mark.parametrize("place", TELLING)
def test_the_metrics_named_are_exported(place: str) -> None:
    named = set(re.findall(r"tidegate_service_[a-z_0-9]+", (ROOT / place).read_text()))
    assert named
    assert named <= {family.name for family in FAMILIES}


def test_every_metric_is_told_of() -> None:
    assert not [family.name for family in FAMILIES if f"`{family.name}`" not in PAGE]
    assert len(FAMILIES) + 2 == 11, "the page says eleven series: the p99 has three"
    assert P99.label == "latency"


def test_the_autoscalers_shown_point_at_the_scale_subresource_and_never_go_to_zero() -> None:
    for block in (b for b in BLOCKS if b.get("kind") in ("HorizontalPodAutoscaler", "ScaledObject")):
        target = block["spec"]["scaleTargetRef"]
        assert (target["apiVersion"], target["kind"]) == ("tidegate.dev/v1alpha1", "InferenceService")
        assert block["spec"].get("minReplicas", block["spec"].get("minReplicaCount")) == 1


def test_the_hpa_shown_is_the_example_that_a_test_runs() -> None:
    (shown,) = [b for b in BLOCKS if b.get("kind") == "HorizontalPodAutoscaler"]
    service, example = yaml.safe_load_all((ROOT / "crds/examples/external-hpa.yaml").read_text())
    assert InferenceServiceSpec.model_validate(service["spec"]).scaling
    renamed = yaml.safe_load(yaml.safe_dump(example["spec"]).replace(": external\n", ": smollm2\n"))
    assert shown["spec"] == renamed
