"""The Python package agent-client-protocol as the editor of `brigade acp`.

Arguments: the program `brigade`, and the directory of the session.
"""

import asyncio
import os
import sys

from acp import PROTOCOL_VERSION, Client, spawn_agent_process, text_block
from acp.schema import AllowedOutcome, RequestPermissionResponse


class Editor(Client):
    def __init__(self):
        self.kinds = []
        self.text = ""
        self.allowed = []

    async def request_permission(self, session_id, tool_call, options, **kwargs):
        self.allowed.append(tool_call.raw_input["command"])
        option = next(option for option in options if option.kind == "allow_once")
        outcome = AllowedOutcome(outcome="selected", optionId=option.option_id)
        return RequestPermissionResponse(outcome=outcome)

    async def session_update(self, session_id, update, **kwargs):
        self.kinds.append(update.session_update)
        if update.session_update == "agent_message_chunk":
            self.text += update.content.text


async def main(program, directory):
    editor = Editor()
    async with spawn_agent_process(editor, program, "acp", env=dict(os.environ)) as (agent, _):
        initialized = await agent.initialize(PROTOCOL_VERSION)
        assert initialized.agent_capabilities.load_session, initialized
        session = (await agent.new_session(directory, mcp_servers=[])).session_id
        answer = await agent.prompt(session, [text_block("Go")])
        assert answer.stop_reason == "end_turn", answer
        assert editor.text == "It ran.", editor.text
        assert editor.allowed == ["echo done >> made; true"], editor.allowed
        assert {"tool_call", "tool_call_update", "plan"} <= set(editor.kinds), editor.kinds
        listed = await agent.list_sessions(directory)
        assert [listed.session_id for listed in listed.sessions] == [session], listed
        await agent.close_session(session)
        editor.kinds.clear()
        await agent.load_session(directory, session, mcp_servers=[])
        assert "user_message_chunk" in editor.kinds, editor.kinds
        answer = await agent.prompt(session, [text_block("Carry on")])
        assert answer.stop_reason == "end_turn", answer


asyncio.run(main(*sys.argv[1:]))
