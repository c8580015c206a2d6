"""What a grammar lets an answer say, and that looking ahead, taking back and copying leave it as it was."""

from __future__ import annotations

import pytest
import torch
from byte_vocabulary import END, OTHER_END, SIZE, allowed, constraint, regex, schema
from tidegate_engine.core.request import FinishReason, SamplingParams
from tidegate_engine.core.scheduler import Batch, Work
from tidegate_engine.core.sequence import Sequence
from tidegate_engine.kernels.bitmask import forbid
from tidegate_engine.runtime.constraints import ConstraintBroken
from tidegate_engine.runtime.sampler import Sampler


def ids(text: str) -> list[int]:
    return list(text.encode())


@pytest.mark.parametrize(
    ("grammar", "said", "follows"),
    [
        pytest.param(regex("ab|cd"), "", "ac", id="a choice of two"),
        pytest.param(regex("ab|cd"), "a", "b", id="the rest is forced"),
        pytest.param(regex("ab|cd"), "ab", "$$", id="nothing but the end, in both its forms"),
        pytest.param(regex("a+"), "aa", "a$$", id="more, or the end"),
        pytest.param(regex("é"), "\N{LATIN SMALL LETTER E WITH ACUTE}", "$$", id="a character of two bytes"),
        pytest.param(schema({"type": "object"}), "", "{", id="an object begins with a brace"),
        pytest.param(schema({"enum": [7, "x"]}), "", '"7', id="a value of two"),
        pytest.param(schema({"type": "array", "items": {"const": 1}, "maxItems": 1}), "[1", "]", id="no second item"),
    ],
)
def test_what_may_follow(grammar: str, said: str, follows: str) -> None:
    state = constraint(grammar)
    state.advance(ids(said))
    assert allowed(state) == follows


def test_looking_ahead_leaves_the_state_alone() -> None:
    state = constraint(regex("ab*c"))
    state.advance(ids("a"))
    assert [allowed(state, ahead) for ahead in ("", "b", "bbc", "c", "ca", "x")] == [
        "bc", "bc", "$$", "$$", "no such guess", "no such guess",
    ]  # fmt: skip
    state.advance(ids("bc"))
    assert allowed(state) == "$$"


def test_tokens_are_taken_back() -> None:
    state = constraint(regex("abc"))
    state.advance(ids("abc"))
    state.rollback(2)
    assert allowed(state) == "b"
    state.advance(ids("bc"))
    assert allowed(state) == "$$"
    with pytest.raises(ConstraintBroken):
        state.rollback(9)


def test_a_copy_goes_its_own_way() -> None:
    state = constraint(regex("ab|ac"))
    state.advance(ids("a"))
    copy = state.fork()
    copy.advance(ids("c"))
    assert (allowed(state), allowed(copy)) == ("bc", "$$")


def test_what_is_not_allowed_breaks_it_for_good() -> None:
    state = constraint(regex("abc"))
    with pytest.raises(ConstraintBroken, match="token 120"):
        state.advance(ids("ax"))


def test_masks_forbid_only_in_their_rows_and_only_what_has_no_bit() -> None:
    logits = torch.arange(3.0).unsqueeze(1).repeat(1, 40)
    masks = torch.tensor([[-(2**31), 1], [5, -1]], dtype=torch.int32)
    forbid(logits, torch.tensor([2, 0]), masks)
    finite = [[token for token in range(40) if logits[row, token] > -torch.inf] for row in range(3)]
    assert finite == [[0, 2, *range(32, 40)], list(range(40)), [31, 32]]
    assert torch.equal(forbid(torch.zeros(1, 40), torch.tensor([0]), masks[:1]).isfinite().sum(), torch.tensor(2))


def work(*numbers: int) -> Batch:
    return Batch(tuple(Work(id, 0, (1,), (0,), samples=True) for id in numbers))


def test_a_row_with_a_grammar_says_what_it_may_and_its_neighbour_what_it_likes() -> None:
    sampler = Sampler()
    sampler.add(1, [1], SamplingParams(9, 0.0, grammar="given"), constraint(regex("[bc]x")))
    sampler.add(2, [1], SamplingParams(9, 0.0))
    table = torch.zeros(2, SIZE)
    table[:, ord("a")] = 2.0
    table[:, ord("c")] = 1.0
    assert sampler.sample(work(1, 2), table.clone()).tokens == [[ord("c")], [ord("a")]]
    sampler.heard(1, [ord("c")])
    assert sampler.sample(work(1, 2), table.clone()).tokens == [[ord("x")], [ord("a")]]


def test_there_are_only_as_many_log_probabilities_as_tokens_are_allowed() -> None:
    sampler = Sampler()
    sampler.add(1, [1], SamplingParams(9, 0.0, logprobs=5, grammar="given"), constraint(regex("[bc]x")))
    found = sampler.sample(work(1), torch.zeros(1, SIZE)).logprobs[0]
    assert found is not None
    assert (sorted(found[0].top_ids), len(found[0].top)) == ([ord("b"), ord("c")], 2)


@pytest.mark.parametrize(
    ("pattern", "said", "expected"),
    [
        pytest.param("a*", "a", ord("a"), id="the end waits while the answer can go on"),
        pytest.param("ab", "ab", END, id="the end comes early where nothing else may follow"),
        pytest.param("a*", "aaaa", END, id="long enough is long enough"),
    ],
)
def test_a_shortest_length_gives_way_to_the_grammar(pattern: str, said: str, expected: int) -> None:
    params = SamplingParams(9, 0.0, min_tokens=4, stop_token_ids=(END, OTHER_END), grammar="given")
    sampler = Sampler()
    sampler.add(1, [1], params, constraint(regex(pattern)))
    sampler.heard(1, ids(said))
    liked = torch.zeros(1, SIZE)
    liked[0, END] = 9.0
    assert sampler.sample(work(1), liked).tokens == [[expected]]
    sequence = Sequence(1, [1, *ids(said)], 1, params, turn=(0, 0))
    assert sequence.append(expected) == (FinishReason.STOP if expected == END else None)


def test_a_grammar_that_breaks_gives_no_token_and_says_why() -> None:
    sampler = Sampler()
    sampler.add(1, [1], SamplingParams(9, 0.0, grammar="given"), constraint(regex("abc")))
    sampler.add(2, [1], SamplingParams(9, 0.0))
    sampler.heard(1, [ord("z")])
    assert "token 122" in sampler.broken[1]
    assert sampler.sample(work(1, 2), torch.zeros(2, SIZE)).tokens == [[], [0]]
    sampler.remove(1)
    assert sampler.broken == {}


def test_a_guess_comes_true_only_where_the_grammar_allows_it_and_the_row_after_it_knows() -> None:
    sampler = Sampler()
    sampler.add(1, [1], SamplingParams(9, 0.0, grammar="given"), constraint(regex("abc|abd")))
    liked = torch.zeros(1, SIZE)
    liked[0, ord("d")] = 2.0
    table = liked.repeat(4, 1)
    guessed = Work(1, 0, (1, *ids("abx")), (0,), samples=True, drafts=3)
    assert sampler.sample(Batch((guessed,)), table.clone()).tokens == [ids("abd")]
    sampler.heard(1, ids("ab"))
    assert sampler.sample(work(1), liked.clone()).tokens == [ids("d")], "the guesses have left no trace"
