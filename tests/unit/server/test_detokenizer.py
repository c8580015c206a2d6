"""Text that is sent token by token is the text of the whole, without halves of characters or of stop strings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_engine.server.detokenizer import Detokenizer, StopMatcher

BYTES = [bytes([value]) for value in range(256)]


def pieces_of(text: str, stops: list[str], cuts: list[int]) -> tuple[str, bool, list[str]]:
    matcher, sent, start = StopMatcher(stops), [], 0
    for size in [*cuts, len(text)]:
        piece, start = text[start : start + size], start + size
        sent.append(matcher.push(piece))
        if matcher.matched:
            break
    if not matcher.matched:
        sent.append(matcher.flush())
    return "".join(sent), matcher.matched, sent


@given(st.binary(max_size=64))
def test_any_bytes_become_what_decoding_them_at_once_gives_but_for_a_half_at_the_end(raw: bytes) -> None:
    detokenizer = Detokenizer(BYTES)
    text = "".join(detokenizer.push(value) for value in raw)
    whole = raw.decode("utf-8", "replace")
    assert whole.startswith(text)
    assert set(whole[len(text) :]) <= {"\ufffd"}


@given(st.text(max_size=40))
def test_text_cut_into_bytes_comes_back_without_replacement_characters(text: str) -> None:
    detokenizer = Detokenizer(BYTES)
    pieces = [detokenizer.push(value) for value in text.encode()]
    assert "".join(pieces) == text
    assert "\ufffd" in text or not any("\ufffd" in piece for piece in pieces)


def test_an_emoji_over_four_tokens_arrives_with_the_fourth() -> None:
    detokenizer = Detokenizer(BYTES)
    assert [detokenizer.push(value) for value in "😀".encode()] == ["", "", "", "😀"]


def test_an_id_beyond_the_tokenizer_has_no_text() -> None:
    assert Detokenizer(BYTES).push(256) == ""


@pytest.mark.parametrize(
    ("text", "stops", "sent", "matched"),
    [
        pytest.param("hello", [], "hello", False, id="nothing to look for"),
        pytest.param("one END two", ["END"], "one ", True, id="the stop string and what follows it are left out"),
        pytest.param("one EN", ["END"], "one EN", False, id="a beginning that never became a stop string is text"),
        pytest.param("aab", ["ab"], "a", True, id="a stop string after its own first letter"),
        pytest.param("abcd", ["abcd", "bc"], "a", True, id="the stop string that ends first wins"),
        pytest.param("xyz", ["yz", "xyz"], "", True, id="of two that end together the longer wins"),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_a_stop_string_wherever_the_text_is_cut(
    text: str, stops: list[str], sent: str, matched: bool, size: int
) -> None:
    found, stopped, _ = pieces_of(text, stops, [size] * (len(text) // size + 1))
    assert (found, stopped) == (sent, matched)


@given(
    st.text("ab", max_size=30),
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3),
    st.lists(st.integers(1, 6), max_size=30),
)
def test_how_the_text_was_cut_changes_nothing(text: str, stops: list[str], cuts: list[int]) -> None:
    found, matched, _ = pieces_of(text, stops, cuts)
    assert (found, matched) == pieces_of(text, stops, [1] * len(text))[:2]
    assert not any(stop in found for stop in stops)


@given(st.text("abc", max_size=30), st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3))
def test_no_more_is_held_back_than_a_stop_string_may_still_need(text: str, stops: list[str]) -> None:
    matcher, sent = StopMatcher(stops), ""
    for position, character in enumerate(text):
        sent += matcher.push(character)
        if matcher.matched:
            return
        held = text[len(sent) : position + 1]
        assert held == "" or any(stop.startswith(held) and stop != held for stop in stops)


def test_a_stop_string_is_kept_where_the_client_asks_for_it() -> None:
    matcher = StopMatcher(["END"], include=True)
    assert [matcher.push(piece) for piece in ("one E", "ND two")] == ["one ", "END"]
