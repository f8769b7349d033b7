"""A task of a server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal, cast

from ..api_request import ApiRequest, api_path, millis, new_key
from ..api_types import (
    Approval,
    EndedTask,
    Limits,
    Stopped,
    Task,
    TaskDetail,
    Transcript,
    TranscriptItem,
    VerdictKind,
)
from ..errors import InvalidError, WaitTimeoutError, error_of_outcome
from .connection import AsyncConnection
from .streams import AsyncEventStream, AsyncOutputStream
from .wait import wait_for_tasks

OTHER_RUN_SECS = 0.5
"""The pause before a wait that found only an earlier run."""

StreamName = Literal["stdout", "stderr", "combined"]


class AsyncTaskHandle:
    """A task, by its id. It holds no connection, and the id stays valid for other programs."""

    def __init__(
        self,
        connection: AsyncConnection,
        id: str,
        spawned: Task | None = None,
        *,
        replayed: bool = False,
    ) -> None:
        self._connection = connection
        self.id = id
        self.spawned = spawned
        """The task as the server showed it when this program spawned it."""
        self.replayed = replayed
        """An earlier request with the same key had spawned it."""
        self._run = 0
        """The run that this program has started last."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    @property
    def session_id(self) -> str:
        return self.id.rpartition(".")[0]

    async def show(self) -> TaskDetail:
        """Returns the task as it is now."""
        return cast(TaskDetail, await self._get())

    async def wait(self, timeout: float | None = None, *, collect: bool = False) -> EndedTask:
        """Waits until the task has ended, also across restarts of the server.

        A client's token collects the result. An operator's token does so only with `collect`.
        Raises `WaitTimeoutError` after the timeout; the task goes on.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            remaining = None if end is None else max(end - time.monotonic(), 0.0)
            waited = await wait_for_tasks(
                self._connection, self.session_id, [self.id], timeout=remaining, collect=collect
            )
            ended = max(waited["ended"], key=lambda task: task["run"], default=None)
            if ended is not None and ended["run"] >= self._run:
                return ended
            if end is not None and time.monotonic() >= end:
                raise WaitTimeoutError(f"{self.id} has not ended after {timeout} seconds")
            # The result of an earlier run, which was not collected, comes before.
            await asyncio.sleep(OTHER_RUN_SECS)

    async def result(self, timeout: float | None = None, *, collect: bool = False) -> Any:
        """Waits, and returns the result. Raises `TaskFailedError` or `TaskCancelledError` for a
        task that did not succeed."""
        ended = await self.wait(timeout, collect=collect)
        outcome = ended.get("outcome")
        if (outcome["type"] if outcome else ended["state"]) != "succeeded":
            raise error_of_outcome(ended)
        return ended.get("result")

    async def stop(self, reason: str | None = None, *, grace_secs: float | None = None) -> Stopped:
        """Stops the task and its descendants. Returns when the stop has begun: `wait` for its end."""
        body = {"reason": reason, "grace_ms": millis(grace_secs)}
        # A repeated stop finds that the task is already stopped.
        return cast(Stopped, await self._post("stop", body, is_repeatable=True))

    async def send(
        self,
        body: Any,
        *,
        name: str | None = None,
        interrupt: bool = False,
        close_input: bool = False,
        key: str | None = None,
    ) -> list[int]:
        """Sends a message, once: a process reads it as a line of its input. Returns the numbers of
        the message, and of the end of the input."""
        message = {"body": body, "name": name, "interrupt": interrupt, "close_input": close_input}
        return await self._send(message, key)

    async def close_input(self, *, key: str | None = None) -> list[int]:
        """Closes the input of a process."""
        return await self._send({"close_input": True}, key)

    async def answer(self, answer: Any, *, call: int | None = None) -> None:
        """Answers a question. `call` names one of several."""
        await self._post("answer", {"answer": answer, "call": call})

    async def resume(self, limits: Limits | None = None) -> Task:
        """Starts the next run of an ended task."""
        task = cast(Task, await self._post("resume", {"limits": limits}))
        self._run = task["run"]
        return task

    async def approvals(self) -> list[Approval]:
        """Returns the calls of this task that wait for an approval."""
        return (await self.show())["approvals"]

    async def approve(
        self, approval: Approval, *, always: bool = False, rule: str | None = None
    ) -> None:
        """Allows a call, exactly as the approval shows it: once, or always by a rule."""
        digest = approval.get("digest")
        if digest is None:
            raise InvalidError("this approval has no digest; read all of it with `approvals`")
        verdict: VerdictKind = "allow_always" if always else "allow_once"
        body = {"verdict": verdict, "digest": digest, "rule": rule}
        await self._post(f"approvals/{approval['call']}", body)

    async def deny(self, approval: Approval, reason: str | None = None) -> None:
        """Denies a call. The agent reads the reason."""
        await self._post(f"approvals/{approval['call']}", {"verdict": "deny", "reason": reason})

    async def output(
        self, stream: StreamName = "combined", *, tail: int | None = None, run: int | None = None
    ) -> bytes:
        """Returns the stored output of a process, or its last bytes."""
        query = {"stream": stream, "tail": tail, "run": run}
        request = ApiRequest(
            "GET",
            api_path("tasks", self.id, "output"),
            query,
            headers={"accept": "application/octet-stream"},
            is_repeatable=True,
        )
        return (await self._connection.send(request)).body

    def follow_output(
        self,
        stream: StreamName = "combined",
        *,
        tail: int | None = None,
        start: int | None = None,
    ) -> AsyncOutputStream:
        """Follows the output of a process until its end, from its beginning, an offset, or some bytes
        before its end."""
        query = {"stream": stream, "tail": tail, "from": start}
        path = api_path("tasks", self.id, "output", "stream")
        return AsyncOutputStream(self._connection, path, query)

    def events(
        self, after: str | None = None, *, subtree: bool = False, rows: bool = False
    ) -> AsyncEventStream:
        """Follows the changes of the task, or of its descendants too."""
        query = {"subtree": subtree, "rows": rows}
        return AsyncEventStream(
            self._connection, api_path("tasks", self.id, "events"), query, after
        )

    async def transcript(self) -> AsyncIterator[TranscriptItem]:
        """Yields the transcript of an agent, the oldest entry first."""
        page: str | None = None
        while True:
            found = cast(Transcript, await self._get("transcript", {"page": page}))
            for item in found["items"]:
                yield item
            page = found.get("next_page")
            if page is None:
                return

    async def _send(self, body: Mapping[str, Any], key: str | None) -> list[int]:
        headers = {"idempotency-key": new_key(key)}
        sent = await self._post("messages", body, headers=headers, is_repeatable=True)
        return cast("list[int]", sent["numbers"])

    async def _get(
        self, part: str = "", query: Mapping[str, str | int | bool | None] | None = None
    ) -> Any:
        path = api_path("tasks", self.id, part) if part else api_path("tasks", self.id)
        request = ApiRequest("GET", path, query or {}, is_repeatable=True)
        return (await self._connection.send(request)).json()

    async def _post(
        self,
        action: str,
        body: Mapping[str, Any],
        *,
        headers: Mapping[str, str] | None = None,
        is_repeatable: bool = False,
    ) -> Any:
        request = ApiRequest(
            "POST",
            api_path("tasks", self.id, *action.split("/")),
            body=body,
            headers=headers or {},
            is_repeatable=is_repeatable,
        )
        answer = await self._connection.send(request)
        return answer.json() if answer.body else None
