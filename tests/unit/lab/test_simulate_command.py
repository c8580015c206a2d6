"""`tidegate simulate`: what it takes from a file, what it prints, and how it says that something cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scripted_policy import Scripted
from tidegate_lab.cli import main
from tidegate_lab.simulate.engine import ENGINES, EngineModel, StepModel
from tidegate_lab.simulate.policy import Choice
from tidegate_lab.simulate.run import simulate
from tidegate_lab.simulate.scenario import ColdStart, Fault, FaultKind, Scenario, Targets
from tidegate_lab.traffic.trace import Trace
from tidegate_lab.what_if.command import _fault
from tidegate_lab.what_if.figures import Figures, Latency
from tidegate_lab.what_if.service_file import ServiceFileError, read_service
from tidegate_lab.what_if.timeline import rows

ROOT = Path(__file__).resolve().parents[3]
SERVICE = """
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
---
apiVersion: tidegate.dev/v1alpha1
kind: InferenceService
metadata: {name: llama}
spec:
  model: {source: "pvc://models/llama"}
  engine: {maxQueuedRequests: 20}
  scaling:
    mode: advisory
    minReplicas: 2
    maxReplicas: 9
    targets: {ttft: {p99: 2s}, tpot: {p99: 100ms}}
  cost: {perReplicaHour: 0.8}
  drain: {timeout: 2m}
"""


@pytest.fixture
def service(tmp_path: Path) -> Path:
    path = tmp_path / "service.yaml"
    path.write_text(SERVICE)
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "mine.csv"
    rows = "".join(f"{n * 0.25},{100 + n % 50},{20 + n % 30}\n" for n in range(1200))
    path.write_text(f"when,in,out\n{rows}")
    return path


def test_a_file_says_bounds_targets_price_and_the_limits_it_sets_itself(service: Path) -> None:
    read = read_service(service)
    assert (read.name, read.price) == ("llama", 0.8)
    assert (read.policy.minimum, read.policy.maximum, read.policy.mode) == (2, 9, "auto")
    assert read.targets == Targets(ttft_s=2.0, tpot_s=0.1)
    engine = read.engine(ENGINES["rtx4090-llama-8b"])
    assert (engine.most_queued, engine.slots, engine.token_budget) == (20, 256, 2048)


EXAMPLES = [p for p in sorted((ROOT / "crds/examples").glob("*.yaml")) if "kind: InferenceService" in p.read_text()]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_every_example_can_be_simulated(path: Path) -> None:
    assert read_service(path).policy.maximum >= 1


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("replicas: 2, scaling: {maxReplicas: 4}", "spec.replicas: 2 cannot stand beside spec.scaling"),
        ("scaling: {minReplicas: 2}", "spec.scaling.maxReplicas: set the most"),
        ("scaling: {minReplicas: 5, maxReplicas: 2}", "spec.scaling.minReplicas: 5 is more than maxReplicas 2"),
        (
            "scaling: {maxReplicas: 4, schedules: [{name: sale, cron: 0 8 * * *, duration: 1h, minReplicas: 5}]}",
            "the minReplicas of schedule sale is more than maxReplicas 4",
        ),
        (
            "scaling: {minReplicas: 2, maxReplicas: 4, "
            "schedules: [{name: night, cron: 0 8 * * *, duration: 1h, maxReplicas: 1}]}",
            "the maxReplicas of schedule night is less than minReplicas 2",
        ),
        (
            "scaling: {minReplicas: 3, maxReplicas: 4}, cost: {perReplicaHour: 2, maxPerHour: 5}",
            "spec.cost.maxPerHour: 5 an hour does not pay for the minReplicas, 3 at 2 each",
        ),
        (
            "scaling: {maxReplicas: 4, schedules: [{name: sale, cron: 0 8 * * *, duration: 1h, minReplicas: 4}]}, "
            "cost: {perReplicaHour: 2, maxPerHour: 7}",
            "does not pay for the minReplicas of schedule sale, 4 at 2 each",
        ),
    ],
)
def test_bounds_that_cannot_hold_together_are_refused_as_when_they_are_applied(
    tmp_path: Path, spec: str, words: str
) -> None:
    path = tmp_path / "service.yaml"
    path.write_text(f"kind: InferenceService\nspec: {{model: {{source: 'pvc://a/b'}}, {spec}}}\n")
    with pytest.raises(ServiceFileError, match=words):
        read_service(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot be read"),
        ("a: [", "line 2: is no YAML"),
        ("kind: ConfigMap", "has 0 objects of kind InferenceService"),
        ("kind: InferenceService", "spec is missing"),
        ("kind: InferenceService\nspec: {model: {source: 'pvc://a/b'}, scalling: {}}", "spec.scalling"),
    ],
)
def test_a_file_that_is_no_service_is_told_in_a_line(tmp_path: Path, text: str | None, words: str) -> None:
    path = tmp_path / "service.yaml"
    if text is not None:
        path.write_text(text + "\n")
    with pytest.raises(ServiceFileError, match=words) as raised:
        read_service(path)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_the_command_prints_a_timeline_and_the_figures_and_writes_them(
    service: Path, trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "out.json"
    columns = ["--time-column", "when", "--prompt-column", "in", "--output-column", "out"]
    faults = ["--fault", "http-500@100+20*0.5", "--fault", "crash@150*0.5"]
    argv = ["simulate", "--service", str(service), "--trace", str(trace), *columns, *faults, "--cold-start", "20~0.2"]
    assert main([*argv, "--json", str(written)]) == 0
    printed = capsys.readouterr().out
    figures = json.loads(written.read_text())["figures"]
    assert figures["requests"] == 1200
    assert f"attainment       {figures['attainment']:.2%}" in printed
    assert "cost" in printed
    assert f"{figures['lost']} lost with their pod" in printed
    assert printed.splitlines()[0].split() == [
        "time", "replicas", "ready", "arrivals", "queue", "running", "p99", "TTFT", "why",
    ]  # fmt: skip
    assert " 0:01:00" in printed


@pytest.mark.parametrize("policy", ["static=3", "keda-queue", "hpa-concurrency=8", "tidegate"])
def test_a_policy_goes_by_its_name(service: Path, policy: str, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["simulate", "--service", str(service), "--trace", "aibrix-up-down", "--seconds", "60"]
    assert main([*argv, "--policy", policy]) == 0
    assert f"llama: {policy.partition('=')[0]}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--policy", "magic"], "policy 'magic': is not known; the names are tidegate,"),
        (["--policy", "static=many"], "policy 'static=many': give static=NUMBER above 0, replicas"),
        (["--policy", "static=nan"], "policy 'static=nan': give static=NUMBER above 0, replicas"),
        (["--policy", "keda-queue=0"], "policy 'keda-queue=0': give keda-queue=NUMBER above 0, waiting requests"),
        (["--policy", "tidegate=3"], "policy 'tidegate=3': takes its settings from the service's file"),
        (["--engine", "warp"], "engine 'warp'"),
        (["--trace", "nowhere.csv"], "--trace nowhere.csv: is not there"),
        (["--start", "1e9"], "start 1e+09"),
        (["--times", "1e9"], "--times 1e+09: makes "),
    ],
)
def test_what_is_asked_wrongly_is_told_in_a_line(
    service: Path, flags: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["simulate", "--service", str(service), "--trace", "aibrix-up-down", *flags]
    assert main(argv) == 1
    told = capsys.readouterr().err
    assert words in told
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--first-replicas", "-1"),
        ("--capacity", "some"),
        ("--seed", "-1"),
        ("--every", "0"),
        ("--scrape-interval", "inf"),
        ("--start", "-1"),
        ("--seconds", "nan"),
        ("--times", "0"),
        ("--json", "no/such/folder/x.json"),
        ("--html", "."),
    ],
)
def test_a_value_that_means_nothing_is_refused_before_anything_runs(
    service: Path, flag: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["simulate", "--service", str(service), "--trace", "azure-conv", flag, value])
    assert f"argument {flag}: '{value}'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("crash@60", Fault(kind=FaultKind.CRASH, at=60.0)),
        ("nan@60+30", Fault(kind=FaultKind.NAN, at=60.0, seconds=30.0)),
        ("http-500@1.5+30*0.5", Fault(kind=FaultKind.HTTP_500, at=1.5, seconds=30.0, share=0.5)),
    ],
)
def test_a_fault_is_written_as_kind_time_length_and_share(text: str, fault: Fault) -> None:
    assert _fault(text) == fault


@pytest.mark.parametrize("text", ["crash", "quake@60", "crash@60*2", "nan@60+30*0", "nan@1.2.3", "nan@1..2"])
def test_what_is_no_fault_is_refused(text: str, service: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["simulate", "--service", str(service), "--trace", "azure-conv", "--fault", text])
    assert "error: argument --fault: " in capsys.readouterr().err


def test_figures_count_what_never_came_as_a_miss_but_in_no_quantile() -> None:
    engine = EngineModel(name="one a second", step=StepModel(1.0, 0.0, 0.0), slots=1, kv_tokens=64)
    trace = Trace(
        name="three",
        at=np.array([0.0, 0.0, 1.0]),
        prompt=np.array([10, 10, 1000], np.int32),
        output=np.array([1, 3, 10], np.int32),
        seconds=3600.0,
    )
    targets = Targets(ttft_s=1.5, tpot_s=1.0)
    scenario = Scenario(trace=trace, engine=engine, cold_start=ColdStart(median_s=1.0), targets=targets)
    figures = Figures.of(simulate(scenario, Scripted(plan=((0.0, 1), (1800.0, 2), (2700.0, 1)))))
    assert figures.ttft == Latency(p50=1.0, p95=2.0, p99=2.0, target=1.5, within=1 / 3)
    assert figures.tpot == Latency(p50=1.0, p95=1.0, p99=1.0, target=1.0, within=1 / 2)
    assert (figures.refused, figures.lost, figures.unfinished) == (1, 0, 0)
    assert figures.generated_tokens == 4
    assert figures.replica_hours == pytest.approx(1.25)
    assert (figures.changes_per_hour, figures.reversals_per_hour) == (2.0, 1.0)


def test_the_timeline_has_a_row_for_each_change_and_one_now_and_then() -> None:
    class Talking(Scripted):
        def choose(self, observed, now):  # type: ignore[no-untyped-def]
            chosen = super().choose(observed, now)
            return Choice(replicas=chosen.replicas, reason="Because", message="it must be")

    engine = EngineModel(name="quick", step=StepModel(0.01, 0.0, 0.0))
    trace = Trace(
        name="a request a second",
        at=np.arange(200.0),
        prompt=np.full(200, 10, np.int32),
        output=np.full(200, 10, np.int32),
        seconds=200.0,
    )
    scenario = Scenario(trace=trace, engine=engine, cold_start=ColdStart(median_s=5.0, sigma=0.0))
    outcome = simulate(scenario, Talking(plan=((0.0, 1), (75.0, 2))))
    told = list(rows(outcome, 60.0))
    assert [row.at for row in told] == [60.0, 75.0, 135.0, 195.0]
    assert [row.arrivals_per_s for row in told] == pytest.approx([1.0] * 4)
    assert [row.changed for row in told] == [False, True, False, False]
    assert str(told[1]).split() == ["0:01:15", "2", "1", "1.00/s", "0", "0", "10", "ms", "Because:", "it", "must", "be"]
    assert str(told[2]).endswith("Because")
