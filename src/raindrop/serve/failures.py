"""Errors of requests: a status, a code for programs, and a message for people. Never a traceback."""

from __future__ import annotations

from raindrop.errors import ConfigError, DataError, RaindropError, describe_failure, printable

STATUS = {
    "bad_request": 400,
    "unauthorised": 401,
    "forbidden": 403,
    "not_found": 404,
    "method_not_allowed": 405,
    "slow_client": 408,
    "not_served": 409,
    "too_large": 413,
    "unsupported_format": 415,
    "unusable_data": 422,
    "busy": 429,
    "headers_too_large": 431,
    "internal": 500,
    "not_ready": 503,
    "too_slow": 504,
    "no_space": 507,
}
"""The HTTP status of each code."""


class RequestError(Exception):
    """An error response to a request."""

    def __init__(self, code: str, message: str, *, retry_after: int | None = None):
        super().__init__(message)
        self.code, self.message, self.retry_after = code, printable(message), retry_after

    @property
    def status(self) -> int:
        """The HTTP status."""
        return STATUS[self.code]


INTERNAL = "The service failed on this request; it was not answered. The log names the place in the code."


def as_request_error(error: BaseException) -> RequestError:
    """The error sent to a client for any exception; internal details are left out."""
    if isinstance(error, RequestError):
        return error
    if isinstance(error, DataError):
        return RequestError("unusable_data", str(error))
    if isinstance(error, ConfigError):
        return RequestError("bad_request", str(error))
    if isinstance(error, RaindropError):
        return RequestError("internal", INTERNAL)
    if isinstance(error, OSError):  # its message contains a local path
        return RequestError("internal", INTERNAL)
    sentence = describe_failure(error)
    if sentence is not None:
        return RequestError("unusable_data", sentence)
    return RequestError("internal", INTERNAL)


def place_of(error: BaseException) -> str:
    """Where an exception was raised: type, file and line, without its message, which may contain values or ids."""
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    if step is None:
        return type(error).__name__
    code = step.tb_frame.f_code
    file = code.co_filename.replace("\\", "/").rsplit("/", 2)
    return f"{type(error).__name__} in {'/'.join(file[-2:])}:{step.tb_lineno} ({code.co_name})"
