"""Load reports as the operator would have read them, made without the wire and its checks: a day has a million."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from pydantic import BaseModel
from tidegate_operator.observed import LoadReport, Phase, Sketch
from tidegate_operator.observed_load import Counters, KvBlocks, Sketches, StepModel

from tidegate_lab.simulate.engine import EngineModel
from tidegate_lab.simulate.pods import Pod
from tidegate_lab.simulate.servers import Counts, Servers, Three

_Model = TypeVar("_Model", bound=BaseModel)
_LEAST_STEPS = 16
"""Before them an engine does not know what its steps cost."""
_NOTHING = (Sketch(), Sketch(), Sketch())


@dataclass(frozen=True, slots=True)
class Told:
    """What a process has counted up to a moment, to be taken off later reports where its counters begin again."""

    counts: Counts
    sketches: Three


class Reporter:
    """Asks servers for what `GET /load` would say of a pod."""

    def __init__(self, engine: EngineModel, servers: Servers, sketches: bool) -> None:
        self._servers, self._engine, self._wants_sketches = servers, engine, sketches
        self._blocks, self._block_size = engine.kv_tokens // engine.block_size, engine.block_size
        step = engine.step
        self._step_model = _made(StepModel, a=step.a, b=step.b, c=step.c, error=0.0)
        self._drawn: dict[str, tuple[tuple[int, int], Three, Sketches]] = {}

    def told(self, pod: Pod) -> Told:
        """All it has counted until now."""
        return Told(self._servers.counts(pod.number), self._servers.sketches(pod.number))

    def report(self, pod: Pod, now: float, since: Told | None = None) -> LoadReport:
        """`now` is virtual; `since` is what the counters have forgotten."""
        if pod.phase is Phase.STARTING:
            return self._starting(pod, now)
        counts, gauges = self._servers.counts(pod.number), self._servers.gauges(pod.number)
        sketches, ages, paces = self._latencies(pod, counts, gauges.waiting, since)
        if since is not None:
            counts = counts.plus(since.counts, -1)
        return _made(
            LoadReport,
            version=1,
            boot=pod.boot,
            state="draining" if pod.phase is Phase.DRAINING else "ready",
            uptime_s=now - pod.booted_at,
            slots=self._engine.slots,
            running=gauges.running,
            waiting=gauges.waiting,
            oldest_waiting_s=gauges.oldest_waiting_s,
            oldest_unfinished_s=gauges.oldest_unfinished_s,
            kv_blocks=_made(KvBlocks, total=self._blocks, used=gauges.blocks_used, size=self._block_size),
            counters=_made(
                Counters,
                received=counts.received,
                finished=counts.finished,
                rejected=counts.rejected,
                prompt_tokens=counts.prompt_tokens,
                cached_tokens=0,
                generated_tokens=counts.generated_tokens,
                preemptions=counts.preemptions,
                steps=counts.steps,
            ),
            last_step_age_s=gauges.last_step_age_s,
            sketches=sketches,
            waiting_ages=ages,
            running_tpot=paces,
            step_model=self._step_model if counts.steps >= _LEAST_STEPS else None,
        )

    def _starting(self, pod: Pod, now: float) -> LoadReport:
        return LoadReport(
            version=1,
            boot=pod.boot,
            state="starting",
            uptime_s=max(0.0, now - pod.booted_at),
            slots=self._engine.slots,
            running=0,
            waiting=0,
            counters=Counters(),
        )

    def _latencies(self, pod: Pod, counts: Counts, waiting: int, since: Told | None) -> tuple[Sketches, Sketch, Sketch]:
        if not self._wants_sketches:
            return _NO_SKETCHES, Sketch(), Sketch()
        # A sketch changes only by a first token or a finish.
        key = (counts.received - counts.rejected - waiting, counts.finished)
        drawn = self._drawn.get(pod.boot)
        if drawn is None or drawn[0] != key:
            three = self._servers.sketches(pod.number)
            drawn = self._drawn[pod.boot] = (key, three, _sketches(three))
        sketches = drawn[2]
        if since is not None:
            ttft, tpot, e2e = (now.since(then) for now, then in zip(drawn[1], since.sketches, strict=True))
            sketches = _sketches((ttft, tpot, e2e))
        return sketches, *self._servers.sketched_now(pod.number)


def _sketches(three: Three) -> Sketches:
    return _made(Sketches, ttft=three[0], tpot=three[1], e2e=three[2])


def _made(kind: type[_Model], **fields: object) -> _Model:
    """An instance of which every field is given and right, without the checks that are half of a day's simulation."""
    model = kind.__new__(kind)
    object.__setattr__(model, "__dict__", fields)
    object.__setattr__(model, "__pydantic_fields_set__", set(fields))
    object.__setattr__(model, "__pydantic_extra__", None)
    object.__setattr__(model, "__pydantic_private__", None)
    return model


_NO_SKETCHES = _sketches(_NOTHING)
