"""What the API answers when it does not do what was asked: a status and one sentence."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException

from adadino.errors import AdaDINOError, ConfigError, InputError, WriteError
from adadino.web.jobs.store import JobGoneError

_log = logging.getLogger(__name__)


class Problem(BaseModel):
    """Why it was not done, and the way out."""

    error: str = Field(examples=["there is no such job; it may have been removed."])


class RefusedError(Exception):
    """A request that is not served."""

    def __init__(self, status: int, sentence: str, *, retry_s: int | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.retry_s = status, sentence, retry_s


def disk_problem(error: BaseException) -> RefusedError:
    """What to answer when the server could not write; where it tried is nobody's business."""
    cause = error if isinstance(error, OSError) else error.__cause__
    why = getattr(cause, "strerror", None) or "its disk may be full"
    _log.warning("%s", error)
    return RefusedError(
        507, f"the server cannot store it ({why}); remove jobs, or ask who runs the server."
    )


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problems of a route, for its documentation."""
    return {status: {"model": Problem, "description": _MEANINGS[status]} for status in statuses}


_MEANINGS = {
    400: "The request cannot be read.",
    403: "The request is another's, or from another site.",
    404: "There is no such thing, or no more.",
    405: "The path has other methods.",
    408: "The client sent nothing for too long.",
    409: "The job is not that far, or has already ended.",
    411: "The request does not say how long it is.",
    413: "The request is larger than this server takes.",
    415: "The content is of another type than this path takes.",
    422: "A value is out of its range, or the images cannot be compared.",
    429: "Too many jobs wait; `Retry-After` says when to come back.",
    503: "The server is busy; `Retry-After` says when to come back.",
    507: "The server's disk is full, or holds as many jobs as it keeps.",
}


_ROUTER = {
    404: "there is nothing at this path; /api/docs has those there are.",
    405: "this path has other methods; /api/docs has them.",
}


def answer(status: int, sentence: str) -> JSONResponse:
    """The response."""
    return JSONResponse({"error": sentence}, status_code=status)


async def on_refused(_: Request, error: Exception) -> JSONResponse:
    """A refusal of our own."""
    assert isinstance(error, RefusedError)
    response = answer(error.status, error.sentence)
    if error.retry_s is not None:
        response.headers["retry-after"] = str(error.retry_s)
    return response


async def on_error(request: Request, error: Exception) -> JSONResponse:
    """Our typed errors; their sentences are written for people."""
    if isinstance(error, JobGoneError):
        return answer(404, str(error))
    if isinstance(error, WriteError):
        return await on_refused(request, disk_problem(error))
    status = 422 if isinstance(error, InputError | ConfigError) else 500
    return answer(status, str(error))


async def on_http(_: Request, error: Exception) -> JSONResponse:
    """What the router says: no such path, no such method."""
    assert isinstance(error, HTTPException)
    sentence = _ROUTER.get(error.status_code, str(error.detail))
    response = answer(error.status_code, sentence)
    response.headers.update(error.headers or {})
    return response


async def on_invalid(_: Request, error: Exception) -> JSONResponse:
    """A parameter that is not what the documentation says."""
    assert isinstance(error, RequestValidationError)
    return answer(422, first_problem(error, skip=1))  # "query", "path"


def first_problem(error: ValidationError | RequestValidationError, *, skip: int = 0) -> str:
    """What is wrong with the first value that is."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"][skip:])) or "the request"
    return f"{where}: {first['msg']}."


HANDLERS: dict[int | type[Exception], Any] = {
    RefusedError: on_refused,
    AdaDINOError: on_error,
    HTTPException: on_http,
    RequestValidationError: on_invalid,
}
