"""Tests published agents with the official Python client: a2a_client.py URL. BRIGADE_TOKEN is the token.

Prints one line for each check and exits with an error at the first failure.
"""

import asyncio
import os
import sys

import httpx

from a2a.client import ClientConfig, create_client
from a2a.types import (
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    SubscribeToTaskRequest,
    TaskState,
)
from a2a.utils.errors import TaskNotFoundError

URL = sys.argv[1]
HEADERS = {"Authorization": f"Bearer {os.environ['BRIGADE_TOKEN']}"}


def report(check, fact, detail=""):
    if not fact:
        print("FAILED:", check, detail, flush=True)
        sys.exit(1)
    print("passed:", check, flush=True)


def request(message_id, text, task=None):
    message = Message(message_id=message_id, role=Role.ROLE_USER, parts=[Part(text=text)])
    if task is not None:
        message.task_id = task.id
        message.context_id = task.context_id
    return SendMessageRequest(message=message)


async def connect(agent, transport, streaming):
    http = httpx.AsyncClient(headers=HEADERS, timeout=60)
    config = ClientConfig(
        httpx_client=http, supported_protocol_bindings=[transport], streaming=streaming
    )
    return await create_client(f"{URL}/a2a/{agent}", client_config=config)


async def send(client, sent):
    """Sends a message, and returns the task after all its updates."""
    task = None
    async for event in client.send_message(sent):
        if event.HasField("task"):
            task = event.task
        elif event.HasField("status_update"):
            task.status.CopyFrom(event.status_update.status)
        elif event.HasField("artifact_update"):
            task.artifacts.append(event.artifact_update.artifact)
    return task


async def check(transport, streaming):
    name = f"{transport}, {'streaming' if streaming else 'polling'}"
    key = f"{transport}-{streaming}"
    async with await connect("baker", transport, streaming) as client:
        task = await send(client, request(f"bake-{key}", "Bake."))
        fact = task.status.state == TaskState.TASK_STATE_COMPLETED
        fact = fact and task.artifacts[0].parts[0].text == "Baked."
        report(f"{name}: a result", fact, task)
        again = await send(client, request(f"bake-{key}", "Bake."))
        report(f"{name}: a repeated message", again.id == task.id, again)
        got = await client.get_task(GetTaskRequest(id=task.id))
        report(f"{name}: history", [m.role for m in got.history] == [1, 2], got)
        listed = await client.list_tasks(ListTasksRequest(context_id=task.context_id))
        report(f"{name}: a list", [t.id for t in listed.tasks] == [task.id], listed)
        try:
            await client.get_task(GetTaskRequest(id="x"))
            report(f"{name}: an unknown task", False)
        except TaskNotFoundError:
            report(f"{name}: an unknown task", True)
    async with await connect("painter", transport, streaming) as client:
        task = await send(client, request(f"paint-{key}", "Paint."))
        fact = task.status.state == TaskState.TASK_STATE_INPUT_REQUIRED
        fact = fact and task.status.message.parts[0].text == "Red or blue?"
        report(f"{name}: a question", fact, task)
        done = await send(client, request(f"answer-{key}", "blue", task))
        report(f"{name}: an answer", done.artifacts[0].parts[0].text == "Painted blue.", done)
    async with await connect("sleeper", transport, streaming) as client:
        sent = request(f"sleep-{key}", "Sleep.")
        sent.configuration.return_immediately = True
        if streaming:
            async for event in client.send_message(sent):
                task = event.task
                break
        else:
            task = await send(client, sent)
        # A client that does not stream refuses to subscribe.
        if streaming:
            updates = client.subscribe(SubscribeToTaskRequest(id=task.id))
            first = await anext(updates)
            report(f"{name}: a subscription", first.task.id == task.id, first)
        canceled = await client.cancel_task(CancelTaskRequest(id=task.id))
        fact = canceled.status.state == TaskState.TASK_STATE_CANCELED
        report(f"{name}: a cancellation", fact, canceled)
        if streaming:
            last = [event async for event in updates][-1]
            fact = last.status_update.status.state == TaskState.TASK_STATE_CANCELED
            report(f"{name}: the end of a subscription", fact, last)


async def main():
    for transport in ["JSONRPC", "HTTP+JSON"]:
        for streaming in [True, False]:
            await check(transport, streaming)


asyncio.run(main())
