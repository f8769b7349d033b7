from __future__ import annotations

import pytest
from brigade_client import AnswerError
from brigade_client.sse import MAX_EVENT_CHARS, ServerSentEvent, SseParser

STREAM = (
    "\ufeff: a comment\r\n"
    "id: 1\nevent: change\ndata: {}\n\n"
    "retry: 10\rdata:two\rdata: lines\rdata\r\r"
    "id: 3\r\nevent: output\r\ndata:  ünïcödé 🦀\r\n\r\n"
    "event: without data\n\n"
    "id: 4\nunknown: x\n:\ndata: last\n\n"
    "id: 5\ndata: not finished\n"
).encode()
EVENTS = [
    ServerSentEvent("change", "{}", "1"),
    ServerSentEvent("message", "two\nlines\n", "1"),
    ServerSentEvent("output", " ünïcödé 🦀", "3"),
    ServerSentEvent("message", "last", "4"),
]


def parse(*chunks: bytes) -> list[ServerSentEvent]:
    parser = SseParser()
    return [event for chunk in chunks for event in parser.push(chunk)]


def test_chunks_may_end_anywhere() -> None:
    assert parse(STREAM) == EVENTS
    assert parse(*(STREAM[at : at + 1] for at in range(len(STREAM)))) == EVENTS
    for at in range(len(STREAM)):
        assert parse(STREAM[:at], b"", STREAM[at:]) == EVENTS, at
    for size in (2, 3, 5, 7):
        chunks = (STREAM[at : at + size] for at in range(0, len(STREAM), size))
        assert parse(*chunks) == EVENTS, size


def test_an_id_with_nul_is_ignored() -> None:
    assert parse(b"id: a\0b\ndata: x\n\n") == [ServerSentEvent("message", "x")]


def test_a_large_event_is_refused_and_many_small_ones_are_not() -> None:
    parser = SseParser()
    piece = b"data: " + b"x" * (MAX_EVENT_CHARS // 8) + b"\n"
    with pytest.raises(AnswerError):
        for _ in range(9):
            parser.push(piece)
    parser = SseParser()
    for _ in range(9):
        assert len(parser.push(piece + b"\n")) == 1
        assert parser.push(b":" + piece) == []


def test_an_endless_line_is_refused() -> None:
    parser = SseParser()
    with pytest.raises(AnswerError):
        for _ in range(9):
            parser.push(b"x" * (MAX_EVENT_CHARS // 8))


def test_data_is_an_object() -> None:
    assert ServerSentEvent("change", '{"a": 1}').json() == {"a": 1}
    for data in ("", "[1]", "{"):
        with pytest.raises(AnswerError):
            ServerSentEvent("change", data).json()
