"""What the yardstick hears from a worker, and what it makes of one that ends."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tidegate_bench.messages import Advance, Close, Hello, Open, Prompt, Reply, Task, Timing, decode, encode
from tidegate_bench.worker_process import Worker, WorkerFailed

SCRIPTED = """
import sys
from tidegate_bench.messages import Hello
from tidegate_bench.workers.serve import serve

class Scripted:
    def hello(self): return Hello("scripted", 10, "none", 0, 0)
    def prompt(self, ids):
        print("a library that prints")
        return len(ids)
    def open(self, prompts, new_tokens): raise MemoryError("no room for that")
    def advance(self, steps): return steps
    def close(self): pass

if "refuse" in sys.argv: sys.exit("this model is not for me")
serve(Scripted)
"""


def worker(folder: Path, *arguments: str) -> Worker:
    (folder / "scripted_worker.py").write_text(SCRIPTED)
    return Worker(Path(sys.executable), "scripted_worker", arguments, [folder])


@pytest.mark.parametrize(
    "message",
    [
        Prompt([1, 2]),
        Open([[1], [2]], 8),
        Advance(3),
        Close(),
        Hello("peer", 10, "avx2", 1, 2),
        Timing(3, 0.5, 1.0, 0.0),
    ],
    ids=lambda message: type(message).__name__,
)
def test_a_message_comes_out_as_it_went_in(message: Task | Reply) -> None:
    assert decode(encode(message)) == message
    assert "\n" not in encode(message)


def test_a_worker_answers_with_what_its_tasks_took(tmp_path: Path) -> None:
    with worker(tmp_path) as asked:
        assert asked.hello.name == "scripted"
        found = asked.ask(Prompt([1, 2, 3]))
        assert found.tokens == 3
        assert 0 <= found.cpu <= found.wall + 0.1
        assert asked.ask(Advance(4)).tokens == 4


def test_a_worker_that_fails_ends_the_run_with_its_reason(tmp_path: Path) -> None:
    with worker(tmp_path) as asked, pytest.raises(WorkerFailed, match="MemoryError: no room for that"):
        asked.ask(Open([[1]], 1))


def test_a_worker_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(WorkerFailed, match="this model is not for me"), worker(tmp_path, "refuse"):
        pass
