import assert from 'node:assert/strict';
import fs from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { inspect } from 'node:util';
import { afterEach, test } from 'node:test';
import { Client, ConflictError, UnavailableError, UnknownError } from '../dist/index.js';
import { FIRST_PAUSE_MS, LONGEST_PAUSE_MS, RetryPause, canRepeat, sleep } from '../dist/retry.js';
import { readSettings } from '../dist/settings.js';

const NAMES = ['BRIGADE_URL', 'BRIGADE_TOKEN', 'BRIGADE_TOKEN_FILE'];
for (const name of NAMES) delete process.env[name];
afterEach(() => NAMES.forEach((name) => delete process.env[name]));

test('options come before variables', (t) => {
  const dir = fs.mkdtempSync(path.join(os.tmpdir(), 'brigade-token-'));
  t.after(() => fs.rmSync(dir, { recursive: true }));
  const file = path.join(dir, 'token');
  fs.writeFileSync(file, 'from-file\n');
  const read = (options) => {
    const { url, token } = readSettings(options);
    return [url, token];
  };
  assert.deepEqual(read({ token: 'a' }), ['http://127.0.0.1:7777', 'a']);
  process.env.BRIGADE_URL = 'https://brigade.example/base/';
  process.env.BRIGADE_TOKEN_FILE = file;
  assert.deepEqual(read({}), ['https://brigade.example/base', 'from-file']);
  process.env.BRIGADE_TOKEN = 'from-variable';
  assert.equal(read({})[1], 'from-variable');
  assert.deepEqual(read({ url: 'http://localhost:1', tokenFile: file }), [
    'http://localhost:1',
    'from-file',
  ]);
});

test('a wrong URL is refused', () => {
  for (const url of ['brigade.example', 'ftp://x', 'http://', 'https://a@b', 'http://localhost/?a'])
    assert.throws(() => new Client({ url, token: 't' }), /URL/, url);
});

test('a token over http goes to this machine only', () => {
  for (const url of ['http://[::1]:7777', 'http://127.0.0.2', 'http://dev.localhost'])
    new Client({ url, token: 't' });
  for (const url of ['http://10.0.0.1', 'http://brigade.example', 'http://127.0.0.1.example'])
    assert.throws(() => new Client({ url, token: 't' }), /https/, url);
  new Client({ url: 'http://10.0.0.1', token: 't', insecureHttp: true });
});

test('a wrong token is refused and not shown', () => {
  for (const token of ['a b', 'a\nb: c', 'ü'])
    assert.throws(
      () => new Client({ token }),
      (error) => /token/.test(error.message) && !error.message.includes(token),
    );
  for (const token of ['', ' ']) assert.throws(() => new Client({ token }), /brigade token add/);
  assert.throws(() => new Client(), /brigade token add/);
  const client = new Client({ token: 's3cret' });
  assert.ok(!(inspect(client, { depth: 9 }) + JSON.stringify(client)).includes('s3cret'));
});

test('only what is safe is repeated', () => {
  assert.ok(canRepeat(new UnavailableError('x'), false));
  assert.ok(canRepeat(new UnknownError('x'), true));
  assert.ok(!canRepeat(new UnknownError('x'), false));
  assert.ok(!canRepeat(new ConflictError('x'), true));
  assert.ok(!canRepeat(new Error('x'), true));
});

test('pauses double and end', () => {
  let now = 0;
  const error = new UnavailableError('down');
  const pause = new RetryPause(30_000, Infinity, () => now);
  const pauses = [];
  assert.throws(() => {
    for (;;) {
      pauses.push(pause.next(error));
      now += pauses.at(-1);
    }
  }, UnavailableError);
  assert.ok(pauses[0] <= FIRST_PAUSE_MS && pauses[0] >= FIRST_PAUSE_MS / 2);
  assert.ok(Math.max(...pauses) <= LONGEST_PAUSE_MS && now <= 30_000 && now > 20_000);
  // It can be used again after it has given up.
  assert.ok(pause.next(error) <= FIRST_PAUSE_MS);
});

test('a pause respects the deadline and the server', () => {
  const now = () => 0;
  const error = new UnavailableError('down', { retryAfterMs: 2_000 });
  assert.equal(new RetryPause(30_000, Infinity, now).next(error), 2_000);
  assert.throws(() => new RetryPause(30_000, 1_000, now).next(error), UnavailableError);
  assert.throws(() => new RetryPause(30_000, Infinity, now).next(error, 1_000), UnavailableError);
  const far = new UnavailableError('down', { retryAfterMs: 3_600_000 });
  assert.equal(new RetryPause(30_000, Infinity, now).next(far), LONGEST_PAUSE_MS);
});

test('a pause ends with its signal', async () => {
  const reason = new Error('enough');
  await assert.rejects(sleep(60_000, AbortSignal.abort(reason)), reason);
  const controller = new AbortController();
  const pause = sleep(60_000, controller.signal);
  controller.abort(reason);
  await assert.rejects(pause, reason);
});
