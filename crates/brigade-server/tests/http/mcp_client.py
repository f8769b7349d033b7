"""Tests MCP over HTTP with the official Python client: mcp_client.py URL. BRIGADE_TOKEN is the token.

Prints one line for each check and exits with an error at the first failure.
"""

import asyncio
import os
import sys

from mcp import Client
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client
from mcp.types import Implementation

URL = sys.argv[1]
HEADERS = {"Authorization": f"Bearer {os.environ['BRIGADE_TOKEN']}"}


def client(mode):
    http = create_mcp_http_client(headers=HEADERS)
    info = Implementation(name="python", version="1")
    return Client(streamable_http_client(URL, http_client=http), mode=mode, client_info=info)


def text(result):
    return "".join(block.text for block in result.content if block.type == "text")


def report(check, fact, detail=""):
    if not fact:
        print("FAILED:", check, detail, flush=True)
        sys.exit(1)
    print("passed:", check, flush=True)


async def basics(mode):
    async with client(mode) as c:
        tools = (await c.list_tools()).tools
        report(f"{mode}: {c.protocol_version}, {len(tools)} tools", len(tools) == 7)
        result = await c.call_tool("run_process", {"command": "echo hi; exit 3"})
        fact = result.structured_content["exit_code"] == 3 and "hi" in text(result)
        report(f"{mode}: a call, its exit code and output", fact, result)
        received = []

        async def progress(done, total, message):
            received.append(message)

        command = "for i in 1 2 3; do echo line $i; sleep 1; done"
        await c.call_tool("run_process", {"command": command}, progress_callback=progress)
        fact = any((message or "").startswith("line") for message in received)
        report(f"{mode}: progress with the last line, {len(received)} times", fact, received)
        run = {"command": "sleep 1; echo done", "background": True}
        await c.call_tool("run_process", run)
        result = await c.call_tool("wait_tasks", {})
        report(f"{mode}: a wait without names has the result", "done" in text(result), text(result))


async def cancel(mode):
    async with client(mode) as c:
        call = {"command": "sleep 3; echo out", "name": f"Slow {mode[0]}"}
        task = asyncio.create_task(c.call_tool("run_process", call))
        await asyncio.sleep(1)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            pass
        listed = await c.call_tool("list_tasks", {"state": "running"})
        report(f"{mode}: a cancelled call leaves the task running", call["name"] in text(listed))
        result = await c.call_tool("wait_tasks", {"tasks": [call["name"]]})
        report(f"{mode}: and its result is there", "out" in text(result), text(result))


async def two_clients():
    async with client("legacy") as one, client("legacy") as two:
        run = {"command": "sleep 1; echo done", "background": True}
        await asyncio.gather(one.call_tool("run_process", run), two.call_tool("run_process", run))
        waits = await asyncio.gather(
            one.call_tool("wait_tasks", {"mode": "all"}), two.call_tool("wait_tasks", {"mode": "all"})
        )
        taken = [len(w.structured_content["ended"]) for w in waits]
        report("two conversations of one token, each gets its own results", taken == [1, 1], taken)


async def main():
    for mode in ["legacy", "auto", "2026-07-28"]:
        await basics(mode)
    for mode in ["legacy", "2026-07-28"]:
        await cancel(mode)
    await two_clients()


asyncio.run(main())
