"""Tests the MCP server with the official Python client: client.py PROGRAM STATE_DIR.

Prints one line for each check and exits with an error at the first failure.
"""

import asyncio
import os
import signal
import sys
import time
from contextlib import asynccontextmanager

from mcp import Client, StdioServerParameters
from mcp.types import Implementation

PROGRAM, STATE = sys.argv[1], sys.argv[2]


@asynccontextmanager
async def client(mode="auto", name="python"):
    async with raw_client(mode, name) as c:
        yield Halves(c)


def raw_client(mode, name):
    server = StdioServerParameters(command=PROGRAM, args=[STATE, "kitchen"], cwd=os.getcwd())
    return Client(server, mode=mode, client_info=Implementation(name=name, version="1"))


def text(result):
    return "".join(block.text for block in result.content if block.type == "text")


class Halves:
    """A client that checks text and structured content of every reply: programs show their model only one."""

    def __init__(self, client):
        self.client = client

    def __getattr__(self, name):
        return getattr(self.client, name)

    async def call_tool(self, tool, arguments, **options):
        result = await self.client.call_tool(tool, arguments, **options)
        words = text(result)
        fields = result.structured_content
        if fields is None or list(fields)[0] != "message":
            report(f"{tool}: the structured content begins with a message", False, fields)
        message = fields["message"]
        missing = [line for line in message.splitlines() if line not in words]
        check_quietly(f"{tool}: the text contains the message", not missing, missing)
        texts = "\n".join(strings(fields))
        for line in words.splitlines():
            known = line.strip().removeprefix("says: ")
            address = known.split(" ")[0]
            fact = known in LABELS or known in texts or any(a == address for a in addresses(fields))
            check_quietly(f"{tool}: the structured content has the line", fact, line)
        noise = {"session", "quiet_ms", "alive", "elapsed_ms"} & set(fields)
        check_quietly(f"{tool}: no field is noise", not noise, noise)
        check_quietly(f"{tool}: output is lines", isinstance(fields.get("output", []), list))
        return result


LABELS = {"", "Output so far:", "Still running:", "Ready:", "Started by others:", "(no output)", "(no output here)"}


def strings(value):
    if isinstance(value, str):
        return [value]
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    return [string for part in parts for string in strings(part)]


def addresses(fields):
    lists = [fields.get(name, []) for name in ("tasks", "still_running", "ready", "ended", "others")]
    return [task["address"] for tasks in lists for task in tasks]


def check_quietly(check, fact, detail=""):
    if not fact:
        report(check, fact, detail)


def report(check, fact, detail=""):
    if not fact:
        print("FAILED:", check, detail, flush=True)
        sys.exit(1)
    print("passed:", check, flush=True)


def kill_daemon():
    with open(os.path.join(STATE, "daemon.lock")) as lock:
        os.kill(int(lock.readline()), signal.SIGKILL)


async def basics(mode):
    async with client(mode) as c:
        version = c.protocol_version
        tools = (await c.list_tools()).tools
        strict = all(tool.input_schema["additionalProperties"] is False for tool in tools)
        report(f"{mode}: {version}, {len(tools)} tools, all strict", len(tools) == 7 and strict)
        result = await c.call_tool("run_process", {"command": "echo hi; exit 3"})
        fact = result.structured_content["exit_code"] == 3 and not result.is_error
        report(f"{mode}: a call, its exit code and output", fact and "hi" in text(result), result)
        result = await c.call_tool("run_process", {"command": "true", "wrong": 1})
        report(f"{mode}: a wrong argument is named", result.is_error and "`wrong`" in text(result))
        received = []

        async def progress(done, total, message):
            received.append((done, message))

        command = "for i in 1 2 3; do echo line $i; sleep 1; done"
        await c.call_tool("run_process", {"command": command}, progress_callback=progress)
        fact = received and any((message or "").startswith("line") for _, message in received)
        report(f"{mode}: progress with the last line, {len(received)} times", fact, received)


async def every_tool():
    """Calls each tool once, to check both halves of its reply."""
    async with client(name="halves") as c:
        call = {"command": "cat", "name": "Cat", "stdin": True, "background": True}
        address = (await c.call_tool("run_process", call)).structured_content["address"]
        await c.call_tool("list_tasks", {})
        await c.call_tool("wait_tasks", {"wait_secs": 0})
        await c.call_tool("send_message", {"to": "Cat", "message": "meow"})
        await c.call_tool("read_output", {"task": address})
        await c.call_tool("stop_task", {"task": address, "wait_for_previous": True})
        await c.call_tool("wait_tasks", {"tasks": [address]})
        refused = await c.call_tool("spawn_agent", {"task": "Look."})
        hint = refused.structured_content["error"]["hint"]
        report("each half of every tool's reply is enough", refused.is_error and hint in text(refused))


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


async def long_call_and_kill():
    async with client() as c:
        call = c.call_tool("run_process", {"command": "echo x >> ran; sleep 6; echo over; exit 4"})
        task = asyncio.create_task(call)
        for _ in range(2):
            await asyncio.sleep(1.5)
            kill_daemon()
        result = await task
        fact = result.structured_content["exit_code"] == 4 and "over" in text(result)
        report("a long call is answered though the daemon was killed twice", fact, text(result))
        with open("ran") as ran:
            report("and the command ran once", ran.read() == "x\n")


async def two_clients():
    async with client(name="one") as one, client("legacy", name="two") as two:
        run = {"command": "sleep 1; echo done", "background": True}
        first, second = await asyncio.gather(
            one.call_tool("run_process", run), two.call_tool("run_process", run)
        )
        addresses = {first.structured_content["address"], second.structured_content["address"]}
        waits = await asyncio.gather(
            one.call_tool("wait_tasks", {"mode": "all"}), two.call_tool("wait_tasks", {"mode": "all"})
        )
        taken = [w.structured_content["ended"] for w in waits]
        own = len(addresses) == 2 and all(len(ended) == 1 for ended in taken)
        report("two clients at once, each gets its own results", own, taken)


async def killed_server():
    try:
        async with client(name="fragile") as c:
            call = {"command": "sleep 3; echo survived", "name": "Tough", "background": True}
            await c.call_tool("run_process", call)
            for entry in os.listdir("/proc"):
                if entry.isdigit():
                    try:
                        with open(f"/proc/{entry}/cmdline", "rb") as file:
                            words = file.read().split(b"\0")
                    except OSError:
                        continue
                    if words[:3] == [PROGRAM.encode(), STATE.encode(), b"kitchen"]:
                        os.kill(int(entry), signal.SIGKILL)
            kill_daemon()
            await asyncio.sleep(0.2)
    except BaseException as error:
        print("passed: the client of a killed server gets an error:", type(error).__name__, flush=True)
    async with client(name="fragile") as c:
        # The first conversation may reconnect within a minute. Until then the result is read by name.
        result = await c.call_tool("wait_tasks", {"tasks": ["Tough"]})
        ended = result.structured_content["ended"]
        fact = [task["output"] for task in ended] == [["survived"]]
        report("server and daemon killed with -9: the next conversation has the result", fact, text(result))


async def main():
    started_at = time.monotonic()
    for mode in ["legacy", "auto", "2026-07-28"]:
        await basics(mode)
    for mode in ["legacy", "2026-07-28"]:
        await cancel(mode)
    await every_tool()
    await two_clients()
    await long_call_and_kill()
    await killed_server()
    print(f"all passed in {time.monotonic() - started_at:.0f}s")


asyncio.run(main())
