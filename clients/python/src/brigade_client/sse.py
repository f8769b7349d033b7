"""A parser of server-sent events. It reads bytes and knows nothing of connections."""

from __future__ import annotations

import codecs
import json
from dataclasses import dataclass
from typing import Any

from .errors import AnswerError

MAX_EVENT_CHARS = 32 * 1024 * 1024
"""The size from which an event is refused, so that no server fills the memory."""


@dataclass(frozen=True)
class ServerSentEvent:
    """One event of a stream."""

    name: str
    data: str
    id: str = ""

    def json(self) -> dict[str, Any]:
        """Returns the data, which is an object in all events of Brigade."""
        try:
            value = json.loads(self.data)
        except ValueError as error:
            raise AnswerError(f"the event {self.name} is not JSON: {self.data[:200]!r}") from error
        if not isinstance(value, dict):
            raise AnswerError(f"the event {self.name} is not an object: {self.data[:200]!r}")
        return value


class SseParser:
    """Splits bytes into events, wherever chunks end. Lines end with LF, CR or CRLF."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._line: list[str] = []
        """The parts of an unfinished line."""
        self._after_return = False
        self._is_first_line = True
        self._name = ""
        self._data: list[str] = []
        self._id = ""
        self._size = 0

    def push(self, chunk: bytes) -> list[ServerSentEvent]:
        """Returns the events that this chunk completes."""
        events: list[ServerSentEvent] = []
        text = self._decoder.decode(chunk)
        if self._after_return and text:
            # The LF of a CRLF that was split.
            text = text.removeprefix("\n")
            self._after_return = False
        start = 0
        while (end := _line_end(text, start)) >= 0:
            self._append(text[start:end])
            start = end + 1
            if text[end] == "\r":
                if start == len(text):
                    self._after_return = True
                elif text[start] == "\n":
                    start += 1
            self._end_line(events)
        self._append(text[start:])
        return events

    def _append(self, part: str) -> None:
        if not part:
            return
        self._size += len(part)
        if self._size > MAX_EVENT_CHARS:
            raise AnswerError(f"an event of the server is above {MAX_EVENT_CHARS} characters")
        self._line.append(part)

    def _end_line(self, events: list[ServerSentEvent]) -> None:
        line = "".join(self._line)
        self._line.clear()
        if self._is_first_line:
            line = line.removeprefix("\ufeff")
            self._is_first_line = False
        if not line:
            self._end_event(events)
            return
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "event":
                self._name = value
            case "data":
                self._data.append(value)
            case "id" if "\0" not in value:
                self._id = value
            case _:
                # A comment, `retry`, or a field that is not known. It takes no memory.
                self._size -= len(line)

    def _end_event(self, events: list[ServerSentEvent]) -> None:
        if self._data:
            data = "\n".join(self._data)
            events.append(ServerSentEvent(self._name or "message", data, self._id))
        self._name = ""
        self._data.clear()
        self._size = 0


def _line_end(text: str, start: int) -> int:
    ends = [end for end in (text.find("\n", start), text.find("\r", start)) if end >= 0]
    return min(ends, default=-1)
