"""Requests and answers as data, and the errors of failed ones."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx

from .errors import AnswerError, ApiError, UnavailableError, UnknownError, error_of_problem

MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""The size from which an answer is refused."""


@dataclass(frozen=True)
class ApiRequest:
    """A request."""

    method: str
    path: str
    query: Mapping[str, str | int | bool | None] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    is_repeatable: bool = False
    """A repetition has the same effect, also if the first request was executed."""
    wait_secs: float = 0.0
    """The time for which the server holds the answer back."""
    deadline: float | None = None
    """The time after which no further attempt begins."""

    def all_headers(self, token: str) -> list[tuple[bytes, bytes]]:
        headers = {
            "authorization": f"Bearer {token}",
            "accept": "application/json",
            "accept-encoding": "identity",
            **self.headers,
        }
        if self.body is not None:
            headers["content-type"] = "application/json"
        return [(name.encode(), value.encode()) for name, value in headers.items()]

    def params(self) -> dict[str, str]:
        params = {}
        for name, value in self.query.items():
            if value is not None and value is not False:
                params[name] = "true" if value is True else str(value)
        return params

    def content(self) -> bytes | None:
        return None if self.body is None else json.dumps(without_none(self.body)).encode()


@dataclass(frozen=True)
class ApiAnswer:
    """A successful answer."""

    status: int
    headers: httpx.Headers
    body: bytes

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise AnswerError(_foreign(self.status, self.headers, self.body)) from error


def api_path(*parts: str | int) -> str:
    """Returns the path of a route below `/v1`."""
    for part in parts:
        if str(part) in ("", ".", ".."):
            raise ValueError(f"{part!r} is no id")
    return "/v1/" + "/".join(quote(str(part), safe="") for part in parts)


def without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields that have a value. `answer`, `arguments` and `body` may be null."""
    free = ("answer", "arguments", "body")
    return {name: value for name, value in values.items() if value is not None or name in free}


def new_key(key: str | None) -> str:
    """Returns an idempotency key: this one, or a new one."""
    if key is None:
        return str(uuid.uuid4())
    # HTTP removes blanks around a value, which would make it another key.
    if not key or key != key.strip() or not key.isprintable():
        raise ValueError("an idempotency key has printable characters, without blanks around it")
    return key


def millis(secs: float | None) -> int | None:
    """Returns seconds as whole milliseconds, rounded up."""
    return None if secs is None else math.ceil(secs * 1000)


def failed_attempt(request: ApiRequest, url: str, error: httpx.RequestError) -> ApiError:
    """Returns the error of a request without an answer."""
    reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    text = f"{request.method} {url}{request.path}: {reason}"
    was_sent = not isinstance(error, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))
    if was_sent and request.method != "GET":
        return UnknownError(f"{text}; the request may have been executed")
    return UnavailableError(text)


def check_answer(
    request: ApiRequest, status: int, headers: httpx.Headers, body: bytes
) -> ApiAnswer:
    """Returns a successful answer, or raises the error that it has."""
    if 200 <= status < 300:
        return ApiAnswer(status, headers, body)
    problem = _parse_problem(headers, body)
    if problem is not None:
        raise error_of_problem(problem, status, _retry_after(headers))
    text = f"{request.method} {request.path}: {_foreign(status, headers, body)}"
    if status in (502, 503, 504):
        # A proxy does not say if the server has read the request.
        error_class = UnavailableError if request.method == "GET" else UnknownError
        raise error_class(text, status=status, retry_after=_retry_after(headers))
    raise AnswerError(text)


def _parse_problem(headers: httpx.Headers, body: bytes) -> dict[str, Any] | None:
    if not headers.get("content-type", "").startswith("application/problem+json"):
        return None
    try:
        problem = json.loads(body)
    except ValueError:
        return None
    return problem if isinstance(problem, dict) else None


def _retry_after(headers: httpx.Headers) -> float | None:
    value = headers.get("retry-after", "")
    return float(value) if value.isascii() and value.isdigit() else None


def _foreign(status: int, headers: httpx.Headers, body: bytes) -> str:
    kind = headers.get("content-type", "no content type")
    head = body[:200].decode("utf-8", errors="replace")
    return f"this is no answer of Brigade, check the URL: status {status}, {kind}, {head!r}"
