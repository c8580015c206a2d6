"""What an answer of the API server means: by what to do next."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tidegate_operator.errors import Gone, RetryLater, Stall
from tidegate_operator.world.api import NotFound, failure

TERMINATING = {
    "message": "unable to create new content in namespace ns because it is being terminated",
    "reason": "Forbidden",
    "details": {"causes": [{"reason": "NamespaceTerminating"}]},
}


@pytest.mark.parametrize(
    ("status", "answer", "error"),
    [
        pytest.param(404, {"message": "not found"}, NotFound, id="what is not there is for the caller to judge"),
        pytest.param(403, TERMINATING, Gone, id="a namespace that is going away: nothing is left to do"),
        pytest.param(403, {"message": "cannot patch"}, Stall, id="a missing right: a person has to act"),
        pytest.param(422, {"message": "image: required"}, Stall, id="a value that is refused: a person has to act"),
        pytest.param(400, {"message": "unknown field"}, Stall, id="a request that is refused: a person has to act"),
        pytest.param(409, {"message": "modified", "reason": "Conflict"}, RetryLater, id="a conflict: look again"),
        pytest.param(429, {"message": "slow down"}, RetryLater, id="too many requests: later"),
        pytest.param(500, {"message": "etcd"}, RetryLater, id="a failing server: later"),
        pytest.param(401, {"message": "Unauthorized"}, RetryLater, id="an expired token: it is renewed"),
    ],
)
def test_by_what_to_do(status: int, answer: dict[str, Any], error: type[Exception]) -> None:
    raised = failure("patch /x", status, json.dumps(answer).encode())
    assert type(raised) is error
    assert answer["message"] in str(raised)


@pytest.mark.parametrize("text", [b"", b"<html>bad gateway</html>", b"[]"], ids=["nothing", "a proxy's page", "a list"])
def test_an_answer_that_is_not_the_api_servers_is_tried_again(text: bytes) -> None:
    raised = failure("patch /x", 502, text)
    assert isinstance(raised, RetryLater)
    assert "502" in str(raised)
