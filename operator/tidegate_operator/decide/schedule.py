"""Known peaks: the bounds that hold at a time. Capacity is up before a peak, by the cold start that was learned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from tidegate_operator.decide.scaling_policy import ScalingPolicy, Schedule

_HOUR_S = 3600.0
_LONGEST_SHIFT_S = 2 * _HOUR_S
"""No clock is put forward or back by more."""


def scheduled(policy: ScalingPolicy, cold_start_s: float, now: float) -> ScalingPolicy:
    """The policy with the bounds of the schedules that are active. The highest counts, and a minimum more than a
    maximum. A minimum holds from one cold start before its time, a maximum from its time on."""
    for schedule in policy.schedules:
        least = schedule.minimum or 0
        if least > policy.minimum and is_active(schedule, now, cold_start_s):
            policy = replace(policy, minimum=least, minimum_by=f"schedule {schedule.name}")
    active = [s for s in policy.schedules if s.maximum is not None and is_active(s, now)]
    if active:
        widest = max(active, key=lambda s: s.maximum or 0)
        policy = replace(policy, maximum=widest.maximum or 1, maximum_by=f"schedule {widest.name}")
    if policy.maximum < policy.minimum:
        policy = replace(policy, maximum=policy.minimum, maximum_by=policy.minimum_by)
    return policy


def is_active(schedule: Schedule, now: float, early_s: float = 0.0) -> bool:
    """Whether it has begun, or begins within `early_s` seconds, and has not ended."""
    return next(starts(schedule, now - schedule.duration_s, now + early_s), None) is not None


def starts(schedule: Schedule, after: float, until: float) -> Iterator[float]:
    """The beginnings later than `after` and not later than `until`, seconds since the epoch, newest day first.

    A wall time that a clock skips comes as much later as the clock jumps; one that comes twice counts once, or both
    times where every hour is asked for.
    """
    zone = ZoneInfo(schedule.time_zone)
    day = datetime.fromtimestamp(until, zone).date() + timedelta(days=1)
    earliest = datetime.fromtimestamp(after, zone).date() - timedelta(days=1)
    while day >= earliest:
        if schedule.cron.on(day):
            yield from (at for at in _times(schedule, day, zone, after, until) if after < at <= until)
        day -= timedelta(days=1)


def next_start(schedule: Schedule, now: float, within_s: float) -> float | None:
    """The first beginning after `now`, seconds since the epoch; None: none within `within_s`."""
    day_s, after = 24 * _HOUR_S, now
    while after < now + within_s:
        until = min(after + 7 * day_s, now + within_s)
        found = min(starts(schedule, after, until), default=None)
        if found is not None:
            return found
        after = until
    return None


def _times(schedule: Schedule, day: date, zone: ZoneInfo, after: float, until: float) -> Iterator[float]:
    for hour in reversed(schedule.cron.hours):
        begins = datetime(day.year, day.month, day.day, hour, tzinfo=zone).timestamp()
        if begins > until + _LONGEST_SHIFT_S or begins + _HOUR_S + _LONGEST_SHIFT_S < after:
            continue
        for minute in reversed(schedule.cron.minutes):
            at = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
            again = at.replace(fold=1)
            # In an hour that is skipped the two readings differ too, the other way round; there it comes once.
            if schedule.cron.every_hour and again.timestamp() > at.timestamp():
                yield again.timestamp()
            yield at.timestamp()
