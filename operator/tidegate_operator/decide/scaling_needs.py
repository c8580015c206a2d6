"""How many replicas the arrivals need: a forecast, and the last minutes replayed through a model of the replicas."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from tidegate_operator.decide.replica_model import Equipment, ReplicaModel, RequestSize, model_of
from tidegate_operator.decide.scaling_forecast import Forecast, forecast, occupied_ahead, occupied_lately
from tidegate_operator.decide.scaling_history import History, rate_of
from tidegate_operator.decide.scaling_memory import Learned, Sums, Window
from tidegate_operator.decide.scaling_policy import Metric, ScalingPolicy
from tidegate_operator.decide.scaling_replay import expected_now, replicas_that_hold
from tidegate_operator.observed import LoadReport

REPLAYED_S = 60.0
"""As long as no peak comes again; the window for going down remembers the rest."""
CLEARED_S = 120.0
"""In which a queue is to be worked off."""
MOST_TO_CLEAR = 0.2
"""What waits inside replicas does not move to new ones: a few more than the arrivals need clear it sooner."""
UNEXPLAINED = 1.15
"""Running requests, over those that arrivals explain, from which answers must have become longer."""
FILLING = 1.5
"""Times the mean answer: long ones fill places for longer than that, and fewer of them."""
FULL_PLACES = 0.9
"""Share of cache or slots from which one more replica is needed."""
FEWEST_ENDED = 5.0
STAY_WINDOWS_S = (60.0, 120.0)
"""A lull of a minute gives no replica up."""
STAY_ROOM = 1.05
"""Fewer replicas must hold this much more than what came, or chance alone would take one away and bring it back."""
LEAST_PATIENCE = 0.25
"""Part of the TTFT target that may be waited for, where the first token alone takes nearly all of it."""
MOST_STEP_ERROR = 1.0
"""Steps that are off by their own length say nothing."""
LEVEL_Z = 0.5
"""Deviations beside the mean of requests inside; headroom is the rest."""
EVEN = 4.0
"""Dispersion of arrivals up to which headroom is as the user asks."""
MOST_HEADROOM = 5.0
"""Times what the user asks, however they come."""
QUEUE_ROOM = 0.5
"""A queue twice as long as the mean is common."""
EFFICIENCY_RETURNS_S = 4 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Replicas by what came, and by what will have come when a new one is ready."""

    model: ReplicaModel
    forecast: Forecast
    patience_s: float
    replayed: int
    """On which the last minutes would have held, with the growth that is forecast."""
    surely: int
    """For the arrivals that there surely are now, and to clear what waits."""
    backlog: float
    """Requests that should wait now, in all replicas, by what came and the replicas there were."""
    level: int
    """For the last minute's mean rate: steadier than the others, and late."""
    level_before: int
    """For that of the two minutes before it."""
    occupied: int
    """For the places that running requests will hold when a new replica is ready, if they go on filling so."""
    staying: int
    """As `replayed`, with some room: fewer than these are never gone down to."""

    @property
    def queue_in_time(self) -> float:
        """Requests that may wait at a replica, on average, with the last of them still served in time."""
        return QUEUE_ROOM * self.model.rate * self.patience_s

    @property
    def wanted(self) -> int:
        return max(self.replayed, self.surely, self.occupied)


def needs_of(window: Window, learned: Learned, policy: ScalingPolicy, guess: int) -> Needs | None:
    """None where the replicas publish no step model, or requests' sizes are not known yet."""
    if learned.equipment is None or learned.size is None or not window.history.buckets:
        return None
    ahead = forecast(window.history, learned.cold_start_s)
    room = 1 + headroom(policy, ahead.dispersion)
    full = model_of(learned.equipment, learned.size, policy)
    # Headroom is for what may come; what is here is served without.
    bare = replace(full, concurrency=max(0.5, full.concurrency * learned.efficiency))
    model = replace(bare, concurrency=max(0.5, bare.concurrency / room))
    ttft = policy.target(Metric.TTFT)
    patience = max(LEAST_PATIENCE * ttft, ttft - 2 * model.first_token_s) if ttft is not None else model.service_s
    recent = window.history.last(max(REPLAYED_S, learned.hold_s))
    most = max(policy.maximum, guess) + 1

    def hold_for(factor: float) -> int:
        scaled = [(bucket.seconds, bucket.arrived * factor) for bucket in recent]
        return replicas_that_hold(scaled, model, patience, policy.late_allowed, max(1, guess), most)

    replayed = hold_for(ahead.growth)
    waiting = window.ticks[-1].waiting_everywhere if window.ticks else 0
    late = waiting > model.rate * patience * max(1, guess) + policy.queue_depth
    expected = expected_now(window.history.buckets, model.concurrency, model.service_s)
    held = window.ticks[-1].occupied if window.ticks else 0.0
    # A rise that the arrivals explain ends where they say.
    unexplained = held * model.concurrency > UNEXPLAINED * expected.running + 1
    filled = _filled(window.history, model, room, learned.cold_start_s if unexplained else 0.0)
    if late:
        filled = min(filled, guess)
    # What arrivals explain goes up and down by chance: enough to keep a replica for, and not to order one.
    lasting = _places(occupied_lately(window.history), room)
    return Needs(
        model=model,
        forecast=ahead,
        patience_s=patience,
        replayed=replayed,
        surely=_surely(ahead, bare, waiting / model.rate if late else 0.0),
        level=_for_level(ahead.now, ahead, model),
        level_before=_for_level(rate_of(window.history.last(180.0)[: -len(window.history.last(60.0))]), ahead, model),
        occupied=filled if unexplained else min(filled, lasting),
        backlog=expected.waiting,
        staying=max(
            replayed,
            filled,
            hold_for(ahead.growth * STAY_ROOM),
            _for_level(STAY_ROOM * max(rate_of(window.history.last(s)) for s in STAY_WINDOWS_S), ahead, model),
        ),
    )


def headroom(policy: ScalingPolicy, dispersion: float) -> float:
    """What the user asks for, and more where requests come in bursts: those to come are higher than those seen.

    It grows as the deviation does. Dispersion up to 4: as asked; 16: twice; 100 and more: five times.
    """
    if policy.headroom <= 0:
        return policy.headroom
    return policy.headroom * min(MOST_HEADROOM, math.sqrt(max(1.0, dispersion / EVEN)))


def _surely(ahead: Forecast, bare: ReplicaModel, behind_s: float) -> int:
    """For what surely arrives; and a few more that clear a queue of so many seconds of one replica's work."""
    surely = _for_level(ahead.surely, ahead, bare)
    if behind_s and surely:
        surely += min(math.ceil(behind_s / CLEARED_S), max(1, int(MOST_TO_CLEAR * surely)))
    return surely


def _filled(history: History, model: ReplicaModel, room: float, rising_s: float) -> int:
    """For the places that will be taken if they fill for another while, which is as long as answers take: what queues
    fills them too, and is the queue's business."""
    return _places(occupied_ahead(history, min(rising_s, FILLING * model.service_s)), room)


def _places(occupied: float, room: float) -> int:
    return math.ceil(round(occupied * room / FULL_PLACES, 6))


def _for_level(rate: float, ahead: Forecast, model: ReplicaModel) -> int:
    """Places for the requests that are inside at this rate, and for their deviation."""
    inside = rate * model.service_s
    return math.ceil(round((inside + LEVEL_Z * math.sqrt(ahead.dispersion * inside)) / model.concurrency, 6))


def trusted_again(learned: Learned, seconds: float) -> Learned:
    """What was found out about replicas' efficiency is forgotten over hours: requests and pods change."""
    if learned.efficiency == 1.0:
        return learned
    back = 1 - math.exp(-seconds / EFFICIENCY_RETURNS_S)
    return replace(learned, efficiency=min(1.0, learned.efficiency + back * (1 - learned.efficiency)))


def learn_equipment(learned: Learned, heard: tuple[LoadReport, ...], sums: Sums) -> Learned:
    """What the pods say of themselves, in the middle of them, and what the mean request is."""
    told = sorted(
        (load for load in heard if load.step_model is not None and load.step_model.error <= MOST_STEP_ERROR),
        key=lambda load: (load.step_model.a + 32 * load.step_model.b, load.boot) if load.step_model else (0.0, ""),
    )
    if told:
        middle = told[len(told) // 2]
        assert middle.step_model is not None
        equipment = Equipment(
            step=middle.step_model,
            slots=max(1, min(load.slots for load in told)),
            kv_tokens=min(load.kv_blocks.total * load.kv_blocks.size for load in told),
        )
        learned = replace(learned, equipment=equipment)
    if sums.ended >= FEWEST_ENDED and sums.started > 0 and sums.running_seconds > 0:
        size = RequestSize(
            prompt_tokens=sums.prompt_tokens / sums.started,
            output_tokens=max(1.0, sums.output_tokens / sums.ended),
            kv_tokens=sums.kv_token_seconds / sums.running_seconds,
        )
        learned = replace(learned, size=size)
    return learned
