"""What holds for every input a decision can get."""

from __future__ import annotations

import json
import math
import random
from dataclasses import fields, is_dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st
from load_reports import NOW, ready, report, seen
from random_services import learned, looks, memories, policies, services
from tidegate_operator import resource
from tidegate_operator.decide.capacity import safe_utilisation
from tidegate_operator.decide.latency import lower_bound
from tidegate_operator.decide.replica_model import Equipment, RequestSize
from tidegate_operator.decide.scaling import Decision, decide
from tidegate_operator.decide.scaling_memory import Learned, Memory
from tidegate_operator.decide.scaling_policy import LatencyTarget, Metric, Mode, ScalingPolicy
from tidegate_operator.decide.scaling_spec import learned_from, learned_to
from tidegate_operator.observed import ServiceObserved, StepModel
from tidegate_operator.observed_load import Counters, KvBlocks
from tidegate_operator.observed_sketch import Sketch

SCALING = {"desired": 1, "current": 1, "reason": "Steady"}


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
@given(policies(), looks, memories)
def test_the_number_never_leaves_its_bounds_and_nothing_is_nan(
    policy: ScalingPolicy, story: list[tuple[ServiceObserved, float]], memory: Memory
) -> None:
    for decision in play(policy, story, memory):
        assert policy.minimum <= decision.replicas <= policy.maximum
        assert all(math.isfinite(n) for n in numbers(decision))
        assert decision.reason.isalpha()
        assert "nan" not in decision.message.lower()


@settings(max_examples=80, deadline=None)
@given(policies(), looks, memories, st.randoms(use_true_random=False))
def test_the_order_of_replicas_does_not_matter(
    policy: ScalingPolicy, story: list[tuple[ServiceObserved, float]], memory: Memory, order: random.Random
) -> None:
    def shuffled(observed: ServiceObserved) -> ServiceObserved:
        return replace(observed, replicas=tuple(order.sample(observed.replicas, len(observed.replicas))))

    other = [(shuffled(observed), step) for observed, step in story]
    for one, same in zip(play(policy, story, memory), play(policy, other, memory), strict=True):
        assert (one.replicas, one.reason, one.limited_by) == (same.replicas, same.reason, same.limited_by)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 64), st.integers(0, 500), st.integers(0, 500), st.integers(0, 200), st.booleans())
def test_more_queue_never_gives_fewer(slots: int, waiting: int, more: int, running: int, known: bool) -> None:
    policy = ScalingPolicy(minimum=1, maximum=1000, queue_depth=2)
    learned = Learned(capacity=40.0, tokens_per_request=20.0) if known else Learned()

    def wanted(queue: int) -> int:
        load = report(slots=slots, running=min(running, slots), waiting=queue, last_step_age_s=0.1)
        return decide(policy, seen(ready("a", load)), Memory(learned=learned), NOW).replicas

    assert wanted(waiting + more) >= wanted(waiting)


TALK = RequestSize(prompt_tokens=200.0, output_tokens=100.0, kv_tokens=250.0)
STEP = StepModel(a=0.02, b=0.0002, c=1e-6, error=0.05)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 300), st.integers(0, 300), st.integers(0, 40), st.integers(1, 6), st.integers(0, 8))
def test_more_queue_never_gives_fewer_where_a_model_of_the_replicas_is_known(
    waiting: int, more: int, rate: int, replicas: int, running: int
) -> None:
    """For the same memory, of half a minute of arrivals, and the same state of the data."""
    policy = ScalingPolicy(
        minimum=1, maximum=1000, queue_depth=2, targets=(LatencyTarget(metric=Metric.TTFT, seconds=2.0),)
    )

    def look(second: int, queue: int) -> ServiceObserved:
        load = report(
            uptime_s=600.0 + second,
            slots=8,
            running=running,
            waiting=queue,
            last_step_age_s=0.1,
            oldest_waiting_s=1.0 if queue else None,
            kv_blocks=KvBlocks(total=1000, used=100 * running),
            counters=Counters(received=rate * second, finished=rate * second, steps=50 * second),
            step_model=STEP,
        )
        return seen(*(ready(f"pod-{n}", load) for n in range(replicas)))

    memory = Memory(learned=Learned(equipment=Equipment(step=STEP, slots=8, kv_tokens=16_000), size=TALK))
    memory = play(policy, [(look(5 * n, 0), 5.0) for n in range(6)], memory)[-1].memory

    def wanted(queue: int) -> tuple[int, int]:
        decision = play(policy, [(look(30, queue), 30.0)], memory)[-1]
        term = next(t.replicas for t in decision.terms if t.name == "queueDepth")
        assert term is not None
        return decision.replicas, term

    assert all(longer >= shorter for longer, shorter in zip(wanted(waiting + more), wanted(waiting), strict=True))


def through_the_status(known: Learned) -> Learned:
    """What the next process of the operator reads."""
    kept = json.loads(learned_to(known).model_dump_json(by_alias=True))
    return learned_from(resource.read_status({"scaling": SCALING | {"learned": kept}}))


@settings(max_examples=100, deadline=None)
@given(learned())
def test_what_is_learned_survives_the_status_and_stays_small(known: Learned) -> None:
    back = through_the_status(known)
    assert len(learned_to(known).model_dump_json(by_alias=True)) < 2048
    assert through_the_status(back) == back
    for name in ("equipment", "size", "capacity", "hold_s"):
        assert bool(getattr(back, name)) == bool(getattr(known, name)), name


@settings(max_examples=60, deadline=None)
@given(policies(), looks, memories, services())
def test_a_restart_gives_nothing_up(
    policy: ScalingPolicy, story: list[tuple[ServiceObserved, float]], memory: Memory, observed: ServiceObserved
) -> None:
    """The window's traffic is lost with the process: no first look lowers the number, whatever it sees."""
    known = play(policy, story, memory)[-1].memory.learned
    policy = replace(policy, down=replace(policy.down, window_s=max(1.0, policy.down.window_s)))
    decision = decide(policy, observed, Memory(learned=through_the_status(known)), NOW + 2000)
    assert observed.deployment is not None
    assert decision.replicas >= min(observed.deployment.replicas, policy.maximum)


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
