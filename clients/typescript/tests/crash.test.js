// Servers that are killed, answers that are lost, and calls that are cancelled.

import assert from 'node:assert/strict';
import fs from 'node:fs';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import * as brigade from '../dist/index.js';
import { LossyProxy, Server } from './server.js';

const timeoutMs = 60_000;
let server;
let session;

before(async () => {
  server = await Server.start();
  const client = new brigade.Client({ url: server.url, token: server.token });
  session = await client.session(server.project);
});

after(() => server?.stop());

async function openProxy(t, token = server.token) {
  const proxy = await LossyProxy.start(server.port);
  t.after(() => proxy.close());
  return [proxy, new brigade.Client({ url: proxy.url, token })];
}

test('a wait outlives the server', async () => {
  const marker = path.join(server.project, 'go');
  const task = await session.spawnProcess(`until [ -e ${marker} ]; do sleep 0.05; done`);
  const waiting = task.wait({ timeoutMs });
  await sleep(300);
  await server.restart();
  fs.writeFileSync(marker, '');
  const ended = await waiting;
  assert.deepEqual([ended.state, ended.attempt], ['succeeded', 1]);
});

test('a stream misses and repeats nothing', async () => {
  const events = await session.events().start();
  const start = events.cursor;
  const spawnAll = async () => {
    for (let number = 0; number < 60; number += 1) {
      if (number % 20 === 10) await server.restart();
      await session.spawnProcess({ shell: 'true', name: `Many ${number}` });
    }
  };
  const spawning = spawnAll();
  const found = [];
  const ended = new Set();
  for await (const item of events) {
    found.push(item.change.seq);
    if (item.change.type === 'ended') ended.add(item.change.task);
    if (ended.size === 60) break;
  }
  await spawning;
  const client = new brigade.Client({ url: server.url, token: server.token });
  const query = { after: start, limit: 1000 };
  const page = await client.request('GET', `sessions/${session.id}/events`, { query });
  const stored = page.items.map((change) => change.seq);
  assert.deepEqual(found, stored.slice(0, found.length));
  let count = 0;
  for await (const _ of session.tasks({ ended: true, text: 'Many' })) count += 1;
  assert.equal(count, 60);
});

test('output misses and repeats nothing', async () => {
  const task = await session.spawnProcess('for i in $(seq 1 300); do echo line $i; sleep 0.005; done');
  let restarting;
  let output = '';
  for await (const part of task.followOutput()) {
    assert.equal(part.start, output.length);
    output += part.text;
    restarting ??= server.restart();
  }
  await restarting;
  assert.deepEqual(output.split('\n').slice(0, -1), Array.from({ length: 300 }, (_, at) => `line ${at + 1}`));
});

test('a lost answer spawns and sends once', async (t) => {
  const [proxy, client] = await openProxy(t);
  const lossy = await client.session(server.project);
  proxy.lose = 3;
  const task = await lossy.spawnProcess({ shell: 'cat', stdin: true, name: 'Lost answer' });
  assert.deepEqual([proxy.lose, task.replayed], [0, true]);
  proxy.lose = 2;
  await task.send('once');
  proxy.lose = 2;
  await task.closeInput();
  await task.wait({ timeoutMs });
  assert.equal(new TextDecoder().decode(await task.output()), 'once\n');
  const ids = [];
  for await (const one of lossy.tasks({ ended: true, text: 'Lost answer' })) ids.push(one.id);
  assert.deepEqual(ids, [task.id]);
});

test('a lost answer of another request is unknown', async (t) => {
  const [proxy, client] = await openProxy(t);
  const task = await (await client.session(server.project)).spawnProcess('false');
  await task.wait({ timeoutMs });
  proxy.lose = 1;
  await assert.rejects(task.resume(), brigade.UnknownError);
  assert.equal((await task.show()).run, 2);
});

test('a collected result is returned again', async (t) => {
  const [proxy, client] = await openProxy(t, server.addToken('--client', 'unlucky'));
  const task = await (await client.session()).spawnProcess({ shell: 'true', sandbox: {} });
  proxy.lose = 1;
  const ended = await task.wait({ timeoutMs });
  assert.deepEqual([ended.state, ended.collected_before], ['succeeded', true]);
});

test('a spawn waits for the next server', async () => {
  await server.kill();
  const spawning = session.spawnProcess('true');
  await sleep(500);
  await server.serve();
  assert.equal((await (await spawning).wait({ timeoutMs })).state, 'succeeded');
});

test('a server that stays away is unavailable', async () => {
  const client = new brigade.Client({ url: server.url, token: server.token, retryForMs: 500 });
  const task = await (await client.session(server.project)).spawnProcess('true');
  const events = await client.events().start();
  await server.kill();
  try {
    for (const action of [() => task.show(), () => task.wait(), () => task.resume(), () => events.next()])
      await assert.rejects(action(), brigade.UnavailableError);
  } finally {
    await server.serve();
  }
  // The stream and the client go on.
  await task.wait({ timeoutMs });
  assert.equal((await events.next()).value.type, 'change');
  events.close();
});

test('a signal ends a wait and not the task', async () => {
  const task = await session.spawnProcess('sleep 600');
  const signal = AbortSignal.timeout(300);
  await assert.rejects(task.wait({ signal }), { name: 'TimeoutError' });
  assert.equal((await task.show()).alive, true);
  await task.stop();
  await task.wait({ timeoutMs });
});
