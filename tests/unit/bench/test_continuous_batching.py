"""The peer's driver: what llama-server would do, on a scripted model and clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_bench.workers.continuous_batching import serve_all


class Scripted:
    """Answers every wanted row, takes a second a step, and refuses what a real context would refuse."""

    def __init__(self, room: int, slots: int) -> None:
        self.time = 0.0
        self.room, self.slots = room, slots
        self.lengths: dict[int, int] = {}
        self.steps: list[list[tuple[int, int, int, bool]]] = []
        self.removed = 0

    def decode(self, tokens: list[tuple[int, int, int, bool]]) -> list[int]:
        assert 0 < len(tokens) <= self.room
        for _, position, sequence, _ in tokens:
            assert 0 <= sequence < self.slots
            assert position == self.lengths.get(sequence, 0), "a sequence's tokens come in order, without a gap"
            self.lengths[sequence] = position + 1
        self.steps.append(tokens)
        self.time += 1.0
        return [7 for *_, wanted in tokens if wanted]

    def remove(self, sequence: int) -> None:
        del self.lengths[sequence]
        self.removed += 1

    def now(self) -> float:
        return self.time

    def wait(self, seconds: float) -> None:
        assert seconds > 0
        self.time += seconds


REQUESTS = st.lists(st.tuples(st.integers(1, 30), st.integers(1, 12)), min_size=1, max_size=12)


@given(sizes=REQUESTS, room=st.integers(1, 20), slots=st.integers(1, 5), gap=st.floats(0, 20))
def test_every_request_gets_all_its_tokens_in_whatever_room(
    sizes: list[tuple[int, int]], room: int, slots: int, gap: float
) -> None:
    model = Scripted(room, slots)
    requests = [([1] * prompt, wanted) for prompt, wanted in sizes]
    arrivals = [gap * number for number in range(len(requests))]
    course = serve_all(model, requests, arrivals, slots, room, model.now, model.wait)
    assert model.removed == len(requests)
    # The last token of an answer is never computed with.
    assert sum(map(len, model.steps)) == sum(prompt + wanted - 1 for prompt, wanted in sizes)
    assert all(0 < first <= last for first, last in zip(course.first, course.last, strict=True))


def test_those_that_generate_come_before_prompts_and_prompts_fill_what_is_left() -> None:
    model = Scripted(room=4, slots=2)
    serve_all(model, [([1, 2], 3), ([3] * 6, 1)], [0.0, 0.0], 2, 4, model.now, model.wait)
    shapes = [[(sequence, position) for _, position, sequence, _ in step] for step in model.steps]
    assert shapes == [
        [(0, 0), (0, 1), (1, 0), (1, 1)],
        [(0, 2), (1, 2), (1, 3), (1, 4)],
        [(0, 3), (1, 5)],
    ]


def test_time_to_the_first_token_counts_from_the_arrival() -> None:
    model = Scripted(room=8, slots=1)
    course = serve_all(model, [([1], 2), ([1], 1)], [10.0, 10.5], 1, 8, model.now, model.wait)
    assert course.first == pytest.approx([1.0, 2.5])  # the second waits for the only slot
    assert course.last == pytest.approx([2.0, 2.5])
    assert course.wall == pytest.approx(13.0)
