"""Schedules and budgets at the API server: what is refused, in which words, and what is accepted."""

from __future__ import annotations

from typing import Any

import pytest
from admission import SOURCE, bad, refusal, scaling
from real_cluster import Json, RealCluster

pytestmark = pytest.mark.cluster


def at_eight(**fields: Any) -> Json:
    """Scaling with one schedule; None leaves a field out."""
    schedule = {"name": "day", "cron": "0 8 * * mon-fri", "duration": "10h", "minReplicas": 2} | fields
    return scaling(schedules=[{key: value for key, value in schedule.items() if value is not None}])


def cost(budget: float, price: float = 2.5) -> Json:
    return {"perReplicaHour": price, "maxPerHour": budget}


WRONG = [
    bad(
        "a cron expression of six fields",
        "spec.scaling.schedules[0].cron: Invalid value: \"0 0 8 * * 1\": '0 0 8 * * 1' is no cron expression; write "
        "minute, hour, day of month, month and day of week, one space apart, as in 0 8 * * mon-fri",
        scaling=at_eight(cron="0 0 8 * * 1"),
    ),
    bad(
        "a schedule at minute 60",
        "spec.scaling.schedules[0].cron: Invalid value: \"60 8 * * *\": '60' is no minute; write 0 to 59, a list, a "
        "range or */STEP",
        scaling=at_eight(cron="60 8 * * *"),
    ),
    bad("a schedule at 24 o'clock", "'24' is no hour; write 0 to 23", scaling=at_eight(cron="0 24 * * *")),
    bad("a 32nd", "'32' is no day of month; write 1 to 31", scaling=at_eight(cron="0 8 32 * *")),
    bad("a 13th month", "'1,13' is no month; write 1 to 12, or jan to dec", scaling=at_eight(cron="0 8 1 1,13 *")),
    bad("a day in German", "'mo' is no day of week; write 0 to 7, or sun to sat", scaling=at_eight(cron="0 8 * * mo")),
    bad("a time zone that is none", "Europe/Berlinn", scaling=at_eight(timeZone="Europe/Berlinn")),
    bad(
        "a schedule longer than a week",
        "spec.scaling.schedules[0].duration: Invalid value: \"169h\": '169h' is no duration of up to a week; write one "
        "like 90m or 10h",
        scaling=at_eight(duration="169h"),
    ),
    bad(
        "a schedule that changes nothing",
        "a schedule without minReplicas and maxReplicas changes nothing; set one of them",
        scaling=at_eight(minReplicas=None),
    ),
    bad(
        "a schedule over the most replicas",
        "spec.scaling.schedules: Invalid value: the minReplicas of schedule day is more than maxReplicas 3; raise the "
        "latter, or give the schedule a maxReplicas of its own",
        scaling=at_eight(minReplicas=4),
    ),
    bad(
        "a schedule under the fewest replicas",
        "the maxReplicas of schedule day is less than minReplicas 2; lower the latter, or raise the former",
        scaling=at_eight(minReplicas=None, maxReplicas=1) | {"minReplicas": 2},
    ),
    bad(
        "a budget that does not pay for the fewest replicas",
        "spec.cost.maxPerHour: Invalid value: 8 an hour does not pay for minReplicas 4 at 2.5 each, which is 10; raise "
        "the budget or lower minReplicas",
        scaling={"minReplicas": 4, "maxReplicas": 9},
        cost=cost(8),
    ),
    bad(
        "a budget that does not pay for a schedule",
        "spec.cost.maxPerHour: Invalid value: 4 an hour does not pay for the minReplicas of schedule day at 2.5 each; "
        "raise the budget or lower that minReplicas",
        scaling=at_eight(),
        cost=cost(4),
    ),
    bad(
        "a budget beside a fixed number",
        "spec.cost.maxPerHour: Invalid value: without scaling the number of replicas is fixed, and no budget can lower "
        "it; set scaling, or leave maxPerHour out",
        cost=cost(8),
    ),
    bad(
        "a budget of what costs nothing",
        "with perReplicaHour 0 nothing is ever spent; set what a replica costs",
        scaling=scaling(),
        cost=cost(8, price=0),
    ),
]


@pytest.mark.parametrize(("spec", "message"), WRONG)
def test_a_mistake_is_refused_in_words_that_name_the_value_and_the_remedy(
    kind: RealCluster, spec: Json, message: str
) -> None:
    assert message in refusal(kind, spec)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"scaling": at_eight(cron="*/15 8-18/2 1,15 JAN-jun 1-5")}, id="a schedule with every form"),
        pytest.param({"scaling": at_eight(timeZone="America/St_Johns")}, id="a schedule in a time zone"),
        pytest.param({"scaling": at_eight(minReplicas=9, maxReplicas=12)}, id="a schedule with bounds of its own"),
        pytest.param(
            {"replicas": 1, "cost": cost(9), "scaling": {"mode": "external", "schedules": at_eight()["schedules"]}},
            id="a schedule and a budget for what an outside autoscaler is told",
        ),
        pytest.param({"scaling": scaling(minReplicas=3), "cost": cost(0.3, price=0.1)}, id="a budget to the cent"),
    ],
)
def test_what_is_right_is_accepted(kind: RealCluster, spec: Json) -> None:
    assert refusal(kind, {"model": SOURCE} | spec) == ""
