// A service of Restate, and the client that calls it over the ingress.
// usage: worker.cjs WORK COUNT IN_FLIGHT STEPS (see ../src/worker_script.rs)
"use strict";

const http = require("node:http");
const http2 = require("node:http2");
const readline = require("node:readline");
const { createRequire } = require("node:module");

// The SDK uses this function of Node.js 22. Earlier versions do not have it.
Promise.withResolvers ??= () => {
  const parts = {};
  parts.promise = new Promise((resolve, reject) => Object.assign(parts, { resolve, reject }));
  return parts;
};

const packages = createRequire(`${process.env.BRIGADE_PEERS_NODE}/`);
const restate = packages("@restatedev/restate-sdk");

const [work, count, inFlight, steps] = [process.argv[2], ...process.argv.slice(3).map(Number)];
const { INGRESS_PORT, ADMIN_PORT, SERVICE_PORT } = process.env;

const service = restate.service({
  name: "peers",
  handlers: {
    durable: async () => 0,
    steps: async (ctx) => {
      let sum = 0;
      for (let step = 0; step < steps; step++) sum += await ctx.run("one", () => 1);
      return sum;
    },
  },
});
const expected = work === "steps" ? steps : 0;
const agent = new http.Agent({ keepAlive: true, maxSockets: inFlight });

function post(port, path, body) {
  return new Promise((resolve, reject) => {
    const headers = { "content-type": "application/json" };
    const options = { host: "127.0.0.1", port, path, method: "POST", headers, agent };
    const request = http.request(options, (response) => {
      let text = "";
      response.on("data", (part) => (text += part));
      response.on("end", () =>
        response.statusCode < 300 ? resolve(text) : reject(new Error(`${path}: ${text}`)),
      );
    });
    request.on("error", reject);
    request.end(body);
  });
}

async function runLane(lane) {
  for (let item = lane; item < count; item += inFlight) {
    const result = Number(await post(INGRESS_PORT, `/peers/${work}`));
    if (result !== expected) throw new Error(`result ${result}`);
  }
}

async function main() {
  // `restate.serve` would listen on all interfaces.
  const server = http2.createServer(restate.createEndpointHandler({ services: [service] }));
  await new Promise((resolve) => server.listen(Number(SERVICE_PORT), "127.0.0.1", resolve));
  const uri = `http://127.0.0.1:${SERVICE_PORT}`;
  await post(ADMIN_PORT, "/deployments", JSON.stringify({ uri }));
  await post(INGRESS_PORT, `/peers/${work}`);
  console.log("ready");
  for await (const _ of readline.createInterface({ input: process.stdin })) break;
  await Promise.all(Array.from({ length: inFlight }, (_, lane) => runLane(lane)));
  console.log("done");
}

main().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
