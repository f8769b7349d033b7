"""Answers that the real server does not give: of newer servers, of proxies, of other servers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import brigade_client
import httpx
import pytest
from brigade_client import Client, FeedChange, FeedGap, OutputGap, OutputPart, TaskHandle

Answer = Callable[[httpx.Request], httpx.Response]
TASK = "019a92b4-7c51-7c3e-9d0b-4f0d6c1f2a3b.3"


def client_of(*answers: Answer, retry_for: float = 60.0) -> tuple[Client, list[httpx.Request]]:
    """Returns a client that gets these answers in order, and the requests that it sends."""
    requests: list[httpx.Request] = []
    remaining = iter(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return next(remaining)(request)

    http = httpx.Client(transport=httpx.MockTransport(answer))
    return Client("http://localhost", "t", retry_for=retry_for, http=http), requests


def reply(status: int, body: Any, **headers: str) -> Answer:
    return lambda _: httpx.Response(status, json=body, headers=headers)


def problem(status: int, code: str, **headers: str) -> Answer:
    body = {"type": f"/docs#{code}", "title": "T", "status": status, "code": code, "detail": "D"}
    headers = {"content-type": "application/problem+json", **headers}
    return lambda _: httpx.Response(status, content=json.dumps(body), headers=headers)


def page(status: int) -> Answer:
    return lambda _: httpx.Response(status, html="<h1>nginx</h1>")


def lost(error: type[httpx.TransportError]) -> Answer:
    def fail(request: httpx.Request) -> httpx.Response:
        raise error("lost", request=request)

    return fail


class Chunks(httpx.SyncByteStream):
    """A body in chunks, which may end with an error."""

    def __init__(self, *chunks: bytes | Exception) -> None:
        self.chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self.chunks:
            if isinstance(chunk, Exception):
                raise chunk
            yield chunk


def stream(*chunks: bytes | Exception) -> Answer:
    headers = {"content-type": "text/event-stream"}
    return lambda _: httpx.Response(200, headers=headers, stream=Chunks(*chunks))


def ended(state: str, **fields: Any) -> dict[str, Any]:
    task = {"id": TASK, "address": "job:3", "state": state, "run": 1, **fields}
    return {"done": True, "ended": [task], "running": [], "pending_approvals": []}


def test_unknown_fields_and_states_are_kept() -> None:
    client, _ = client_of(reply(200, {"id": TASK, "state": "hibernating", "mood": {"a": 1}}))
    task = client.task(TASK).show()
    assert task["state"] == "hibernating"
    assert task["mood"] == {"a": 1}  # type: ignore[typeddict-item]


def test_an_unknown_outcome_is_no_success() -> None:
    outcome = {"type": "abandoned", "text": "was abandoned"}
    client, _ = client_of(reply(200, ended("abandoned", outcome=outcome)))
    with pytest.raises(brigade_client.OutcomeError, match="was abandoned") as raised:
        client.task(TASK).result()
    assert type(raised.value) is brigade_client.OutcomeError
    assert raised.value.outcome == outcome


def test_each_code_has_its_class() -> None:
    classes = {
        "not_found": brigade_client.NotFoundError,
        "forbidden": brigade_client.ForbiddenError,
        "invalid": brigade_client.InvalidError,
        "conflict": brigade_client.ConflictError,
        "limit": brigade_client.LimitError,
        "ended": brigade_client.EndedError,
        "unavailable": brigade_client.UnavailableError,
        "unknown": brigade_client.UnknownError,
        "internal": brigade_client.InternalError,
        "unauthenticated": brigade_client.UnauthenticatedError,
        "too_early": brigade_client.ApiError,
    }
    for code, error_class in classes.items():
        client, _ = client_of(problem(418, code), retry_for=0.0)
        with pytest.raises(brigade_client.ApiError) as raised:
            client.whoami()
        assert type(raised.value) is error_class
        assert (raised.value.code, raised.value.detail, raised.value.status) == (code, "D", 418)


def test_another_server_is_recognized() -> None:
    redirect = lambda _: httpx.Response(302, headers={"location": "http://evil.example"})  # noqa: E731
    for answer in (page(200), page(404), page(500), redirect):
        client, requests = client_of(answer)
        with pytest.raises(brigade_client.AnswerError, match="check the URL"):
            client.whoami()
        assert len(requests) == 1


def test_what_changed_nothing_is_repeated() -> None:
    busy = problem(503, "unavailable", **{"retry-after": "0"})
    client, requests = client_of(busy, lost(httpx.ConnectError), reply(200, {"run": 2}))
    client.task(TASK).resume()
    assert len(requests) == 3


@pytest.mark.parametrize("answer", [lost(httpx.ReadError), page(502), page(504)])
def test_a_lost_answer_is_unknown_unless_the_request_has_a_key(answer: Answer) -> None:
    client, requests = client_of(answer)
    with pytest.raises(brigade_client.UnknownError):
        client.task(TASK).resume()
    assert len(requests) == 1
    client, requests = client_of(answer, answer, reply(202, {"numbers": [7]}))
    assert client.task(TASK).send("hello") == [7]
    keys = {request.headers["idempotency-key"] for request in requests}
    assert (len(requests), len(keys)) == (3, 1)


def test_two_messages_have_two_keys() -> None:
    client, requests = client_of(*[reply(202, {"numbers": [7]})] * 3)
    task = client.task(TASK)
    for key in (None, None, "Schlüssel"):
        task.send("hello", key=key)
    keys = [request.headers.raw for request in requests]
    values = [dict(headers)[b"idempotency-key"] for headers in keys]
    assert len(set(values)) == 3
    assert values[2] == "Schlüssel".encode()
    for wrong in ("", " a", "a\nb"):
        with pytest.raises(ValueError):
            task.send("hello", key=wrong)


def test_a_large_answer_is_refused() -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b"x" * (1 << 20)

    body = lambda _: httpx.Response(200, content=endless())  # noqa: E731
    client, _ = client_of(body)
    with pytest.raises(brigade_client.AnswerError, match="above"):
        client.task(TASK).output()


def test_an_id_is_no_path() -> None:
    client, requests = client_of(problem(404, "not_found"))
    with pytest.raises(brigade_client.NotFoundError):
        client.task("../sessions?x#").show()
    assert requests[0].url.raw_path == b"/v1/tasks/..%2Fsessions%3Fx%23"
    for wrong in ("..", ".", ""):
        with pytest.raises(ValueError):
            client.task(wrong).show()


def change(cursor: str) -> bytes:
    return f'id: {cursor}\nevent: change\ndata: {{"seq": {len(cursor)}, "new": 1}}\n\n'.encode()


def test_a_stream_goes_on_at_its_cursor() -> None:
    client, requests = client_of(
        stream(b'id: a\nevent: cursor\ndata: {"cursor":"a"}\n\n', change("aa"), change("aaa")[:-2]),
        page(502),
        stream(change("aaa"), b"event: sparkle\ndata: {}\n\n", httpx.ReadError("reset")),
        lost(httpx.ConnectError),
        stream(b"id: b\nevent: heartbeat\ndata: {}\n\n", b"event: too_slow\ndata: {}\n\n"),
        stream(b'id: c\nevent: gap\ndata: {"cursor":"c"}\n\n', change("cc")),
    )
    events = client.events("start", types=["spawned", "ended"])
    found = [next(events) for _ in range(4)]
    assert found == [
        FeedChange("aa", {"seq": 2, "new": 1}),  # type: ignore[typeddict-item,typeddict-unknown-key]
        FeedChange("aaa", {"seq": 3, "new": 1}),  # type: ignore[typeddict-item,typeddict-unknown-key]
        FeedGap("c"),
        FeedChange("cc", {"seq": 2, "new": 1}),  # type: ignore[typeddict-item,typeddict-unknown-key]
    ]
    places = [request.headers["last-event-id"] for request in requests]
    assert places == ["start", "aa", "aa", "aaa", "aaa", "b"]
    assert requests[0].url.query == b"types=spawned%2Cended"


def test_a_stream_without_a_cursor_starts_now() -> None:
    client, requests = client_of(
        reply(200, {"cursor": "now"}), lost(httpx.ReadError), stream(change("aa"))
    )
    with client.events() as events:
        assert events.cursor == "now"
        next(events)
    assert requests[2].headers["last-event-id"] == "now"


def test_a_final_error_ends_a_stream() -> None:
    revoked = b'event: error\ndata: {"code": "unauthenticated", "detail": "revoked"}\n\n'
    client, _ = client_of(stream(change("aa"), revoked))
    events = client.events("a")
    next(events)
    with pytest.raises(brigade_client.UnauthenticatedError, match="revoked"):
        next(events)
    assert events.cursor == "aa"
    client, _ = client_of(problem(400, "invalid"))
    with pytest.raises(brigade_client.InvalidError):
        next(client.events("of another store"))
    client, _ = client_of(page(200))
    with pytest.raises(brigade_client.AnswerError):
        next(client.events("a"))


def test_a_stream_gives_up_and_can_go_on() -> None:
    client, requests = client_of(
        lost(httpx.ConnectError), problem(503, "unavailable"), stream(change("aa")), retry_for=0.0
    )
    events = client.events("a")
    for _ in range(2):
        with pytest.raises(brigade_client.UnavailableError):
            next(events)
    assert next(events) == FeedChange("aa", {"seq": 2, "new": 1})  # type: ignore[typeddict-item,typeddict-unknown-key]
    assert len(requests) == 3


def test_output_goes_on_at_its_offset() -> None:
    first = b'id: 3\nevent: output\ndata: {"stream":"stdout","from":0,"next":3,"text":"hi\\n"}\n\n'
    bytes_ = b'id: 5\nevent: output\ndata: {"stream":"stderr","from":3,"next":5,"base64":"/wA="}\n\n'
    dropped = b'id: 9\nevent: dropped\ndata: {"from":5,"next":9}\n\n'
    end = b'event: end\ndata: {}\n\n'
    client, requests = client_of(stream(first, httpx.ReadError("x")), stream(bytes_, dropped, end))
    with TaskHandle(client._connection, TASK).follow_output(tail=3) as output:
        assert list(output) == [
            OutputPart("stdout", 0, 3, b"hi\n"),
            OutputPart("stderr", 3, 5, b"\xff\0"),
            OutputGap(5, 9),
        ]
        assert list(output) == []
    assert "last-event-id" not in requests[0].headers
    assert requests[1].headers["last-event-id"] == "3"
