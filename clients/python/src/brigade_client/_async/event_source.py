"""Server-sent events of one route, across lost connections."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping

import httpx

from ..api_request import ApiRequest, failed_attempt
from ..errors import AnswerError, ApiError, UnavailableError, error_of_problem
from ..retry import can_repeat
from ..sse import ServerSentEvent, SseParser
from .connection import AsyncConnection

SILENCE_SECS = 45.0
"""The server sends a heartbeat every 15 seconds. A connection without any is lost."""


class AsyncEventSource:
    """The events of a route, each once, whatever happens to the connection.

    `cursor` is the place after the last event that was returned. A cancelled `next_event` loses
    nothing: the next call goes on at the cursor.
    """

    def __init__(
        self,
        connection: AsyncConnection,
        path: str,
        query: Mapping[str, str | int | bool | None],
        cursor: str | None,
    ) -> None:
        self.cursor = cursor
        self._connection = connection
        self._path = path
        self._query = query
        self._response: httpx.Response | None = None
        self._chunks: AsyncIterator[bytes] | None = None
        self._parser = SseParser()
        self._pending: deque[ServerSentEvent] = deque()
        self._pause = connection.new_pause()
        self._pause_secs = 0.0

    async def next_event(self) -> ServerSentEvent:
        """Waits for the next event that is not one of the connection itself."""
        while True:
            while not self._pending:
                await self._receive()
            event = self._pending.popleft()
            if event.id:
                self.cursor = event.id
            match event.name:
                case "cursor" | "heartbeat":
                    continue
                case "bye" | "too_slow":
                    await self._lose(UnavailableError(f"the server ended the stream: {event.name}"))
                case "error":
                    error = error_of_problem(event.json())
                    if not can_repeat(error, is_repeatable=True):
                        await self.aclose()
                        raise error
                    await self._lose(error)
                case _:
                    return event

    async def aclose(self) -> None:
        """Closes the connection."""
        response = self._response
        self._response = None
        self._chunks = None
        self._pending.clear()
        if response is not None:
            await response.aclose()

    async def _receive(self) -> None:
        try:
            if self._chunks is None:
                await self._connect()
                return
            chunk = await self._chunks.__anext__()
            self._pending.extend(self._parser.push(chunk))
            self._pause.reset()
        except StopAsyncIteration:
            await self._lose(UnavailableError("the server closed the stream"))
        except httpx.RequestError as error:
            await self._lose(failed_attempt(self._request(), self._connection.settings.url, error))
        except ApiError as error:
            if not can_repeat(error, is_repeatable=True):
                await self.aclose()
                raise
            await self._lose(error)
        except BaseException:
            # A cancelled read cannot go on, but the next connection can.
            await self.aclose()
            raise

    async def _connect(self) -> None:
        await asyncio.sleep(self._pause_secs)
        request = self._request()
        response = await self._connection.open(request, SILENCE_SECS)
        kind = response.headers.get("content-type", "")
        if response.status_code != 200 or not kind.startswith("text/event-stream"):
            await self._connection.read(request, response)
            raise AnswerError(f"{self._path}: {kind or 'no content type'} is no stream")
        self._connection.has_answered = True
        self._pause_secs = 0.0
        self._parser = SseParser()
        self._response = response
        self._chunks = response.aiter_bytes()

    async def _lose(self, error: ApiError) -> None:
        """Closes the connection, so that the next one follows after a pause."""
        await self.aclose()
        self._pause_secs = self._pause.next_pause(error, self._connection.retry_for())

    def _request(self) -> ApiRequest:
        headers = {"accept": "text/event-stream"}
        if self.cursor is not None:
            headers["last-event-id"] = self.cursor
        return ApiRequest("GET", self._path, self._query, headers=headers, is_repeatable=True)
