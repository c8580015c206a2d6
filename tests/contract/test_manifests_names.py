"""What `decide` writes on objects is what `world` reads there; the two rooms never import each other."""

from __future__ import annotations

from tidegate_operator.decide import engine_container, manifests, pod_template
from tidegate_operator.observed import ServiceKey
from tidegate_operator.resource import read_spec
from tidegate_operator.world import pods
from tidegate_operator.world.calls import CHILDREN
from tidegate_operator.world.objects import read_deployment

SPEC = read_spec({"model": {"source": "pvc://models/m.gguf"}})


def test_labels_annotations_and_the_container_have_one_name() -> None:
    assert pod_template.SERVICE_LABEL == pods.SERVICE_LABEL
    assert pod_template.TEMPLATE_HASH == pods.TEMPLATE_HASH
    assert engine_container.CONTAINER == pods.CONTAINER


def test_every_child_that_is_rendered_can_be_applied_and_no_other() -> None:
    template = pod_template.next_template("web", SPEC, "engine:1", None)
    owner = manifests.Owner(ServiceKey("a", "web"), "uid")
    made = manifests.children(owner, SPEC, template, replicas=1, operator_namespace="tidegate-system")
    assert {child["kind"] for child in made} == set(CHILDREN)


def test_a_deployment_is_read_back_with_the_template_it_keeps() -> None:
    template = pod_template.next_template("web", SPEC, "engine:1", None)
    body = manifests.deployment(manifests.Owner(ServiceKey("a", "web"), "uid"), SPEC, template, 3)
    body["metadata"] |= {"uid": "1", "resourceVersion": "1"}
    record = read_deployment(body)
    assert record is not None
    assert record.facts.template_hash == template.spec_hash
    assert record.facts.replicas == 3
    assert pod_template.next_template("web", SPEC, "engine:2", record.annotations) == template
