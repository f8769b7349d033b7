"""An agent of the Python package agent-client-protocol, as a program that Brigade runs."""

import asyncio

from acp import (
    PROTOCOL_VERSION,
    InitializeResponse,
    NewSessionResponse,
    PromptResponse,
    run_agent,
    start_tool_call,
    update_agent_message,
    update_tool_call,
    text_block,
)
from acp.schema import PermissionOption, ToolCallUpdate

COMMAND = {"command": "echo soup"}
OPTIONS = [
    PermissionOption(optionId="no", name="No", kind="reject_once"),
    PermissionOption(optionId="yes", name="Yes", kind="allow_once"),
]


class Cook:
    def on_connect(self, client):
        self.client = client

    async def initialize(self, protocol_version, **kwargs):
        return InitializeResponse(protocolVersion=PROTOCOL_VERSION)

    async def new_session(self, cwd, **kwargs):
        return NewSessionResponse(sessionId="kitchen")

    async def cancel(self, session_id, **kwargs):
        pass

    async def prompt(self, session_id, prompt, **kwargs):
        send = lambda update: self.client.session_update(session_id, update)
        call = start_tool_call("call-1", "Cook", kind="execute", raw_input=COMMAND)
        await send(call)
        asked = ToolCallUpdate(toolCallId="call-1", title="Cook", kind="execute", rawInput=COMMAND)
        answer = await self.client.request_permission(session_id, asked, OPTIONS)
        outcome = answer.outcome
        allowed = outcome.outcome == "selected" and outcome.option_id == "yes"
        status = "completed" if allowed else "failed"
        await send(update_tool_call("call-1", status=status))
        said = prompt[-1].text.split()[-1]
        text = f"Soup for {said}" if allowed else "Not allowed."
        await send(update_agent_message(text_block(text)))
        return PromptResponse(stopReason="end_turn")


asyncio.run(run_agent(Cook()))
