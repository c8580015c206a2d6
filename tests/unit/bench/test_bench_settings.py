"""The yardstick's command line."""

from __future__ import annotations

from pathlib import Path

import pytest
from tidegate_bench.llama_cpp_environment import environment
from tidegate_bench.settings import KEYS, parse_settings


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.touch()
    return path


def test_everything_is_measured_unless_some_is_asked_for(model: Path) -> None:
    assert parse_settings(["--model", str(model)]).only == KEYS
    found = parse_settings(["--model", str(model), "--only", "decode_8, prompt"])
    assert found.only == ("prompt", "decode_8")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        pytest.param(["--only", "decode_9"], "decode_9 is no figure", id="a figure there is not"),
        pytest.param(["--only", ","], "nothing is no figure", id="no figure at all"),
        pytest.param(["--rounds", "0"], "'0' is not a whole number of 1 or more", id="no rounds"),
        pytest.param(["--model", "nowhere.gguf"], "nowhere.gguf: no such file", id="no model"),
    ],
)
def test_a_wrong_flag_is_named_with_its_value(
    model: Path, flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        parse_settings(["--model", str(model), *flags])
    assert end.value.code == 2
    assert said in capsys.readouterr().err


def test_a_peer_built_for_other_instructions_is_another_environment(tmp_path: Path) -> None:
    assert environment(tmp_path, ["avx2"]) != environment(tmp_path, ["avx2", "avx512f"])
    assert environment(tmp_path, ["avx2"]) == environment(tmp_path, ["avx2"])
