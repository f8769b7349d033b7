// `npm test`: starts a server with the tasks that the tests need, runs the tests, and stops all of it.

import { spawnSync } from 'node:child_process';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { World } from './world.js';

const binary = process.env.BRIGADE_BIN;
const world = binary ? await World.start(binary) : null;
// The tests run in order: they share one server and decide its pending approvals.
const run = spawnSync(
  process.execPath,
  ['--test', '--test-concurrency=1', ...process.argv.slice(2)],
  {
    cwd: dirname(fileURLToPath(import.meta.url)),
    env: { ...process.env, ...world?.variables() },
    stdio: 'inherit',
  },
);
await world?.stop();
process.exitCode = run.status ?? 1;
