"""A client of one server."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any, cast

import httpx

from ..api_request import ApiRequest, api_path
from ..api_types import Definition, Pending, Session, Task, WhoAmI
from ..errors import NotFoundError
from ..settings import read_settings
from .connection import AsyncConnection
from .pages import list_tasks
from .session import AsyncSessionHandle
from .streams import AsyncEventStream
from .task import AsyncTaskHandle


class AsyncClient:
    """A client of one server.

    - `url`: the server; `BRIGADE_URL`, or `http://127.0.0.1:7777`.
    - `token`, `token_file`: the token or its file; `BRIGADE_TOKEN` or `BRIGADE_TOKEN_FILE`.
    - `timeout`: the seconds for one attempt of a request, beside the time that a wait asks for.
    - `retry_for`: the seconds for which requests, waits and streams try a server again that does
      not answer. A server that has never answered is tried for 3 seconds.
    - `insecure_http`: sends the token over http to another machine.
    - `http`: a client of httpx with other settings of TLS or proxies. The caller closes it.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        token_file: str | os.PathLike[str] | None = None,
        timeout: float = 30.0,
        retry_for: float = 60.0,
        insecure_http: bool = False,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        settings = read_settings(
            url,
            token,
            token_file,
            timeout=timeout,
            retry_for=retry_for,
            insecure_http=insecure_http,
        )
        self._connection = AsyncConnection(settings, http)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._connection.settings.url!r})"

    async def whoami(self) -> WhoAmI:
        """Returns the token of this client, the version of the server, and the present cursor."""
        return cast(WhoAmI, await self.request("GET", "whoami"))

    async def session(
        self, workspace: str | os.PathLike[str] | None = None, *, name: str | None = None
    ) -> AsyncSessionHandle:
        """Opens the session of a directory, of this directory by default, or of a name.

        The directory is one of the server. A client's token has one session, which is the default.
        """
        if workspace is not None and name is not None:
            raise ValueError("pass either workspace or name")
        token = (await self.whoami())["token"]
        if workspace is None and name is None and token.get("session") is not None:
            opened = await self.request("GET", f"sessions/{token['session']}")
            return AsyncSessionHandle(self._connection, cast(Session, opened))
        wanted = {"workspace": os.path.abspath(workspace or os.curdir)}
        if name is not None:
            wanted = {"name": name}
        if token["scope"] == "operator":
            opened = await self.request("POST", "sessions", body=wanted, is_repeatable=True)
            return AsyncSessionHandle(self._connection, cast(Session, opened))
        found = await self.request("GET", "sessions", query=wanted)
        if not found["items"]:
            raise NotFoundError(f"this token sees no open session {wanted}")
        return AsyncSessionHandle(self._connection, cast(Session, found["items"][0]))

    async def sessions(self, *, include_closed: bool = False) -> list[AsyncSessionHandle]:
        """Returns the sessions that the token sees."""
        found = await self.request("GET", "sessions", query={"include_closed": include_closed})
        return [AsyncSessionHandle(self._connection, item) for item in found["items"]]

    def task(self, id: str) -> AsyncTaskHandle:
        """Returns the task with an id. Sends no request."""
        return AsyncTaskHandle(self._connection, id)

    def tasks(self, **selection: str | int | bool | None) -> AsyncIterator[Task]:
        """Lists the tasks that the token sees, alive ones and those with an uncollected result.

        The selection is that of `GET /v1/tasks`: `session`, `state`, `kind`, `parent`, `client`,
        `text`, `ended`, `order` ("newest"), and `limit`, the size of a page.
        """
        return list_tasks(self._connection, api_path("tasks"), selection)

    async def pending(self) -> Pending:
        """Returns the approvals and questions that wait for a decision."""
        return cast(Pending, await self.request("GET", "pending"))

    async def definitions(self, cwd: str | None = None) -> list[Definition]:
        """Returns the definitions of agents, of a directory too."""
        found = await self.request("GET", "definitions", query={"cwd": cwd})
        return cast("list[Definition]", found["items"])

    def events(
        self, after: str | None = None, *, types: Sequence[str] = (), rows: bool = False
    ) -> AsyncEventStream:
        """Follows the changes of all that the token sees, after a cursor or from now on.

        `types` selects changes, such as `["spawned", "ended"]`. With `rows`, each has its task.
        """
        query = {"types": ",".join(types) or None, "rows": rows}
        return AsyncEventStream(self._connection, api_path("events"), query, after)

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | int | bool | None] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        is_repeatable: bool | None = None,
    ) -> Any:
        """Sends a request to a route below `/v1`, and returns its JSON: for routes without a method
        here. `is_repeatable` says that a repetition has the same effect; by default, if it reads."""
        request = ApiRequest(
            method,
            api_path(*path.strip("/").split("/")),
            query or {},
            body,
            headers or {},
            is_repeatable=method == "GET" if is_repeatable is None else is_repeatable,
        )
        answer = await self._connection.send(request)
        return answer.json() if answer.body else None

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._connection.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()
