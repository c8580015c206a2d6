"""What goes wrong with data, pods and nodes, at four moments: nothing is given up for it, and it is soon over."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import pytest
from faulty_services import COLD_START_S, WINDOW_S, numbers, service, traffic, watched
from tidegate_lab.simulate.scenario import Fault, FaultKind
from tidegate_lab.traffic.trace import Trace

STRUCK_AT = 200.0
STALE_AFTER_S = 20.0
"""Ten seconds of silence are no longer recent; looks are 5 s apart."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """How long it lasts, and what the condition MetricsAvailable says while it does: of all pods, and of half."""

    kind: FaultKind
    seconds: float
    all_say: str
    half_say: str

    @property
    def silent(self) -> bool:
        """The pods are well, and what is known of them is not."""
        return self.half_say == "Partial"


KINDS = [
    Kind(kind=FaultKind.HTTP_500, seconds=150, all_say="Stale", half_say="Partial"),
    Kind(kind=FaultKind.TIMEOUT, seconds=150, all_say="Stale", half_say="Partial"),
    Kind(kind=FaultKind.NAN, seconds=150, all_say="Stale", half_say="Partial"),
    Kind(kind=FaultKind.STALE, seconds=150, all_say="Stale", half_say="Partial"),
    Kind(kind=FaultKind.COUNTER_RESET, seconds=0, all_say="Answering", half_say="Answering"),
    Kind(kind=FaultKind.POD_GONE, seconds=0, all_say="NoReplicas", half_say="Answering"),
    Kind(kind=FaultKind.CRASH, seconds=0, all_say="NoReplicas", half_say="Answering"),
    Kind(kind=FaultKind.CRASH, seconds=40, all_say="NoReplicas", half_say="Answering"),
    Kind(kind=FaultKind.NO_CAPACITY, seconds=150, all_say="Answering", half_say="Answering"),
]
MOMENTS = {
    "busy": lambda: traffic((9, 640), seed=3),
    "idle": lambda: traffic((9, 150), (0, 490), seed=3),
    "the load ends as it strikes": lambda: traffic((9, STRUCK_AT), (0, 440), seed=3),
    "in the middle of a rise": lambda: traffic((5, 100), *((5 + n, 20) for n in range(1, 16)), (20, 420), seed=3),
}


@cache
def made(moment: str) -> Trace:
    return MOMENTS[moment]()


@cache
def without(moment: str) -> dict[float, int]:
    """Replicas where nothing goes wrong."""
    return numbers(watched(service(made(moment)))[0])


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("share", [1.0, 0.5], ids=["all pods", "half of them"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.kind.value} for {kind.seconds:.0f} s")
def test_a_fault_gives_nothing_up_says_so_and_is_over_within_one_window(kind: Kind, share: float, moment: str) -> None:
    scenario = service(made(moment), Fault(kind=kind.kind, at=STRUCK_AT, seconds=kind.seconds, share=share))
    outcome, policy = watched(scenario)
    wanted, healthy = numbers(outcome), without(moment)
    assert min(wanted.values()) >= scenario.minimum

    ends = STRUCK_AT + kind.seconds
    running = wanted[STRUCK_AT]
    if kind.silent:
        assert all(wanted[at] >= running for at in wanted if STRUCK_AT <= at < ends), "silence gives nothing back"
    elif moment in ("busy", "in the middle of a rise"):
        assert all(wanted[at] >= min(running, healthy[at]) for at in wanted if at >= STRUCK_AT), (
            "the load is still there"
        )

    reasons = {policy.said[at]["MetricsAvailable"].reason for at in wanted if STRUCK_AT + STALE_AFTER_S <= at < ends}
    if kind.seconds > STALE_AFTER_S and (kind.silent or moment == "busy"):
        says = kind.all_say if share == 1.0 else kind.half_say
        assert says in reasons
        assert reasons <= {says, "Partial"}, "Partial for a moment where one that was heard while it started is ready"
    if not kind.silent:
        ends += COLD_START_S
    assert policy.said[max(wanted)]["MetricsAvailable"].status == "True"

    few = {at: (n, healthy[at]) for at, n in wanted.items() if at >= ends + WINDOW_S + 10 and n < healthy[at] - 1}
    assert not few, "within one window there are as many as if nothing had been"
    if moment != "in the middle of a rise":
        many = {at: (n, healthy[at]) for at, n in wanted.items() if at >= ends + 2 * WINDOW_S and n > healthy[at] + 1}
        assert not many, "what the fault cost is given back after its window"
    last = max(wanted)
    assert wanted[last] <= healthy[last] + 1, "so is what it took to clear what queued meanwhile"
