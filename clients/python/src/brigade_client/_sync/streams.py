# Generated from _async/streams.py by `node clients/generate.js`. Do not edit.
"""Changes of the feed and output of processes, as iterators."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

from ..api_request import ApiRequest, api_path
from ..items import FeedChange, FeedGap, FeedItem, OutputItem, output_item
from .connection import Connection
from .event_source import EventSource


class EventStream:
    """The changes after a cursor, each once, across restarts of the server.

    Without a cursor it starts now: when `with` enters it, or with the first item. After an
    error or a cancelled read, `cursor` has the place to go on, and so does the next item.
    """

    def __init__(
        self,
        connection: Connection,
        path: str,
        query: Mapping[str, str | int | bool | None],
        after: str | None,
    ) -> None:
        self._connection = connection
        self._source = EventSource(connection, path, query, after)

    @property
    def cursor(self) -> str | None:
        """The place after the last item."""
        return self._source.cursor

    def start(self) -> None:
        """Fixes the place at which the stream starts, if it has none yet."""
        if self._source.cursor is None:
            request = ApiRequest("GET", api_path("whoami"), is_repeatable=True)
            answer = self._connection.send(request)
            self._source.cursor = str(answer.json()["cursor"])

    def close(self) -> None:
        self._source.close()

    def __iter__(self) -> EventStream:
        return self

    def __next__(self) -> FeedItem:
        self.start()
        while True:
            event = self._source.next_event()
            match event.name:
                case "change":
                    return FeedChange(event.id, event.json())  # type: ignore[arg-type]
                case "gap":
                    return FeedGap(event.id)
                case _:
                    # An event of a newer server.
                    continue

    def __enter__(self) -> EventStream:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class OutputStream:
    """The output of a process until its end, each byte once, across restarts of the server."""

    def __init__(
        self,
        connection: Connection,
        path: str,
        query: Mapping[str, str | int | bool | None],
    ) -> None:
        self._source = EventSource(connection, path, query, None)
        self._has_ended = False

    def close(self) -> None:
        self._source.close()

    def __iter__(self) -> OutputStream:
        return self

    def __next__(self) -> OutputItem:
        while not self._has_ended:
            event = self._source.next_event()
            match event.name:
                case "output" | "dropped":
                    return output_item(event)
                case "end":
                    self._has_ended = True
                case _:
                    continue
        self._source.close()
        raise StopIteration

    def __enter__(self) -> OutputStream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
