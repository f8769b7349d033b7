// The types of the dashboard's sources.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { TYPES_FILE, generateTypes } from './api_types.js';

test('tsc accepts the sources', () => {
  const typescript = dirname(createRequire(import.meta.url).resolve('typescript/package.json'));
  const web = join(dirname(fileURLToPath(import.meta.url)), '..', 'web');
  const run = spawnSync(process.execPath, [join(typescript, 'bin', 'tsc'), '--project', web], {
    encoding: 'utf8',
  });
  assert.equal(run.status, 0, run.stdout + run.stderr);
});

test('the types of the API are those of openapi.json', () => {
  assert.equal(readFileSync(TYPES_FILE, 'utf8'), generateTypes(), 'run `npm run types`');
});
