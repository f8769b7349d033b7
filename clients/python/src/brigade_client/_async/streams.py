"""Changes of the feed and output of processes, as iterators."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

from ..api_request import ApiRequest, api_path
from ..items import FeedChange, FeedGap, FeedItem, OutputItem, output_item
from .connection import AsyncConnection
from .event_source import AsyncEventSource


class AsyncEventStream:
    """The changes after a cursor, each once, across restarts of the server.

    Without a cursor it starts now: when `async with` enters it, or with the first item. After an
    error or a cancelled read, `cursor` has the place to go on, and so does the next item.
    """

    def __init__(
        self,
        connection: AsyncConnection,
        path: str,
        query: Mapping[str, str | int | bool | None],
        after: str | None,
    ) -> None:
        self._connection = connection
        self._source = AsyncEventSource(connection, path, query, after)

    @property
    def cursor(self) -> str | None:
        """The place after the last item."""
        return self._source.cursor

    async def start(self) -> None:
        """Fixes the place at which the stream starts, if it has none yet."""
        if self._source.cursor is None:
            request = ApiRequest("GET", api_path("whoami"), is_repeatable=True)
            answer = await self._connection.send(request)
            self._source.cursor = str(answer.json()["cursor"])

    async def aclose(self) -> None:
        await self._source.aclose()

    def __aiter__(self) -> AsyncEventStream:
        return self

    async def __anext__(self) -> FeedItem:
        await self.start()
        while True:
            event = await self._source.next_event()
            match event.name:
                case "change":
                    return FeedChange(event.id, event.json())  # type: ignore[arg-type]
                case "gap":
                    return FeedGap(event.id)
                case _:
                    # An event of a newer server.
                    continue

    async def __aenter__(self) -> AsyncEventStream:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()


class AsyncOutputStream:
    """The output of a process until its end, each byte once, across restarts of the server."""

    def __init__(
        self,
        connection: AsyncConnection,
        path: str,
        query: Mapping[str, str | int | bool | None],
    ) -> None:
        self._source = AsyncEventSource(connection, path, query, None)
        self._has_ended = False

    async def aclose(self) -> None:
        await self._source.aclose()

    def __aiter__(self) -> AsyncOutputStream:
        return self

    async def __anext__(self) -> OutputItem:
        while not self._has_ended:
            event = await self._source.next_event()
            match event.name:
                case "output" | "dropped":
                    return output_item(event)
                case "end":
                    self._has_ended = True
                case _:
                    continue
        await self._source.aclose()
        raise StopAsyncIteration

    async def __aenter__(self) -> AsyncOutputStream:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()
