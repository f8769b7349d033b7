"""The client against a real server."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import brigade_client
import pytest
from brigade_client import AsyncClient, Client, FeedChange, OutputPart, SessionHandle
from brigade_client.api_types import SessionRequestName
from server import Server, free_port


def test_a_process_and_its_result(session: SessionHandle) -> None:
    task = session.spawn_process("echo out; echo err >&2", name="Echo")
    assert task.result(30)["exit_code"] == 0
    assert task.output("stdout") == b"out\n"
    assert task.output(tail=2) in (b"t\n", b"r\n")
    shown = task.show()
    assert (shown["name"], shown["state"], shown["alive"]) == ("Echo", "succeeded", False)
    assert task.session_id == session.id
    assert not task.replayed


def test_a_failure_has_its_outcome(session: SessionHandle) -> None:
    task = session.spawn_process(["sh", "-c", "echo why; exit 3"])
    with pytest.raises(brigade_client.TaskFailedError, match="exit code 3") as raised:
        task.result(30)
    assert raised.value.partial["tail"] == "why\n"
    assert raised.value.task["exit_code"] == 3


def test_a_stop_is_a_cancellation(session: SessionHandle) -> None:
    task = session.spawn_process("sleep 600")
    assert task.stop("enough", grace_secs=1)["already"] is False
    with pytest.raises(brigade_client.TaskCancelledError) as raised:
        task.result(30)
    assert raised.value.outcome and raised.value.outcome["reason"] == "enough"
    assert task.stop()["already"] is True


def test_lines_are_sent_once(session: SessionHandle) -> None:
    task = session.spawn_process("cat", stdin=True)
    assert task.send("one", key="k") == task.send("one", key="k")
    task.send("two")
    with pytest.raises(brigade_client.ConflictError):
        task.send("another", key="k")
    task.close_input()
    task.result(30)
    assert task.output() == b"one\ntwo\n"


def test_a_wait_has_a_timeout(session: SessionHandle) -> None:
    slow = session.spawn_process("sleep 600")
    quick = session.spawn_process("true")
    for timeout in (0, 0.2, 1.2):
        with pytest.raises(TimeoutError):
            slow.wait(timeout)
    waited = session.wait([slow, quick.id], timeout=30)
    assert [task["id"] for task in waited["ended"]] == [quick.id]
    assert session.wait([slow, quick], mode="all", timeout=0)["done"] is False
    slow.stop()
    slow.wait(30)


def test_a_key_is_one_task(session: SessionHandle) -> None:
    first = session.spawn_process("true", key="build 17")
    second = session.spawn_process("true", key="build 17")
    assert (second.id, first.replayed, second.replayed) == (first.id, False, True)
    with pytest.raises(brigade_client.ConflictError):
        session.spawn_process("false", key="build 17")
    assert session.spawn_process("true").id != session.spawn_process("true").id


def test_a_resumed_task_runs_again(session: SessionHandle) -> None:
    for collect in (False, True):
        task = session.spawn_process("sleep 0.3; exit 1")
        assert task.wait(30)["run"] == 1
        assert task.resume()["run"] == 2
        with pytest.raises(brigade_client.WaitTimeoutError):
            task.wait(0, collect=collect)
        ended = task.wait(30, collect=collect)
        assert (ended["run"], ended["state"], ended["exit_code"]) == (2, "failed", 1)


def start_asker(session: SessionHandle) -> brigade_client.TaskHandle:
    permissions: Any = {"allow": ["run_process"], "ask": ["run_process"]}
    task = session.spawn_agent("Run it.", name="Asker", permissions=permissions)
    waited = session.wait([task], until="ended_or_input", timeout=30)
    assert waited["pending_approvals"][0]["task"] == task.id
    return task


def test_a_call_is_approved_or_denied(client: Client, session: SessionHandle) -> None:
    task = start_asker(session)
    pending = [one for one in client.pending()["approvals"] if one["task"] == task.id]
    client.task(pending[0]["task"]).approve(pending[0]["approval"])
    assert "It ran" in task.result(30)
    assert "allowed" in json.dumps(list(task.transcript()))

    denied = start_asker(session)
    denied.deny(denied.approvals()[0], "not today")
    denied.wait(30)
    assert "not today" in json.dumps(list(denied.transcript()))
    with pytest.raises(brigade_client.EndedError):
        denied.deny(pending[0]["approval"])


def test_output_is_followed_to_its_end(session: SessionHandle) -> None:
    task = session.spawn_process(r"for i in 1 2 3; do echo $i; sleep 0.1; done; printf '\377'")
    with task.follow_output() as output:
        parts = list(output)
    assert all(isinstance(part, OutputPart) for part in parts)
    assert b"".join(part.data for part in parts if isinstance(part, OutputPart)) == b"1\n2\n3\n\xff"


def test_changes_are_followed(session: SessionHandle) -> None:
    with session.events(types=["spawned", "ended"], rows=True) as events:
        task = session.spawn_process("true")
        found = []
        for item in events:
            assert isinstance(item, FeedChange)
            if item.change.get("task") == task.id:
                found.append((item.change["type"], item.change["row"]["id"]))
                if item.change["type"] == "ended":
                    break
    assert found == [("spawned", task.id), ("ended", task.id)]
    with task.events(after=None) as own:
        assert own.cursor is not None


def test_a_gap_is_an_item(server: Server) -> None:
    with Client(server.url, server.token) as client:
        session = client.session(server.project)
        with client.events() as events:
            start = events.cursor
        session.spawn_process("true", name="Removed").wait(30)
        server.run("prune", "--older", "0")
        # A server holds the newest changes in memory.
        server.restart()
        with client.events(start) as events:
            first = next(events)
        assert isinstance(first, brigade_client.FeedGap)
        with client.events(first.cursor) as events:
            session.spawn_process("true")
            assert isinstance(next(events), FeedChange)


def test_lists_have_all_pages(client: Client, session: SessionHandle) -> None:
    tasks = [session.spawn_process("true", name=f"Page {at}") for at in range(5)]
    for task in tasks:
        task.wait(30)
    listed = [task["id"] for task in client.tasks(ended=True, session=session.id, limit=2)]
    assert {task.id for task in tasks} <= set(listed)
    assert len(listed) == len(set(listed))
    assert next(session.tasks(ended=True, order="newest", limit=2))["id"] == tasks[-1].id


def test_a_session_has_a_name(client: Client) -> None:
    session = client.session(name="kitchen")
    assert session.show()["name"] == "kitchen"
    with pytest.raises(brigade_client.InvalidError, match="cwd"):
        session.spawn_process("true")
    assert session.id in {one.id for one in client.sessions()}
    wanted: SessionRequestName = {"name": "kitchen"}
    assert client.request("POST", "sessions", body=wanted)["id"] == session.id
    session.close("over")
    with pytest.raises(brigade_client.EndedError):
        session.spawn_process("true", cwd="/tmp")


def test_wrong_requests_have_typed_errors(client: Client, session: SessionHandle) -> None:
    with pytest.raises(brigade_client.NotFoundError):
        session.task(99_999).show()
    with pytest.raises(brigade_client.InvalidError):
        session.spawn_process("true", cwd="relative")
    with pytest.raises(brigade_client.InvalidError, match="cursor"):
        next(client.events("of another store"))
    with pytest.raises(brigade_client.NotFoundError):
        client.request("GET", "sparkles")
    with pytest.raises(brigade_client.NotFoundError, match="missing"):
        session.spawn_job("missing")


def test_tokens_have_their_rights(server: Server) -> None:
    with Client(server.url, server.add_token("--client", "cook")) as cook:
        session = cook.session()
        assert session.name == str(server.project)
        assert cook.session(server.project).id == session.id
        with pytest.raises(brigade_client.ForbiddenError, match="sandbox"):
            session.spawn_process("true")
        with pytest.raises(brigade_client.NotFoundError):
            cook.session(name="elsewhere")
    with Client(server.url, server.add_token("--read-only", "eye")) as eye:
        with pytest.raises(brigade_client.ForbiddenError):
            eye.session(server.project).spawn_process("true")
    with Client(server.url, "brg_wrong") as nobody, pytest.raises(brigade_client.UnauthenticatedError):
        nobody.session()


def test_a_client_collects_a_result_once(server: Server) -> None:
    with Client(server.url, server.add_token("--client", "waiter")) as waiter:
        task = waiter.session().spawn_process("true", sandbox={})
        assert task.wait(30)["collected_before"] is False
        assert task.wait(30)["collected_before"] is True
        assert task.show()["collected"] is True


def test_a_wrong_url_says_so(server: Server) -> None:
    with Client(f"http://127.0.0.1:{free_port()}", server.token) as client:
        with pytest.raises(brigade_client.UnavailableError, match="refused"):
            client.whoami()
    with Client(f"{server.url}/elsewhere", server.token) as client:
        with pytest.raises(brigade_client.BrigadeError):
            client.whoami()


def test_the_client_has_coroutines(server: Server) -> None:
    async def work() -> list[str]:
        async with AsyncClient(server.url, server.token) as client:
            session = await client.session(server.project)
            async with client.events() as events:
                lines = ("one", "two", "three")
                spawns = [session.spawn_process(f"echo {line}") for line in lines]
                tasks = await asyncio.gather(*spawns)
                await session.wait(tasks, mode="all", timeout=30)
                found = []
                async for item in events:
                    assert isinstance(item, FeedChange)
                    found.append(item.change["type"])
                    if found.count("ended") == 3:
                        break
            listed = [task["id"] async for task in session.tasks(ended=True)]
            assert {task.id for task in tasks} <= set(listed)
            outputs = []
            for task in tasks:
                async with task.follow_output() as output:
                    async for part in output:
                        assert isinstance(part, OutputPart)
                        outputs.append(part.text.strip())
            return outputs

    assert asyncio.run(work()) == ["one", "two", "three"]
