"""The errors of a client: one class for each kind of problem, and those of outcomes and waits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .api_types import EndedTask, Outcome


class BrigadeError(Exception):
    """An error of this package."""


class ApiError(BrigadeError):
    """A problem that the server has answered, or that prevented an answer.

    `code` is open: a newer server may send one that has no class here.
    """

    code: str = "unknown"

    def __init__(
        self,
        detail: str,
        *,
        code: str | None = None,
        status: int | None = None,
        retry_after: float | None = None,
    ) -> None:
        self.code = code or type(self).code
        self.detail = detail
        self.status = status
        """The status of the answer; `None` if there was none."""
        self.retry_after = retry_after
        """The seconds after which the server expects the request again, if it says so."""
        super().__init__(f"{self.code}: {detail}")


class NotFoundError(ApiError):
    """There is no such session, task, run, call or message."""

    code = "not_found"


class ForbiddenError(ApiError):
    """The token may not do this."""

    code = "forbidden"


class InvalidError(ApiError):
    """The request is wrong."""

    code = "invalid"


class ConflictError(ApiError):
    """The request contradicts the stored state, such as another request under the same key."""

    code = "conflict"


class LimitError(ApiError):
    """A limit is reached."""

    code = "limit"


class EndedError(ApiError):
    """The task or session has ended or is ending."""

    code = "ended"


class UnavailableError(ApiError):
    """The server cannot be reached or cannot answer now. The request changed nothing."""

    code = "unavailable"


class UnknownError(ApiError):
    """The answer is lost: the request may have been executed."""

    code = "unknown"


class InternalError(ApiError):
    """The server has a defect."""

    code = "internal"


class UnauthenticatedError(ApiError):
    """The token is missing, unknown, expired or revoked."""

    code = "unauthenticated"


class AnswerError(BrigadeError):
    """An answer that is none of Brigade's, such as the page of another server at this URL."""


class WaitTimeoutError(BrigadeError, TimeoutError):
    """The timeout of a wait has passed. The task goes on."""


class OutcomeError(BrigadeError):
    """A task that ended without success. `task` has all of it."""

    def __init__(self, task: EndedTask) -> None:
        self.task = task
        super().__init__(f"{task['address']}: {self.text}")

    @property
    def outcome(self) -> Outcome | None:
        return self.task.get("outcome")

    @property
    def text(self) -> str:
        outcome = self.outcome
        return outcome["text"] if outcome else self.task["state"]

    @property
    def partial(self) -> Any:
        """The partial result, such as the exit code and the last output of a process."""
        return self.task.get("partial")


class TaskFailedError(OutcomeError):
    """A task that failed."""


class TaskCancelledError(OutcomeError):
    """A task that was stopped."""


_CLASSES: tuple[type[ApiError], ...] = (
    NotFoundError,
    ForbiddenError,
    InvalidError,
    ConflictError,
    LimitError,
    EndedError,
    UnavailableError,
    UnknownError,
    InternalError,
    UnauthenticatedError,
)
_BY_CODE = {one.code: one for one in _CLASSES}


def error_of_problem(
    problem: Mapping[str, Any], status: int | None = None, retry_after: float | None = None
) -> ApiError:
    """Returns the error of a problem body (RFC 9457)."""
    code = str(problem.get("code") or "")
    detail = str(problem.get("detail") or problem.get("title") or "the server gave no reason")
    error_class = _BY_CODE.get(code, ApiError)
    return error_class(detail, code=code or None, status=status, retry_after=retry_after)


def error_of_outcome(task: EndedTask) -> OutcomeError:
    """Returns the error of a task that ended without success."""
    outcome = task.get("outcome")
    match outcome["type"] if outcome else task["state"]:
        case "failed":
            return TaskFailedError(task)
        case "cancelled":
            return TaskCancelledError(task)
        case _:
            return OutcomeError(task)
