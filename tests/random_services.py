"""Services as hypothesis thinks of them: extreme, but such as the readers of the wire let through."""

from __future__ import annotations

from hypothesis import strategies as st
from load_reports import NOW, report, seen
from tidegate_operator.decide.replica_model import Equipment, RequestSize
from tidegate_operator.decide.scaling_memory import Learned, Memory
from tidegate_operator.decide.scaling_policy import Direction, LatencyTarget, Metric, Rate, ScalingPolicy
from tidegate_operator.observed import LoadReport, Phase, ReplicaFacts, ServiceObserved, StepModel
from tidegate_operator.observed_load import Counters, KvBlocks, Sketches
from tidegate_operator.observed_sketch import Sketch

counts = st.integers(0, 1_000_000)
seconds = st.floats(0, 1e10)
sketches = st.dictionaries(st.integers(-700, 1200), st.integers(1, 2**53), max_size=4).map(
    lambda bins: Sketch(0, tuple(sorted(bins.items())))
)


extreme = st.sampled_from([0.0, 1e-9, 1e10]) | st.floats(0, 1e10)
step_models = st.builds(StepModel, a=extreme, b=extreme, c=extreme, error=st.floats(0, 1e6))


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
        kv_blocks=KvBlocks(total=draw(total), used=draw(total), size=draw(st.integers(1, 65536))),
        counters=Counters(
            received=draw(total),
            finished=draw(total),
            prompt_tokens=draw(total),
            generated_tokens=draw(total),
            steps=draw(total),
        ),
        sketches=Sketches(ttft=draw(sketches), tpot=draw(sketches), e2e=draw(sketches)),
        waiting_ages=draw(sketches),
        running_tpot=draw(sketches),
        step_model=draw(st.none() | step_models),
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


@st.composite
def learned(draw: st.DrawFn) -> Learned:
    """What a status may bring back."""
    few = st.sampled_from([0.0, 1.0, 9e8]) | st.floats(0, 9e8)
    believable = st.sampled_from([0.0, 1e-9, 9e3]) | st.floats(0, 9e3)
    steps = st.builds(StepModel, a=believable, b=believable, c=believable, error=st.just(0.0))
    equipment = st.builds(Equipment, step=steps, slots=st.integers(1, 1_000_000), kv_tokens=st.integers(0, 2**53 - 1))
    return Learned(
        cold_starts_s=tuple(draw(st.lists(st.floats(1, 7200), max_size=10))),
        capacity=draw(st.none() | st.floats(1e-3, 1e9)),
        tokens_per_request=draw(st.none() | st.floats(1e-3, 1e9)),
        equipment=draw(st.none() | equipment),
        size=draw(
            st.none() | st.builds(RequestSize, prompt_tokens=few, output_tokens=few.map(lambda t: t + 1), kv_tokens=few)
        ),
        efficiency=draw(st.floats(0.3, 1)),
        hold_s=draw(st.just(0.0) | st.floats(120, 1800)),
        safe_utilisation=draw(st.none() | st.floats(0.3, 0.9)),
        p99_steps=draw(st.integers(0, 5)),
        p99_share=draw(st.none() | st.floats(0, 1)),
    )


memories = st.just(Memory()) | learned().map(lambda known: Memory(learned=known))
