"""When schedules begin, against walking through every minute with the zone's own clock; days of clock changes too."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tidegate_operator.decide.scaling_policy import Schedule
from tidegate_operator.decide.schedule import is_active, next_start, starts
from tidegate_operator.resource import parse_cron

DAY_S = 86_400
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kolkata")
# In 2026 clocks change on 8 March and 1 November (New York), 29 March and 25 October (Berlin), 5 April (Lord Howe).
BEGINNINGS = tuple(
    int(datetime(2026, month, day, tzinfo=UTC).timestamp())
    for month, day in ((1, 15), (3, 7), (3, 28), (4, 4), (10, 3), (10, 24), (10, 31), (2, 27))
)


def schedule(cron: str, zone: str, duration_s: float = 3600.0) -> Schedule:
    return Schedule(name="s", cron=parse_cron(cron), time_zone=zone, duration_s=duration_s, minimum=2)


def fields() -> st.SearchStrategy[str]:
    minute = st.sampled_from(["0", "30", "*/20", "5,55"])
    hour = st.sampled_from(["*", "0", "2", "1-3", "*/6", "23"])
    day = st.sampled_from(["*", "1", "*/2", "28,29"])
    weekday = st.sampled_from(["*", "sun", "mon-fri", "6"])
    return st.builds(lambda m, h, d, w: f"{m} {h} {d} * {w}", minute, hour, day, weekday)


@settings(max_examples=60, deadline=None)
@given(cron=fields(), zone=st.sampled_from(ZONES), begins=st.sampled_from(BEGINNINGS))
@example(cron="0 * * * *", zone="Australia/Lord_Howe", begins=BEGINNINGS[4])
def test_every_wall_time_that_fits_begins_once_and_nothing_else_does(cron: str, zone: str, begins: int) -> None:
    asked = schedule(cron, zone)
    found = sorted(starts(asked, begins, begins + 3 * DAY_S))
    fitting, walked = [], set()
    for at in range(begins + 60, begins + 3 * DAY_S + 1, 60):
        wall = datetime.fromtimestamp(at, ZoneInfo(zone))
        if asked.cron.on(wall.date()) and wall.hour in asked.cron.hours and wall.minute in asked.cron.minutes:
            second_time = wall.fold == 1
            if not second_time or asked.cron.every_hour:
                fitting.append(float(at))
        walked.add(wall.replace(tzinfo=None))
    assert set(fitting) <= set(found)
    for extra in set(found) - set(fitting):
        # Only a wall time that the clock skipped may begin at another: as much later as the clock jumped.
        before, after = (datetime.fromtimestamp(extra + s, ZoneInfo(zone)).utcoffset() for s in (-7200, 0))
        assert before is not None
        assert after is not None
        assert after > before
        skipped = datetime.fromtimestamp(extra, UTC).replace(tzinfo=None) + before
        assert skipped not in walked


@settings(max_examples=60, deadline=None)
@given(
    cron=fields(),
    zone=st.sampled_from(ZONES),
    begins=st.sampled_from(BEGINNINGS),
    after=st.integers(0, 2 * DAY_S),
    duration=st.integers(60, 7 * DAY_S),
    early=st.integers(0, 600),
)
def test_active_from_early_before_a_beginning_until_its_end(
    cron: str, zone: str, begins: int, after: int, duration: int, early: int
) -> None:
    asked, now = schedule(cron, zone, float(duration)), float(begins + after)
    begun = [at for at in starts(asked, now - 9 * DAY_S, now + DAY_S) if at - early <= now < at + duration]
    assert is_active(asked, now, float(early)) == bool(begun)


@settings(max_examples=40, deadline=None)
@given(cron=fields(), zone=st.sampled_from(ZONES), begins=st.sampled_from(BEGINNINGS))
def test_the_next_beginning_is_the_first_of_all_that_come(cron: str, zone: str, begins: int) -> None:
    asked = schedule(cron, zone)
    assert next_start(asked, begins, 20 * DAY_S) == min(starts(asked, begins, begins + 20 * DAY_S), default=None)
