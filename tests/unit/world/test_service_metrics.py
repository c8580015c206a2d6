"""What `/metrics` and an HPA are told of services: numbers that are known, and no others."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tidegate_operator.observed import ServiceKey
from tidegate_operator.resource import (
    CostStatus,
    InferenceServiceStatus,
    LatencyStatus,
    Percentiles,
    ScalingStatus,
)
from tidegate_operator.world.external_metrics import Source, application, parse_selector
from tidegate_operator.world.relay import Relay
from tidegate_operator.world.service_metrics import FAMILIES, ServiceMetrics
from tidegate_operator.world.telemetry import Telemetry

WEB, OTHER, ELSEWHERE = ServiceKey("ns", "web"), ServiceKey("ns", "other"), ServiceKey("elsewhere", "web")


def status(ready: int = 2, desired: int = 2, recommended: int | None = 3, **more: object) -> InferenceServiceStatus:
    scaling = ScalingStatus(
        desired=desired, current=desired, recommended=recommended, reason="External", data_state="Flowing",
        queue_depth=7, running=8,
    )  # fmt: skip
    fields: dict[str, object] = {"ready_replicas": ready, "scaling": scaling} | more
    return InferenceServiceStatus.model_validate(fields)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def exported(telemetry: Telemetry) -> dict[tuple[str, str, str], float]:
    """(metric, namespace/service, latency) and the number."""
    text = generate_latest(telemetry.registry).decode()
    return {
        (sample.name, f"{sample.labels['namespace']}/{sample.labels['service']}", sample.labels.get("latency", "")):
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("tidegate_service_")
    }  # fmt: skip


def test_a_service_that_is_gone_leaves_no_series() -> None:
    telemetry = Telemetry(Clock())
    for key in (WEB, OTHER):
        telemetry.services.show(key, status())
    assert {service for _, service, _ in exported(telemetry)} == {"ns/web", "ns/other"}
    telemetry.services.show(WEB, None)
    telemetry.services.show(WEB, None)
    assert {service for _, service, _ in exported(telemetry)} == {"ns/other"}


def test_a_service_has_no_more_series_than_there_are_families_whatever_happens_to_it() -> None:
    telemetry = Telemetry(Clock())
    sketch = Percentiles(p50=0.1, p95=0.2, p99=0.3)
    for number in range(50):
        latency = LatencyStatus(ttft=sketch, tpot=sketch, e2e=sketch)
        cost = CostStatus(per_hour=number, per_million_tokens=1.0)
        telemetry.services.show(WEB, status(ready=number, recommended=number, latency=latency, cost=cost))
    series = exported(telemetry)
    assert len(series) == len(FAMILIES) + 2, "the p99 has three"
    assert series["tidegate_service_p99_seconds", "ns/web", "ttft"] == 0.3
    assert series["tidegate_service_cost_per_hour", "ns/web", ""] == 49


def test_what_is_not_known_has_no_series() -> None:
    telemetry = Telemetry(Clock())
    telemetry.services.show(WEB, status(latency=LatencyStatus(ttft=Percentiles(p50=0.1))))
    assert {name.removeprefix("tidegate_service_") for name, _, _ in exported(telemetry)} == {
        "desired_replicas", "replicas", "ready_replicas", "pressure", "queue_depth", "running_requests",
    }  # fmt: skip


@pytest.mark.parametrize("state", ["Partial", "Stale", "Missing"])
def test_a_queue_of_some_replicas_is_not_told_as_the_queue(state: str) -> None:
    telemetry = Telemetry(Clock())
    known = status()
    assert known.scaling is not None
    telemetry.services.show(
        WEB, known.model_copy(update={"scaling": known.scaling.model_copy(update={"data_state": state})})
    )
    names = {name for name, _, _ in exported(telemetry)}
    assert "tidegate_service_queue_depth" not in names
    assert "tidegate_service_desired_replicas" in names, "the number holds, and that is known"


def test_a_number_that_nobody_stands_for_any_more_is_withdrawn() -> None:
    clock = Clock()
    telemetry = Telemetry(clock)
    telemetry.services.show(WEB, status())
    clock.now += 119
    assert exported(telemetry)
    clock.now += 2
    assert not exported(telemetry)


def test_only_the_operator_that_leads_speaks_of_services_or_a_prometheus_would_see_two_numbers() -> None:
    telemetry = Telemetry(Clock())
    assert not exported(telemetry), "standing by"
    telemetry.take_over()
    telemetry.services.show(WEB, status())
    assert exported(telemetry)
    telemetry.step_down()
    assert not exported(telemetry), "it lost the lease, and has not ended yet"


@pytest.mark.parametrize(
    ("ready", "current", "recommended", "wanted"),
    [
        pytest.param(2, 2, 3, 3, id="more"),
        pytest.param(2, 4, 4, 4, id="two are starting: no more than was asked for"),
        pytest.param(1, 4, 6, 6, id="more while three are starting"),
        pytest.param(5, 5, 2, 2, id="fewer"),
        pytest.param(3, 3, 3, 3, id="as many"),
    ],
)
def test_both_metrics_lead_an_hpa_to_the_same_number(ready: int, current: int, recommended: int, wanted: int) -> None:
    """As Kubernetes computes it: an external Value times the ready pods; an AverageValue by itself."""
    telemetry = Telemetry(Clock())
    telemetry.services.show(WEB, status(ready, current, None if recommended == current else recommended))
    series = exported(telemetry)
    pressure = series["tidegate_service_pressure", "ns/web", ""]
    desired = series["tidegate_service_desired_replicas", "ns/web", ""]
    assert desired == wanted
    assert round(pressure * ready, 6) == wanted


def test_without_a_ready_replica_there_is_no_pressure_or_an_hpa_would_multiply_it_by_none() -> None:
    telemetry = Telemetry(Clock())
    telemetry.services.show(WEB, status(ready=0))
    assert ("tidegate_service_pressure", "ns/web", "") not in exported(telemetry)


ROOT = "/apis/external.metrics.k8s.io/v1beta1"


async def asked(metrics: ServiceMetrics, path: str, **query: str) -> tuple[int, dict[str, object]]:
    source = Source(metrics, leads=lambda: True, relay=Relay("a", lambda: None, lambda: ()))
    async with TestClient(TestServer(application(source))) as client:
        answer = await client.get(ROOT + path, params=query)
        return answer.status, await answer.json()


async def test_an_hpa_gets_the_number_of_its_service_alone() -> None:
    metrics = ServiceMetrics(Clock())
    for key, recommended in ((WEB, 3), (OTHER, 5), (ELSEWHERE, 7)):
        metrics.show(key, status(recommended=recommended))
    code, body = await asked(metrics, "/namespaces/ns/tidegate_service_desired_replicas", labelSelector="service=web")
    assert (code, body["kind"]) == (200, "ExternalMetricValueList")
    items = body["items"]
    assert isinstance(items, list)
    assert [(i["value"], i["metricLabels"]) for i in items] == [("3000m", {"namespace": "ns", "service": "web"})]


async def test_a_service_that_is_not_there_has_no_value_and_an_hpa_holds() -> None:
    code, body = await asked(
        ServiceMetrics(Clock()), "/namespaces/ns/tidegate_service_desired_replicas", labelSelector="service=web"
    )
    assert (code, body["items"]) == (200, [])


async def test_the_api_lists_its_metrics() -> None:
    code, body = await asked(ServiceMetrics(Clock()), "")
    resources = body["resources"]
    assert isinstance(resources, list)
    assert code == 200
    assert {r["name"] for r in resources} == {family.name for family in FAMILIES}


@pytest.mark.parametrize(
    ("metric", "selector", "code", "words"),
    [
        ("tidegate_service_desire", "service=web", 404, "tidegate_service_desire: there is no such metric"),
        ("tidegate_service_pressure", "", 400, "names no service; set metric.selector.matchLabels.service"),
        ("tidegate_service_pressure", "service in (a,b)", 400, "only NAME=VALUE is understood"),
        ("tidegate_service_pressure", "service!=web", 400, "only NAME=VALUE is understood"),
    ],
)
async def test_a_question_that_cannot_be_meant_is_refused(metric: str, selector: str, code: int, words: str) -> None:
    found, body = await asked(ServiceMetrics(Clock()), f"/namespaces/ns/{metric}", labelSelector=selector)
    assert found == code
    assert words in str(body["message"])


def test_more_labels_narrow_it_down() -> None:
    assert parse_selector("service=web,latency==ttft") == {"service": "web", "latency": "ttft"}
