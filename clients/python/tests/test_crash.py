"""Servers that are killed, answers that are lost, and calls that are cancelled."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import brigade_client
import pytest
from brigade_client import AsyncClient, Client, FeedChange, OutputPart
from server import LossyProxy, Server

TIMEOUT = 60.0


@pytest.fixture
def proxy(server: Server) -> Iterator[LossyProxy]:
    proxy = LossyProxy(server.port)
    yield proxy
    proxy.close()


def in_background(action: Any) -> threading.Thread:
    thread = threading.Thread(target=action)
    thread.start()
    return thread


def test_a_wait_outlives_the_server(server: Server, client: Client) -> None:
    marker = server.project / "go"
    task = client.session(server.project).spawn_process(f"until [ -e {marker} ]; do sleep 0.05; done")

    def crash() -> None:
        time.sleep(0.3)
        server.restart()
        marker.touch()

    thread = in_background(crash)
    ended = task.wait(TIMEOUT)
    thread.join()
    assert (ended["state"], ended["attempt"]) == ("succeeded", 1)


def test_a_stream_misses_and_repeats_nothing(server: Server) -> None:
    async def work() -> None:
        async with AsyncClient(server.url, server.token) as client:
            session = await client.session(server.project)
            crashes = asyncio.Event()

            async def spawn() -> str:
                for number in range(60):
                    if number % 20 == 10:
                        await asyncio.to_thread(server.restart)
                    task = await session.spawn_process("true", name=f"Many {number}")
                crashes.set()
                return task.id

            async with session.events() as events:
                start = events.cursor
                spawning = asyncio.create_task(spawn())
                found = []
                ended = set()
                async for item in events:
                    assert isinstance(item, FeedChange)
                    found.append(item.change["seq"])
                    if item.change["type"] == "ended":
                        ended.add(item.change["task"])
                    if len(ended) == 60:
                        break
                await spawning
                end = events.cursor
            page = await client.request(
                "GET", f"sessions/{session.id}/events", query={"after": start, "limit": 1000}
            )
            stored = [change["seq"] for change in page["items"]]
            assert found == stored[: len(found)]
            assert (start, len(set(found))) != (end, 0)
            names = [task async for task in session.tasks(ended=True, text="Many")]
            assert len(names) == 60

    asyncio.run(asyncio.wait_for(work(), TIMEOUT * 2))


def test_output_misses_and_repeats_nothing(server: Server, client: Client) -> None:
    line = "for i in $(seq 1 300); do echo line $i; sleep 0.005; done"
    task = client.session(server.project).spawn_process(line)
    thread = None
    data = b""
    for part in task.follow_output():
        assert isinstance(part, OutputPart)
        assert part.start == len(data)
        data += part.data
        if thread is None:
            thread = in_background(server.restart)
    assert thread is not None
    thread.join()
    assert data.decode().split("\n")[:-1] == [f"line {number}" for number in range(1, 301)]


def test_a_lost_answer_spawns_once(server: Server, proxy: LossyProxy) -> None:
    with Client(proxy.url, server.token) as client:
        session = client.session(server.project)
        proxy.lose = 3
        task = session.spawn_process("echo once", name="Lost answer")
        assert proxy.lose == 0
        assert task.replayed
        task.wait(TIMEOUT)
        found = list(session.tasks(ended=True, text="Lost answer"))
        assert [one["id"] for one in found] == [task.id]


def test_a_lost_answer_sends_once(server: Server, proxy: LossyProxy) -> None:
    with Client(proxy.url, server.token) as client:
        task = client.session(server.project).spawn_process("cat", stdin=True)
        proxy.lose = 2
        task.send("once")
        proxy.lose = 2
        task.close_input()
        task.wait(TIMEOUT)
        assert task.output() == b"once\n"


def test_a_lost_answer_of_another_request_is_unknown(server: Server, proxy: LossyProxy) -> None:
    with Client(proxy.url, server.token) as client:
        task = client.session(server.project).spawn_process("false")
        task.wait(TIMEOUT)
        proxy.lose = 1
        with pytest.raises(brigade_client.UnknownError, match="may have been executed"):
            task.resume()
        assert task.show()["run"] == 2


def test_a_collected_result_is_returned_again(server: Server, proxy: LossyProxy) -> None:
    with Client(proxy.url, server.add_token("--client", "unlucky")) as client:
        task = client.session().spawn_process("true", sandbox={})
        proxy.lose = 1
        ended = task.wait(TIMEOUT)
        assert ended["state"] == "succeeded"
        assert ended["collected_before"] is True


def test_a_spawn_waits_for_the_next_server(server: Server, client: Client) -> None:
    session = client.session(server.project)
    server.kill()

    def restart_later() -> None:
        time.sleep(0.5)
        server.start()

    thread = in_background(restart_later)
    task = session.spawn_process("true")
    thread.join()
    assert task.wait(TIMEOUT)["state"] == "succeeded"


def test_a_server_that_stays_away_is_unavailable(server: Server) -> None:
    with Client(server.url, server.token, retry_for=0.5) as client:
        task = client.session(server.project).spawn_process("true")
        events = client.events()
        events.start()
        server.kill()
        try:
            for action in (task.show, task.wait, task.resume, lambda: next(events)):
                with pytest.raises(brigade_client.UnavailableError):
                    action()
        finally:
            server.start()
        # The streams and the client go on.
        task.wait(TIMEOUT)
        assert isinstance(next(events), FeedChange)


def test_a_cancelled_read_loses_nothing(server: Server) -> None:
    async def work() -> None:
        async with AsyncClient(server.url, server.token) as client:
            session = await client.session(server.project)
            async with session.events(types=["spawned"]) as events:
                spawned = []
                found: list[Any] = []
                for _ in range(20):
                    for _ in range(2):
                        try:
                            item = await asyncio.wait_for(anext(events), 0.004)
                        except asyncio.TimeoutError:
                            continue
                        assert isinstance(item, FeedChange)
                        found.append(item.change["task"])
                    spawned.append((await session.spawn_process("true")).id)
                while len(found) < len(spawned):
                    item = await asyncio.wait_for(anext(events), TIMEOUT)
                    assert isinstance(item, FeedChange)
                    found.append(item.change["task"])
                assert found == spawned

    asyncio.run(work())


def test_a_cancelled_wait_ends_the_request_and_not_the_task(server: Server) -> None:
    async def work() -> None:
        async with AsyncClient(server.url, server.token) as client:
            session = await client.session(server.project)
            task = await session.spawn_process("sleep 600")
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(task.wait(), 0.3)
            assert (await task.show())["alive"]
            await task.stop()
            await task.wait(TIMEOUT)

    asyncio.run(work())
