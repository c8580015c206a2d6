"""What a client is told when a request is refused or fails; the shape is OpenAI's."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class ErrorDetail(msgspec.Struct, frozen=True):
    """The inside of OpenAI's error object."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(msgspec.Struct, frozen=True):
    """OpenAI's error object."""

    error: ErrorDetail


class ApiError(Exception):
    """A request ends here with this status. `param` names the field at fault; the message says what to do about it."""

    status = 500
    type = "server_error"
    code: str | None = None

    def __init__(self, message: str, param: str | None = None, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.headers = dict(headers or {})

    def body(self) -> bytes:
        """The error as JSON."""
        return msgspec.json.encode(ErrorBody(ErrorDetail(self.message, self.type, self.param, self.code)))


class InvalidRequest(ApiError):
    """The request has to be changed before it is sent again."""

    status = 400
    type = "invalid_request_error"


class UnknownModel(InvalidRequest):
    """The name asked for is not served here."""

    status = 404
    code = "model_not_found"


class TooLarge(InvalidRequest):
    """The body is over the limit."""

    status = 413


class DeadlineExceeded(ApiError):
    """The time that the client gave is over. OpenAI's clients are told not to ask again by themselves."""

    status = 504
    type = "timeout_error"
    code = "deadline_exceeded"

    def __init__(self, message: str) -> None:
        super().__init__(message, param="deadline_s", headers={"X-Should-Retry": "false"})


class Overloaded(ApiError):
    """As many requests run and wait as may; the same request is welcome later."""

    status = 429
    type = "rate_limit_error"
    code = "queue_full"

    def __init__(self, message: str, retry_after: int) -> None:
        super().__init__(message, headers={"Retry-After": str(retry_after)})


class Unavailable(ApiError):
    """No answer is possible now: the model is loading, or the engine is ending."""

    status = 503
    type = "service_unavailable"

    def __init__(self, message: str, retry_after: int = 1) -> None:
        super().__init__(message, headers={"Retry-After": str(retry_after)})
