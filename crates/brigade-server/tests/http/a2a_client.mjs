// Tests published agents with the official JavaScript client: a2a_client.mjs URL. BRIGADE_TOKEN is the
// token. Prints one line for each check and exits with an error at the first failure.

import {
  ClientFactory,
  JsonRpcTransportFactory,
  RestTransportFactory,
} from "@a2a-js/sdk/client";
import { Role, TaskState } from "@a2a-js/sdk";

const [, , base] = process.argv;

function report(check, fact, detail) {
  if (!fact) {
    console.log("FAILED:", check, JSON.stringify(detail));
    process.exit(1);
  }
  console.log("passed:", check);
}

function fetchWithToken(input, options = {}) {
  const headers = new Headers(options.headers);
  headers.set("Authorization", `Bearer ${process.env.BRIGADE_TOKEN}`);
  return fetch(input, { ...options, headers });
}

function request(messageId, text, task, configuration) {
  const parts = [{ content: { $case: "text", value: text }, filename: "", mediaType: "" }];
  const message = {
    messageId,
    contextId: task?.contextId ?? "",
    taskId: task?.id ?? "",
    role: Role.ROLE_USER,
    parts,
    extensions: [],
    referenceTaskIds: [],
  };
  return { tenant: "", message, configuration };
}

async function check(name, transport) {
  const factory = new ClientFactory({ transports: [transport] });
  const connect = (agent) => factory.createFromUrl(`${base}/a2a/${agent}/.well-known/agent-card.json`, "");

  const baker = await connect("baker");
  const sent = await baker.sendMessage(request(`js-bake-${name}`, "Bake."));
  const task = sent.payload?.value ?? sent;
  const isDone = task.status.state === TaskState.TASK_STATE_COMPLETED;
  report(`${name}: a result`, isDone && task.artifacts[0].parts[0].content.value === "Baked.", task);
  const got = await baker.getTask({ tenant: "", id: task.id });
  report(`${name}: a task`, got.id === task.id && got.history.length === 2, got);

  const painter = await connect("painter");
  const kinds = [];
  let asked;
  for await (const event of painter.sendMessageStream(request(`js-paint-${name}`, "Paint."))) {
    kinds.push(event.payload.$case);
    if (event.payload.$case === "task") {
      asked = event.payload.value;
    } else if (event.payload.$case === "statusUpdate") {
      asked.status = event.payload.value.status;
    }
  }
  const isAsking = asked.status.state === TaskState.TASK_STATE_INPUT_REQUIRED;
  report(`${name}: a question in a stream`, isAsking && kinds[0] === "task", { kinds, asked });
  const answered = await painter.sendMessage(request(`js-answer-${name}`, "blue", asked));
  const painted = answered.payload?.value ?? answered;
  report(`${name}: an answer`, painted.artifacts[0].parts[0].content.value === "Painted blue.", painted);

  const sleeper = await connect("sleeper");
  const now = { acceptedOutputModes: [], returnImmediately: true };
  const started = await sleeper.sendMessage(request(`js-sleep-${name}`, "Sleep.", undefined, now));
  const sleeping = started.payload?.value ?? started;
  const canceled = await sleeper.cancelTask({ tenant: "", id: sleeping.id });
  report(`${name}: a cancellation`, canceled.status.state === TaskState.TASK_STATE_CANCELED, canceled);
}

await check("JSONRPC", new JsonRpcTransportFactory({ fetchImpl: fetchWithToken }));
await check("HTTP+JSON", new RestTransportFactory({ fetchImpl: fetchWithToken }));
