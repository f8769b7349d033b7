"""The items of streams."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TypeAlias

from .api_types import Change
from .errors import AnswerError
from .sse import ServerSentEvent


@dataclass(frozen=True)
class FeedChange:
    """A change, and the place in the feed after it."""

    cursor: str
    change: Change


@dataclass(frozen=True)
class FeedGap:
    """Changes that retention has removed: list again. `cursor` is the place after them."""

    cursor: str


FeedItem: TypeAlias = "FeedChange | FeedGap"


@dataclass(frozen=True)
class OutputPart:
    """A piece of the output of a process."""

    stream: str
    """`stdout` or `stderr`."""
    start: int
    """The offset of the first byte."""
    next: int
    """The offset after the last byte."""
    data: bytes

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", errors="replace")


@dataclass(frozen=True)
class OutputGap:
    """Output that is no longer stored, as offsets."""

    start: int
    next: int


OutputItem: TypeAlias = "OutputPart | OutputGap"


def output_item(event: ServerSentEvent) -> OutputItem:
    """Returns the item of an event `output` or `dropped`."""
    body = event.json()
    try:
        if event.name == "dropped":
            return OutputGap(body["from"], body["next"])
        text = body.get("text")
        data = base64.b64decode(body["base64"]) if text is None else text.encode()
        return OutputPart(body["stream"], body["from"], body["next"], data)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise AnswerError(f"this is no output: {event.data[:200]!r}") from error
