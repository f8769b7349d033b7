// A runner of Graphile Worker, and the client that adds its jobs.
// usage: worker.cjs WORK COUNT IN_FLIGHT STEPS (see ../src/worker_script.rs)
"use strict";

const readline = require("node:readline");
const { createRequire } = require("node:module");
const packages = createRequire(`${process.env.BRIGADE_PEERS_NODE}/`);
const { run, makeWorkerUtils, Logger } = packages("graphile-worker");

const [count, inFlight] = process.argv.slice(3).map(Number);
const waiting = new Map();
const logger = new Logger(() => () => {});

async function main() {
  const runner = await run({
    connectionString: process.env.DATABASE_URL,
    concurrency: inFlight,
    maxPoolSize: inFlight,
    noHandleSignals: true,
    logger,
    taskList: { durable: async () => {} },
  });
  // The worker does not wait until the end of a job is stored: see waitUntilStored.
  runner.events.on("job:complete", ({ job, error }) => {
    const { resolve, reject } = waiting.get(job.payload.item);
    waiting.delete(job.payload.item);
    error ? reject(error) : resolve();
  });
  const runItem = async (item) => {
    const ended = new Promise((resolve, reject) => waiting.set(item, { resolve, reject }));
    await runner.addJob("durable", { item });
    await ended;
  };
  const runLane = async (lane) => {
    for (let item = lane; item < count; item += inFlight) await runItem(item);
  };
  const utils = await makeWorkerUtils({ connectionString: process.env.DATABASE_URL, logger });
  // The worker deletes the jobs that have ended.
  const waitUntilStored = async () => {
    const query = "select 1 from graphile_worker.jobs limit 1";
    while ((await utils.withPgClient((client) => client.query(query))).rowCount > 0);
  };
  await runItem("warm-up");
  await waitUntilStored();
  console.log("ready");
  for await (const _ of readline.createInterface({ input: process.stdin })) break;
  await Promise.all(Array.from({ length: inFlight }, (_, lane) => runLane(lane)));
  await waitUntilStored();
  console.log("done");
}

main().catch((error) => {
  console.error(error.message);
  process.exit(1);
});
