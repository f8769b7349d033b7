"""A session of a server: the tasks of one directory or name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any, cast

from ..api_request import ApiRequest, api_path, millis, new_key, without_none
from ..api_types import (
    EnvValue,
    InboxItem,
    Limits,
    NewTask,
    Permissions,
    Resources,
    Sandbox,
    Session,
    Task,
    Terminal,
    WaitMode,
    WaitResult,
    WaitUntil,
)
from ..errors import InvalidError
from .connection import AsyncConnection
from .pages import list_tasks
from .streams import AsyncEventStream
from .task import AsyncTaskHandle
from .wait import wait_for_tasks


class AsyncSessionHandle:
    """A session. `opened` is the session as the server showed it."""

    def __init__(self, connection: AsyncConnection, opened: Session) -> None:
        self._connection = connection
        self.opened = opened
        self.id = opened["id"]
        self.name = opened["name"]
        """The directory of the session, or its name."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    async def spawn_process(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        name: str | None = None,
        key: str | None = None,
        env: Mapping[str, EnvValue] | None = None,
        stdin: bool = False,
        terminal: Terminal | None = None,
        deadline_secs: float | None = None,
        grace_secs: float | None = None,
        sandbox: Sandbox | None = None,
        resources: Resources | None = None,
        limits: Limits | None = None,
        worktree: bool = False,
        keep: bool = False,
    ) -> AsyncTaskHandle:
        """Starts a process: a text for the shell, or a program and its arguments.

        `deadline_secs` kills it. With `stdin` it reads what `TaskHandle.send` sends. A client's token
        needs a sandbox, such as `{}`. See `spawn` for the key.
        """
        line = {"shell": command} if isinstance(command, str) else {"command": list(command)}
        body = {
            **line,
            "kind": "process",
            "cwd": self._directory(cwd),
            "name": name,
            "env": dict(env) if env else None,
            "stdin": stdin,
            "terminal": terminal,
            "deadline_ms": millis(deadline_secs),
            "grace_ms": millis(grace_secs),
            "sandbox": sandbox,
            "resources": resources,
            "limits": limits,
            "worktree": worktree,
            "keep": keep,
        }
        return await self._spawn(body, key)

    async def spawn_agent(
        self,
        prompt: str,
        *,
        cwd: str | None = None,
        name: str | None = None,
        key: str | None = None,
        definition: str | None = None,
        model: str | None = None,
        config: Mapping[str, Any] | None = None,
        result_schema: Mapping[str, Any] | None = None,
        permissions: Permissions | None = None,
        mcp_servers: Sequence[str] = (),
        unattended: bool = False,
        sandbox: Sandbox | None = None,
        resources: Resources | None = None,
        limits: Limits | None = None,
        worktree: bool = False,
        keep: bool = False,
    ) -> AsyncTaskHandle:
        """Starts an agent with a prompt. See `spawn` for the key."""
        body = {
            "kind": "agent",
            "prompt": prompt,
            "cwd": self._directory(cwd),
            "name": name,
            "definition": definition,
            "model": model,
            "config": config,
            "result_schema": result_schema,
            "permissions": permissions,
            "mcp_servers": list(mcp_servers),
            "unattended": unattended,
            "sandbox": sandbox,
            "resources": resources,
            "limits": limits,
            "worktree": worktree,
            "keep": keep,
        }
        return await self._spawn(body, key)

    async def spawn_job(
        self,
        job: str,
        arguments: Any = None,
        *,
        name: str | None = None,
        key: str | None = None,
        limits: Limits | None = None,
    ) -> AsyncTaskHandle:
        """Starts a job that the program of the server has registered. See `spawn` for the key."""
        body = {"kind": "job", "job": job, "arguments": arguments, "name": name, "limits": limits}
        return await self._spawn(body, key)

    async def spawn(self, task: NewTask, *, key: str | None = None) -> AsyncTaskHandle:
        """Starts a task as the API describes it.

        The key makes the request repeatable: the same key and request is the same task. Without one,
        a new key still starts the task once if an answer is lost. Pass a key of your own, such as
        `build-17`, to find the same task again when your program runs again.
        """
        return await self._spawn(cast("dict[str, Any]", task), key)

    async def wait(
        self,
        tasks: Sequence[AsyncTaskHandle | str],
        *,
        mode: WaitMode = "any",
        until: WaitUntil = "ended",
        timeout: float | None = None,
        collect: bool = False,
    ) -> WaitResult:
        """Waits for any or all of some tasks. After the timeout, `done` is false.

        With `until="ended_or_input"`, a question or a pending approval ends the wait too.
        """
        ids = [task if isinstance(task, str) else task.id for task in tasks]
        return await wait_for_tasks(
            self._connection,
            self.id,
            ids,
            mode=mode,
            until=until,
            timeout=timeout,
            collect=collect,
        )

    def task(self, number: int) -> AsyncTaskHandle:
        """Returns the task with a number of this session. Sends no request."""
        return AsyncTaskHandle(self._connection, f"{self.id}.{number}")

    def tasks(self, **selection: str | int | bool | None) -> AsyncIterator[Task]:
        """Lists the tasks of the session, as `Client.tasks` does."""
        return list_tasks(self._connection, api_path("sessions", self.id, "tasks"), selection)

    def events(
        self, after: str | None = None, *, types: Sequence[str] = (), rows: bool = False
    ) -> AsyncEventStream:
        """Follows the changes of the session, as `Client.events` does."""
        query = {"types": ",".join(types) or None, "rows": rows}
        path = api_path("sessions", self.id, "events")
        return AsyncEventStream(self._connection, path, query, after)

    async def show(self) -> Session:
        """Returns the session as it is now."""
        request = ApiRequest("GET", api_path("sessions", self.id), is_repeatable=True)
        return cast(Session, (await self._connection.send(request)).json())

    async def inbox(self, *, include_read: bool = False) -> list[InboxItem]:
        """Returns the messages from tasks, the oldest first."""
        path = api_path("sessions", self.id, "inbox")
        request = ApiRequest("GET", path, {"include_read": include_read}, is_repeatable=True)
        found = (await self._connection.send(request)).json()
        return cast("list[InboxItem]", found["items"])

    async def close(self, reason: str | None = None) -> Session:
        """Closes the session: its tasks are stopped, and nothing new starts in it."""
        path = api_path("sessions", self.id, "close")
        request = ApiRequest("POST", path, body={"reason": reason})
        return cast(Session, (await self._connection.send(request)).json())

    async def _spawn(self, body: Mapping[str, Any], key: str | None) -> AsyncTaskHandle:
        request = ApiRequest(
            "POST",
            api_path("sessions", self.id, "tasks"),
            body=without_none(body),
            headers={"idempotency-key": new_key(key)},
            is_repeatable=True,
        )
        answer = await self._connection.send(request)
        task = cast(Task, answer.json())
        replayed = answer.headers.get("idempotent-replayed") == "true"
        return AsyncTaskHandle(self._connection, task["id"], task, replayed=replayed)

    def _directory(self, cwd: str | None) -> str:
        if cwd is not None:
            return cwd
        if PurePosixPath(self.name).is_absolute():
            return self.name
        raise InvalidError(f"the session {self.name!r} has no directory: pass `cwd`")
