// The npm package @agentclientprotocol/sdk as the editor of `brigade acp`. Arguments: the directory of
// `node_modules`, the program `brigade`, and the directory of the session.

import assert from "node:assert";
import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";

const [modules, program, cwd] = process.argv.slice(2);
const packages = createRequire(`${modules}/`);
const acp = await import(pathToFileURL(packages.resolve("@agentclientprotocol/sdk")));
const { agent, client } = acp.methods;
const kinds = new Set();
const allowed = [];
let text = "";

const server = spawn(program, ["acp"], { stdio: ["pipe", "pipe", "inherit"] });
const stream = acp.ndJsonStream(Writable.toWeb(server.stdin), Readable.toWeb(server.stdout));
const editor = acp
  .client({ name: "editor" })
  .onRequest(client.session.requestPermission, ({ params }) => {
    allowed.push(params.toolCall.rawInput.command);
    const option = params.options.find((option) => option.kind === "allow_once");
    return { outcome: { outcome: "selected", optionId: option.optionId } };
  })
  .onNotification(client.session.update, ({ params }) => {
    kinds.add(params.update.sessionUpdate);
    if (params.update.sessionUpdate === "agent_message_chunk") text += params.update.content.text;
  });

await editor.connectWith(stream, async (connection) => {
  const capabilities = { protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: {} };
  const initialized = await connection.request(agent.initialize, capabilities);
  assert(initialized.agentCapabilities.loadSession);
  const opened = await connection.request(agent.session.new, { cwd, mcpServers: [] });
  const { sessionId } = opened;
  const say = async (text) => {
    const prompt = [{ type: "text", text }];
    return connection.request(agent.session.prompt, { sessionId, prompt });
  };
  assert.equal((await say("Go")).stopReason, "end_turn");
  assert.equal(text, "It ran.");
  assert.deepEqual(allowed, ["echo done >> made; true"]);
  for (const kind of ["tool_call", "tool_call_update", "plan"]) assert(kinds.has(kind), kind);
  const { sessions } = await connection.request(agent.session.list, { cwd });
  assert.deepEqual(sessions.map((listed) => listed.sessionId), [sessionId]);
  await connection.request(agent.session.close, { sessionId });
  kinds.clear();
  await connection.request(agent.session.load, { sessionId, cwd, mcpServers: [] });
  assert(kinds.has("user_message_chunk"));
  assert.equal((await say("Carry on")).stopReason, "end_turn");
});
server.stdin.end();
