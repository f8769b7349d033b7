"""Pauses between attempts, and the rule of what is repeated."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from .errors import ApiError, UnavailableError, UnknownError

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 5.0
UNREACHED_RETRY_FOR = 3.0
"""The seconds for which a server is tried that has not answered yet: its URL may be wrong."""


def can_repeat(error: ApiError, is_repeatable: bool) -> bool:
    """Returns true if a request may be sent again after an error.

    A request that changed nothing always may. One whose answer is lost may only if a repetition has
    the same effect, as with an idempotency key.
    """
    return isinstance(error, UnavailableError) or (isinstance(error, UnknownError) and is_repeatable)


class RetryPause:
    """The pauses of one request or stream that fails: they double, with jitter, up to a bound."""

    def __init__(
        self,
        retry_for: float,
        deadline: float | None = None,
        *,
        now: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._retry_for = retry_for
        self._deadline = deadline
        self._now = now
        self._jitter = jitter
        self.reset()

    def reset(self) -> None:
        """Starts again, after a success."""
        self._failing_since: float | None = None
        self._next = FIRST_PAUSE

    def next_pause(self, error: ApiError, retry_for: float | None = None) -> float:
        """Returns the seconds before the next attempt. Raises the error if the time is over."""
        now = self._now()
        if self._failing_since is None:
            self._failing_since = now
        pause = self._next * (0.5 + self._jitter() / 2)
        if error.retry_after is not None:
            pause = max(pause, min(error.retry_after, LONGEST_PAUSE))
        self._next = min(self._next * 2, LONGEST_PAUSE)
        limit = self._retry_for if retry_for is None else min(retry_for, self._retry_for)
        end = self._failing_since + limit
        if self._deadline is not None:
            end = min(end, self._deadline)
        if now + pause > end:
            # The caller may try again later.
            self.reset()
            raise error
        return pause
