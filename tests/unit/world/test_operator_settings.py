"""What the operator is told, by flag and by environment, and what it says of a mistake."""

from __future__ import annotations

import pytest
from tidegate_operator.settings import SettingsError, read


def test_flags_win_over_the_environment_and_that_over_defaults() -> None:
    environment = {"TIDEGATE_ENGINE_IMAGE": "a:1", "POD_NAME": "op-1", "POD_NAMESPACE": "there", "POD_IP": "fd00::7"}
    chosen = read(["--engine-image", "b:2", "--scrape-interval=5"], environment)
    assert (chosen.engine_image, chosen.identity, chosen.lease_namespace) == ("b:2", "op-1", "there")
    assert str(chosen.address) == "fd00::7"
    assert (chosen.scrape_interval, chosen.scrape_timeout, chosen.lease_duration) == (5, 1.5, 15)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param([], "--engine-image is not given", id="no engine image"),
        pytest.param(["--engine-image=a", "--scrape-interval=0"], "--scrape-interval", id="an interval of nothing"),
        pytest.param(["--engine-image=a", "--log-level=loud"], "--log-level", id="a level there is not"),
        pytest.param(["--engine-image=a", "--lease-duration=x"], "--lease-duration", id="a duration that is no number"),
        pytest.param(["--engine-image=a", "--address=here"], "--address", id="an address that is a name"),
        pytest.param(["--engine-image=a", "--metrics-port=70000"], "--metrics-port", id="a port there is not"),
    ],
)
def test_a_mistake_is_one_line_that_names_the_flag(arguments: list[str], says: str) -> None:
    with pytest.raises(SettingsError) as raised:
        read(arguments, {})
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_flag_there_is_not_ends_the_process(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read(["--engine-image=a", "--namespaces=x"], {})
    assert ended.value.code == 2
    assert "--namespaces" in capsys.readouterr().err
