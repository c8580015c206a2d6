"""What a run leaves behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tidegate_bench.machine import Machine
from tidegate_bench.messages import Hello, Timing
from tidegate_bench.report import Report, bandwidth_reached
from tidegate_bench.start_time import Starts
from tidegate_bench.turns import Pair, compare

MACHINE = Machine("a processor", ["avx2"], cores=2, load_average=0.0, read_bandwidth=10e9)


def report(others: float = 0.0) -> Report:
    found = Report("model.gguf", MACHINE, 2)
    pair = Pair(Timing(30, 1.0, 2.0, others), Timing(20, 1.0, 2.0, others))
    found.compared("decode_8", compare([pair]), "llama.cpp", {"bandwidth_share": 0.5})
    return found


def test_figures_stand_in_the_file_under_their_keys(tmp_path: Path) -> None:
    path = tmp_path / "build" / "engine.json"
    report().write(path)
    written = json.loads(path.read_text())
    figure = written["decode_8"]
    assert {name: figure[name] for name in ("ours", "peer", "ratio", "peer_name", "unit")} == {
        "ours": 30.0,
        "peer": 20.0,
        "ratio": 1.5,
        "peer_name": "llama.cpp",
        "unit": "tokens/s",
    }
    assert written["machine"]["instruction_sets"] == ["avx2"]


def test_figures_of_a_busy_machine_are_remarked_upon() -> None:
    assert report().remarks == []
    assert "decode_8: others took 1.00 cores" in report(others=1.0).remarks[0]


@pytest.mark.parametrize(
    ("peer", "ratio"), [(30.0, 10.0), (None, None)], ids=["above 1 is better", "no peer, no ratio"]
)
def test_a_start_is_compared_where_there_is_a_peer(peer: float | None, ratio: float | None) -> None:
    found = report()
    found.started(Starts(engine=3.0, import_torch=2.0, ratio=1.5, parts={}), peer, "transformers generate")
    assert found.figures["start"].ratio == ratio
    assert len(found.tables()) == 1


def test_the_share_of_bandwidth_counts_weights_once_and_every_requests_cache() -> None:
    hello = Hello("ours", 10, "", weight_bytes=100_000_000, kv_bytes=1000)
    reached = bandwidth_reached(hello, steps_per_second=25.0, kv_tokens=100_000, machine=MACHINE)
    assert reached["bytes_per_step"] == 200_000_000
    assert reached["bandwidth_share"] == pytest.approx(0.5)
