"""What holds for every input a decision can get."""

from __future__ import annotations

import json
import math
from dataclasses import fields, is_dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st
from load_reports import NOW, ready, report, seen
from tidegate_operator import resource
from tidegate_operator.decide.capacity import safe_utilisation
from tidegate_operator.decide.latency import lower_bound
from tidegate_operator.decide.scaling import Decision, decide
from tidegate_operator.decide.scaling_memory import Learned, Memory
from tidegate_operator.decide.scaling_policy import Direction, LatencyTarget, Metric, Mode, Rate, ScalingPolicy
from tidegate_operator.decide.scaling_spec import learned_from, learned_to
from tidegate_operator.observed import LoadReport, Phase, ReplicaFacts, ServiceObserved
from tidegate_operator.observed_load import Counters, Sketches
from tidegate_operator.observed_sketch import Sketch

counts = st.integers(0, 1_000_000)
seconds = st.floats(0, 1e10)
sketches = st.dictionaries(st.integers(-700, 1200), st.integers(1, 2**53), max_size=4).map(
    lambda bins: Sketch(0, tuple(sorted(bins.items())))
)


@st.composite
def loads(draw: st.DrawFn) -> LoadReport:
    total = st.integers(0, 2**53)
    return report(
        boot=draw(st.sampled_from(["a", "b"])),
        uptime_s=draw(seconds),
        slots=draw(counts),
        running=draw(counts),
        waiting=draw(counts),
        oldest_waiting_s=draw(st.none() | seconds),
        oldest_unfinished_s=draw(st.none() | seconds),
        last_step_age_s=draw(st.none() | seconds),
        counters=Counters(received=draw(total), finished=draw(total), generated_tokens=draw(total), steps=draw(total)),
        sketches=Sketches(ttft=draw(sketches), tpot=draw(sketches), e2e=draw(sketches)),
        waiting_ages=draw(sketches),
        running_tpot=draw(sketches),
    )


@st.composite
def replicas(draw: st.DrawFn, uid: str) -> ReplicaFacts:
    phase = draw(st.sampled_from(list(Phase)))
    load = draw(st.none() | loads())
    moment = st.floats(NOW - 1e6, NOW + 60)
    return ReplicaFacts(
        uid=uid,
        name=uid,
        phase=phase,
        created_at=draw(moment),
        scheduled_at=draw(st.none() | moment),
        ready_at=draw(moment) if phase is Phase.READY else None,
        load=load,
        load_age_s=None if load is None else draw(st.floats(0, 1e6)),
        restarts=draw(st.integers(0, 3)),
    )


@st.composite
def services(draw: st.DrawFn) -> ServiceObserved:
    number = draw(st.integers(0, 4))
    held = draw(st.none() | counts)
    pods = tuple(draw(replicas(f"pod-{n}")) for n in range(number))
    return seen(*pods, wanted=draw(st.integers(0, 20)), held=held)


@st.composite
def policies(draw: st.DrawFn) -> ScalingPolicy:
    minimum = draw(st.integers(0, 10))
    rates = st.lists(
        st.builds(lambda p, n: Rate(period_s=p, pods=n), st.floats(1, 1800), st.integers(1, 100))
        | st.builds(lambda p, n: Rate(period_s=p, percent=n), st.floats(1, 1800), st.integers(1, 900)),
        max_size=2,
    ).map(tuple)
    directions = st.builds(Direction, window_s=st.floats(0, 3600), rates=rates, strictest=st.booleans())
    return ScalingPolicy(
        minimum=minimum,
        maximum=draw(st.integers(max(1, minimum), 30)),
        queue_depth=draw(st.integers(1, 100)),
        targets=tuple(LatencyTarget(metric=m, seconds=draw(st.floats(1e-3, 1e3))) for m in Metric),
        scale_to_zero_after_s=draw(st.none() | st.floats(0, 3600)),
        up=draw(directions),
        down=draw(directions),
    )


looks = st.lists(st.tuples(services(), st.floats(-5, 400)), min_size=1, max_size=5)


def numbers(value: object) -> list[float]:
    """Every number in a decision, at any depth."""
    if isinstance(value, bool | str | bytes) or value is None:
        return []
    if isinstance(value, int | float):
        return [float(value)]
    if is_dataclass(value):
        return [n for f in fields(value) for n in numbers(getattr(value, f.name))]
    if isinstance(value, tuple | frozenset):
        return [n for part in value for n in numbers(part)]
    return []


def play(policy: ScalingPolicy, story: list[tuple[ServiceObserved, float]], memory: Memory) -> list[Decision]:
    now, decisions = NOW, []
    for observed, step in story:
        now += step
        decision = decide(policy, observed, memory, now)
        memory = decision.memory
        decisions.append(decision)
    return decisions


@settings(max_examples=150, deadline=None)
@given(policies(), looks)
def test_the_number_never_leaves_its_bounds_and_nothing_is_nan(
    policy: ScalingPolicy, story: list[tuple[ServiceObserved, float]]
) -> None:
    for decision in play(policy, story, Memory()):
        assert policy.minimum <= decision.replicas <= policy.maximum
        assert all(math.isfinite(n) for n in numbers(decision))
        assert decision.reason.isalpha()
        assert "nan" not in decision.message.lower()


@settings(max_examples=100, deadline=None)
@given(policies(), services(), st.randoms(use_true_random=False))
def test_the_order_of_replicas_does_not_matter(policy: ScalingPolicy, observed: ServiceObserved, order: object) -> None:
    shuffled = list(observed.replicas)
    order.shuffle(shuffled)  # type: ignore[attr-defined]
    other = replace(observed, replicas=tuple(shuffled))
    first, second = (decide(policy, o, Memory(), NOW) for o in (observed, other))
    assert (first.replicas, first.reason, first.limited_by) == (second.replicas, second.reason, second.limited_by)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 64), st.integers(0, 500), st.integers(0, 500), st.integers(0, 200), st.booleans())
def test_more_queue_never_gives_fewer(slots: int, waiting: int, more: int, running: int, known: bool) -> None:
    policy = ScalingPolicy(minimum=1, maximum=1000, queue_depth=2)
    learned = Learned(capacity=40.0, tokens_per_request=20.0) if known else Learned()

    def wanted(queue: int) -> int:
        load = report(slots=slots, running=min(running, slots), waiting=queue, last_step_age_s=0.1)
        return decide(policy, seen(ready("a", load)), Memory(learned=learned), NOW).replicas

    assert wanted(waiting + more) >= wanted(waiting)


@settings(max_examples=100, deadline=None)
@given(policies(), looks)
def test_what_is_learned_survives_the_status_and_stays_small(
    policy: ScalingPolicy, story: list[tuple[ServiceObserved, float]]
) -> None:
    learned = play(policy, story, Memory())[-1].memory.learned
    text = learned_to(learned).model_dump_json(by_alias=True)
    assert len(text) < 2048
    scaling = {"desired": 1, "current": 1, "reason": "Steady", "learned": json.loads(text)}
    back = learned_from(resource.read_status({"scaling": scaling}))
    assert (
        learned_to(back).model_dump_json(by_alias=True) == text or learned.capacity is None or learned.capacity > 1e11
    )


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.floats(allow_nan=False), max_size=20),
    st.floats() | st.none(),
    st.floats() | st.none(),
    st.integers(-5, 5000),
)
def test_a_status_that_was_tampered_with_does_no_harm(
    cold: list[float], capacity: float | None, safe: float | None, steps: int
) -> None:
    kept = resource.Learned(
        cold_starts_seconds=tuple(cold),
        capacity=capacity,
        tokens_per_request=capacity,
        safe_utilisation=safe,
        safe_utilisation_at=capacity,
        p99_steps=steps,
    )
    status = resource.InferenceServiceStatus(
        scaling=resource.ScalingStatus(desired=1, current=1, reason="Steady", learned=kept)
    )
    policy = ScalingPolicy(minimum=1, maximum=5, queue_depth=2)
    memory = Memory(learned=learned_from(status))
    decision = decide(policy, seen(ready("a", report(running=4, waiting=9, last_step_age_s=0.1))), memory, NOW)
    assert 1 <= decision.replicas <= 5
    assert all(math.isfinite(n) for n in numbers(decision))


@settings(max_examples=100, deadline=None)
@given(services())
def test_a_paused_service_never_moves(observed: ServiceObserved) -> None:
    assert observed.deployment is not None
    policy = ScalingPolicy(minimum=2, maximum=3, paused=True, mode=Mode.AUTO)
    assert decide(policy, observed, Memory(), NOW).replicas == observed.deployment.replicas


@given(st.integers(1, 100_000), st.integers(1, 1000))
def test_a_safe_utilisation_is_always_a_share(slots: int, queue: int) -> None:
    assert 0.3 <= safe_utilisation(slots, queue) <= 0.9


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_a_lower_bound_is_below_the_share(over: int, more: int) -> None:
    samples = over + more
    assert 0 <= lower_bound(over, samples) <= (over / samples if samples else 0)


@given(st.lists(st.floats(0, 1e9), max_size=50), st.lists(st.floats(0, 1e9), max_size=50))
def test_what_was_merged_can_be_taken_apart(earlier: list[float], later: list[float]) -> None:
    before, after = Sketch.of(earlier), Sketch.of(earlier + later)
    assert Sketch.merged((before, Sketch.of(later))) == after
    assert after.since(before) == Sketch.of(later)
