"""What a cron expression means, and which are refused in which words."""

from __future__ import annotations

import re
from datetime import date

import pytest
from tidegate_operator.resource import UnreadableSpec, parse_cron, read_spec


@pytest.mark.parametrize(
    ("text", "minutes", "hours"),
    [
        pytest.param("0 8 * * *", (0,), (8,), id="a time"),
        pytest.param("*/20 8-10 * * *", (0, 20, 40), (8, 9, 10), id="steps and a range"),
        pytest.param("5,35 8-16/4 * * *", (5, 35), (8, 12, 16), id="a list, and steps in a range"),
        pytest.param("50/5 0 * * *", (50, 55), (0,), id="steps from a number on"),
    ],
)
def test_times_of_day(text: str, minutes: tuple[int, ...], hours: tuple[int, ...]) -> None:
    cron = parse_cron(text)
    assert (cron.minutes, cron.hours) == (minutes, hours)


@pytest.mark.parametrize(
    ("text", "days"),
    [
        pytest.param("0 0 * * mon-fri", [2, 3, 4, 5, 6, 9, 10], id="by name"),
        pytest.param("0 0 * * 7", [1, 8], id="Sunday is 7"),
        pytest.param("0 0 * * SUN", [1, 8], id="Sunday is a name in any case"),
        pytest.param("0 0 1,3 * *", [1, 3], id="days of the month"),
        pytest.param("0 0 3 * mon", [2, 3, 9], id="both days given: either is enough"),
        pytest.param("0 0 */2 * mon", [9], id="a star with steps is a star: both must fit"),
        pytest.param("0 0 * feb *", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10], id="a month by name"),
        pytest.param("0 0 * 3-12 *", [], id="other months"),
    ],
)
def test_days_of_the_first_ten_of_february_2026(text: str, days: list[int]) -> None:
    assert [d for d in range(1, 11) if parse_cron(text).on(date(2026, 2, d))] == days


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("0 8 * *", "write minute, hour, day of month, month and day of week", id="four fields"),
        pytest.param("@daily", "is no cron expression", id="a nickname"),
        pytest.param("60 8 * * *", "'60' is no minute; write 0 to 59", id="a minute too late"),
        pytest.param("0 8-6 * * *", "'8-6' is no hour", id="a range backwards"),
        pytest.param("0 8 0 * *", "'0' is no day of month", id="a day zero"),
        pytest.param("0 8 * mon *", "'mon' is no month", id="a weekday for a month"),
        pytest.param("*/0 8 * * *", "'*/0' is no minute", id="steps of nothing"),
        pytest.param("0 8 31 2,4 *", "never comes", id="a day that such months have not got"),
        pytest.param("0 8 * * ²", "'²' is no day of week", id="a digit that is no number"),
    ],
)
def test_refused(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        parse_cron(text)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("cron", "0 25 * * *", "spec.scaling.schedules.0.cron: '25' is no hour"),
        ("timeZone", "Mars/Olympus", "spec.scaling.schedules.0.timeZone: 'Mars/Olympus' is no time zone"),
        ("timeZone", "../etc", "'../etc' is no time zone"),
    ],
)
def test_a_spec_that_got_past_admission_names_the_field(field: str, value: str, words: str) -> None:
    schedule = {"name": "day", "cron": "0 8 * * *", "duration": "1h", "minReplicas": 2} | {field: value}
    with pytest.raises(UnreadableSpec) as refused:
        read_spec({"model": {"source": "pvc://m/m.gguf"}, "scaling": {"maxReplicas": 3, "schedules": [schedule]}})
    assert words in str(refused.value)
