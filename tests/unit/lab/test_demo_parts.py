"""Parts of the demo that can be asked without a cluster: steps side by side, the objects, the verdict."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from rich.console import Console
from tidegate_lab.demo import objects
from tidegate_lab.demo.burst import Burst, Seen, Verdict
from tidegate_lab.demo.places import choose
from tidegate_lab.demo.shell import Shell, Step, StepFailed
from tidegate_lab.load.report import Report
from tidegate_lab.load.run import Plan
from tidegate_lab.load.stream import Outcome
from tidegate_lab.watch.look import Look


@pytest.fixture
def out() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def shell(out: io.StringIO, tmp_path: Path) -> Shell:
    return Shell(Console(file=out, width=120), tmp_path)


def sh(text: str) -> list[str]:
    return ["sh", "-c", text]


def test_steps_run_side_by_side_and_their_commands_one_after_the_other(shell: Shell, out: io.StringIO) -> None:
    def meets(mine: str, other: str) -> str:
        return f"touch {mine}; timeout 60 sh -c 'until [ -e {other} ]; do sleep 0.01; done'"

    shell.run(
        Step("a", [sh(f"{meets('here', 'there')} && echo one > f"), sh("cat f")]),
        Step("b", [sh(meets("there", "here"))]),
    )
    assert "a: one" in out.getvalue()


def test_a_step_that_fails_ends_the_others_and_says_its_last_lines(shell: Shell) -> None:
    with pytest.raises(StepFailed, match=r"(?s)sh -c .* failed:.*disk is full"):
        shell.run(Step("long", [["sleep", "3600"]]), Step("bad", [sh("echo disk is full >&2; exit 3")]))


def test_a_command_that_cannot_be_read_says_why(shell: Shell) -> None:
    with pytest.raises(StepFailed, match="no such thing"):
        shell.read(sh("echo no such thing >&2; exit 1"))


def test_a_kubeconfig_that_is_not_there_is_said(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMO_KUBECONFIG", "/nowhere/kubeconfig")
    with pytest.raises(StepFailed, match="DEMO_KUBECONFIG=/nowhere/kubeconfig: there is no such file"):
        choose(shell, Path.cwd())


@pytest.mark.parametrize(
    "pod", [objects.load_job("l", "i", {})["spec"]["template"]["spec"], objects.filling_pod("i")["spec"]]
)
def test_the_demos_own_pods_meet_the_level_restricted(pod: objects.Manifest) -> None:
    for container in pod["containers"]:
        context = container["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["allowPrivilegeEscalation"] is False
        assert context["capabilities"] == {"drop": ["ALL"]}
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}


def test_the_load_job_carries_its_own_code_and_a_config_map_can_hold_it() -> None:
    code = objects.load_code()
    assert {"__init__.py", "__main__.py", "command.py", "run.py", "stream.py"} <= set(code["data"])
    assert len(json.dumps(code)) < 100_000  # a ConfigMap holds a mebibyte


def look(desired: int, ready: int) -> Look:
    return Look(
        at_s=0, desired=desired, ready=ready, ready_condition="", waiting=0, running=0, ttft_p99_s=None, reason="",
    )  # fmt: skip


def report(failures: int = 0) -> Report:
    good = [Outcome(n, ttft_s=0.1, e2e_s=0.2, tokens=2, gaps_s=[0.1]) for n in range(3)]
    bad = [Outcome(9, failure="cut_off", detail="the pod went away") for _ in range(failures)]
    return Report.of(Plan(url="http://127.0.0.1", model="m", rate=1.0), good + bad, 1.0)


@pytest.mark.parametrize(
    ("looks", "failures", "expected"),
    [
        pytest.param([(1, 1), (3, 3), (2, 2), (1, 1)], 0, [], id="to three and back without a loss is a success"),
        pytest.param([(1, 1), (2, 2), (1, 1)], 0, ["did not reach 3"], id="two are not three"),
        pytest.param([(1, 1), (3, 2), (1, 1)], 0, ["did not reach 3"], id="three wanted are not three ready"),
        pytest.param([(1, 1), (3, 3), (2, 2)], 0, ["did not come back"], id="two at the end are not back at one"),
        pytest.param([(1, 1), (3, 3), (1, 2)], 0, ["did not come back"], id="one wanted is not one left"),
        pytest.param([(1, 1), (3, 3), (1, 1)], 1, ["1 of 7 requests failed"], id="one lost request is a failure"),
    ],
)
def test_the_verdict_says_each_fault_in_one_line(
    looks: list[tuple[int, int]], failures: int, expected: list[str]
) -> None:
    seen = Seen()
    for desired, ready in looks:
        seen.take(look(desired, ready))
    faults = Verdict(report(), (report(failures),), seen).faults
    assert len(faults) == len(expected)
    assert all(part in fault and "\n" not in fault for part, fault in zip(expected, faults, strict=True))


BURST = Burst(url="http://s", model="m")


@pytest.mark.parametrize("flags", [BURST.measuring(), BURST.high(1.2), BURST.low()], ids=["measuring", "high", "low"])
def test_every_load_is_bounded_in_number_and_time(flags: dict[str, float]) -> None:
    assert 0 < flags["duration"] <= 300
    assert 0 < flags["requests"] <= 5000
    assert 0 < flags["timeout"] <= 180


def test_the_burst_is_more_than_two_replicas_can_serve_in_time_and_less_than_three_can() -> None:
    rate = float(BURST.high(1.2)["rate"])
    assert rate / 1.2 / 2 > 0.8
    assert rate / 1.2 / 3 < 0.7


def test_no_part_of_the_load_repeats_another_ones_prompts() -> None:
    assert len({flags["seed"] for flags in (BURST.measuring(), BURST.high(1.0), BURST.low())}) == 3
