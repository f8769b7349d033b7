// An agent of the npm package @agentclientprotocol/sdk, as a program that Brigade runs. The argument
// is the directory of `node_modules`.

import { createRequire } from "node:module";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const packages = createRequire(`${process.argv[2]}/`);
const acp = await import(pathToFileURL(packages.resolve("@agentclientprotocol/sdk")));
const { agent, client } = acp.methods;
const toolCall = {
  toolCallId: "call-1",
  title: "Cook",
  kind: "execute",
  rawInput: { command: "echo soup" },
};
const options = [
  { optionId: "no", name: "No", kind: "reject_once" },
  { optionId: "yes", name: "Yes", kind: "allow_once" },
];

async function cook({ params, client: editor }) {
  const { sessionId, prompt } = params;
  const send = (update) => editor.notify(client.session.update, { sessionId, update });
  await send({ sessionUpdate: "tool_call", status: "pending", ...toolCall });
  const asked = { sessionId, toolCall, options };
  const { outcome } = await editor.request(client.session.requestPermission, asked);
  const allowed = outcome.outcome === "selected" && outcome.optionId === "yes";
  const status = allowed ? "completed" : "failed";
  await send({ sessionUpdate: "tool_call_update", toolCallId: "call-1", status });
  const said = prompt.at(-1).text.trim().split(/\s+/).at(-1);
  const text = allowed ? `Soup for ${said}` : "Not allowed.";
  await send({ sessionUpdate: "agent_message_chunk", content: { type: "text", text } });
  return { stopReason: "end_turn" };
}

const output = Writable.toWeb(process.stdout);
const input = Readable.toWeb(process.stdin);
acp
  .agent({ name: "cook" })
  .onRequest(agent.initialize, () => ({ protocolVersion: acp.PROTOCOL_VERSION }))
  .onRequest(agent.session.new, () => ({ sessionId: "kitchen" }))
  .onRequest(agent.session.prompt, cook)
  .connect(acp.ndJsonStream(output, input));
