// The client against a real server.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import * as brigade from '../dist/index.js';
import { Server, freePort } from './server.js';

const CLIENTS = path.join(path.dirname(fileURLToPath(import.meta.url)), '../..');
const timeoutMs = 30_000;
let server;
let client;
let session;

before(async () => {
  server = await Server.start();
  client = new brigade.Client({ url: server.url, token: server.token });
  session = await client.session(server.project);
});

after(() => server?.stop());

function text(bytes) {
  return new TextDecoder().decode(bytes);
}

test('the types are those of the document of the server', async () => {
  const response = await fetch(`${server.url}/openapi.json`);
  const document = path.join(server.root, 'openapi.json');
  fs.writeFileSync(document, await response.text());
  const args = [path.join(CLIENTS, 'generate.js'), '--check', '--openapi', document];
  execFileSync(process.execPath, args, { stdio: 'inherit' });
  // The check can fail.
  fs.writeFileSync(document, fs.readFileSync(document, 'utf8').replace('takes_messages', 'reads'));
  assert.throws(() => execFileSync(process.execPath, args, { stdio: 'ignore' }));
});

test('a process and its result', async () => {
  const task = await session.spawnProcess({ shell: 'echo out; echo err >&2', name: 'Echo' });
  assert.equal((await task.result({ timeoutMs })).exit_code, 0);
  assert.equal(text(await task.output({ stream: 'stdout' })), 'out\n');
  const shown = await task.show();
  assert.deepEqual([shown.name, shown.state, shown.alive], ['Echo', 'succeeded', false]);
  assert.equal(task.sessionId, session.id);
  assert.equal(task.replayed, false);
});

test('a failure has its outcome', async () => {
  const task = await session.spawnProcess({ command: ['sh', '-c', 'echo why; exit 3'] });
  await assert.rejects(task.result({ timeoutMs }), (error) => {
    assert.ok(error instanceof brigade.TaskFailedError);
    assert.equal(error.partial.tail, 'why\n');
    assert.equal(error.task.exit_code, 3);
    return true;
  });
});

test('a stop is a cancellation', async () => {
  const task = await session.spawnProcess('sleep 600');
  assert.equal((await task.stop({ reason: 'enough', grace_ms: 1000 })).already, false);
  await assert.rejects(task.result({ timeoutMs }), (error) => {
    assert.ok(error instanceof brigade.TaskCancelledError);
    assert.equal(error.outcome.reason, 'enough');
    return true;
  });
  assert.equal((await task.stop()).already, true);
});

test('lines are sent once', async () => {
  const task = await session.spawnProcess({ shell: 'cat', stdin: true });
  assert.deepEqual(await task.send('one', { key: 'k' }), await task.send('one', { key: 'k' }));
  await task.send('two');
  await assert.rejects(task.send('another', { key: 'k' }), brigade.ConflictError);
  await task.closeInput();
  await task.result({ timeoutMs });
  assert.equal(text(await task.output()), 'one\ntwo\n');
});

test('a wait has a timeout', async () => {
  const slow = await session.spawnProcess('sleep 600');
  const quick = await session.spawnProcess('true');
  for (const timeoutMs of [0, 200, 1200])
    await assert.rejects(slow.wait({ timeoutMs }), brigade.WaitTimeoutError);
  const waited = await session.wait([slow, quick.id], { timeoutMs });
  assert.deepEqual(waited.ended.map((task) => task.id), [quick.id]);
  assert.equal((await session.wait([slow, quick], { mode: 'all', timeoutMs: 0 })).done, false);
  await slow.stop();
  await slow.wait({ timeoutMs });
});

test('a key is one task', async () => {
  const first = await session.spawnProcess('true', { key: 'build 17' });
  const second = await session.spawnProcess('true', { key: 'build 17' });
  assert.deepEqual([second.id, first.replayed, second.replayed], [first.id, false, true]);
  await assert.rejects(session.spawnProcess('false', { key: 'build 17' }), brigade.ConflictError);
  const umlaut = await session.spawnProcess('true', { key: 'Schlüssel' });
  assert.equal((await session.spawnProcess('true', { key: 'Schlüssel' })).id, umlaut.id);
});

test('a resumed task runs again', async () => {
  for (const collect of [false, true]) {
    const task = await session.spawnProcess('sleep 0.3; exit 1');
    assert.equal((await task.wait({ timeoutMs })).run, 1);
    assert.equal((await task.resume()).run, 2);
    await assert.rejects(task.wait({ timeoutMs: 0, collect }), brigade.WaitTimeoutError);
    const ended = await task.wait({ timeoutMs, collect });
    assert.deepEqual([ended.run, ended.exit_code], [2, 1]);
  }
});

async function startAsker() {
  const task = await session.spawnAgent({
    prompt: 'Run it.',
    name: 'Asker',
    permissions: { allow: ['run_process'], ask: ['run_process'] },
  });
  const waited = await session.wait([task], { until: 'ended_or_input', timeoutMs });
  assert.equal(waited.pending_approvals[0].task, task.id);
  return task;
}

async function transcriptOf(task) {
  const items = [];
  for await (const item of task.transcript()) items.push(item);
  return JSON.stringify(items);
}

test('a call is approved or denied', async () => {
  const task = await startAsker();
  const pending = (await client.pending()).approvals.find((one) => one.task === task.id);
  await client.task(pending.task).approve(pending.approval);
  assert.match(await task.result({ timeoutMs }), /It ran/);
  assert.match(await transcriptOf(task), /allowed/);
  const denied = await startAsker();
  const [approval] = await denied.approvals();
  await denied.deny(approval, 'not today');
  await denied.wait({ timeoutMs });
  assert.match(await transcriptOf(denied), /not today/);
  await assert.rejects(denied.deny(approval), brigade.EndedError);
});

test('changes and output are followed', async () => {
  const events = await session.events({ types: ['spawned', 'ended'], rows: true }).start();
  const task = await session.spawnProcess(`for i in 1 2 3; do echo $i; sleep 0.1; done`);
  const found = [];
  for await (const item of events) {
    assert.equal(item.type, 'change');
    if (item.change.task !== task.id) continue;
    found.push([item.change.type, item.change.row.id]);
    if (item.change.type === 'ended') break;
  }
  assert.deepEqual(found, [['spawned', task.id], ['ended', task.id]]);
  let output = '';
  for await (const part of task.followOutput()) output += part.text;
  assert.equal(output, '1\n2\n3\n');
  assert.equal((await task.events({ subtree: true }).start()).cursor.length > 0, true);
});

test('a gap is an item', async () => {
  const { cursor } = await client.events().start();
  await (await session.spawnProcess('true')).wait({ timeoutMs });
  server.run('prune', '--older', '0');
  // A server holds the newest changes in memory.
  await server.restart();
  const events = client.events({ after: cursor });
  const gap = (await events.next()).value;
  assert.equal(gap.type, 'gap');
  assert.equal(events.cursor, gap.cursor);
  await session.spawnProcess('true');
  assert.equal((await events.next()).value.type, 'change');
  events.close();
});

test('lists have all pages', async () => {
  const ids = [];
  for (let at = 0; at < 5; at += 1) {
    const task = await session.spawnProcess({ shell: 'true', name: `Page ${at}` });
    await task.wait({ timeoutMs });
    ids.push(task.id);
  }
  const listed = [];
  for await (const task of client.tasks({ ended: true, session: session.id, limit: 2 }))
    listed.push(task.id);
  assert.ok(ids.every((id) => listed.includes(id)));
  assert.equal(new Set(listed).size, listed.length);
});

test('a session has a name', async () => {
  const kitchen = await client.session({ name: 'kitchen' });
  assert.equal((await kitchen.show()).name, 'kitchen');
  await assert.rejects(kitchen.spawnProcess('true'), /cwd/);
  assert.ok((await client.sessions()).some((one) => one.id === kitchen.id));
  await kitchen.close('over');
  await assert.rejects(kitchen.spawnProcess({ shell: 'true', cwd: '/tmp' }), brigade.EndedError);
});

test('wrong requests have typed errors', async () => {
  await assert.rejects(session.task(99_999).show(), brigade.NotFoundError);
  await assert.rejects(session.spawnProcess({ shell: 'true', cwd: 'x' }), brigade.InvalidError);
  await assert.rejects(client.events({ after: 'x' }).next(), brigade.InvalidError);
  await assert.rejects(client.request('GET', 'sparkles'), brigade.NotFoundError);
  await assert.rejects(session.spawnJob({ job: 'missing' }), brigade.NotFoundError);
  await assert.rejects(client.session(), TypeError);
});

test('tokens have their rights', async () => {
  const clientOf = (token) => new brigade.Client({ url: server.url, token });
  const cook = clientOf(server.addToken('--client', 'cook'));
  const own = await cook.session();
  assert.deepEqual([own.id, own.name], [session.id, server.project]);
  await assert.rejects(own.spawnProcess('true'), brigade.ForbiddenError);
  await assert.rejects(cook.session({ name: 'elsewhere' }), brigade.NotFoundError);
  const task = await own.spawnProcess({ shell: 'true', sandbox: {} });
  assert.equal((await task.wait({ timeoutMs })).collected_before, false);
  assert.equal((await task.wait({ timeoutMs })).collected_before, true);
  const eye = await clientOf(server.addToken('--read-only', 'eye')).session(server.project);
  await assert.rejects(eye.spawnProcess('true'), brigade.ForbiddenError);
  await assert.rejects(clientOf('brg_wrong').whoami(), brigade.UnauthenticatedError);
});

test('a wrong URL says so', async () => {
  const at = (url) => new brigade.Client({ url, token: server.token }).whoami();
  await assert.rejects(at(`http://127.0.0.1:${await freePort()}`), (error) => {
    assert.ok(error instanceof brigade.UnavailableError);
    return /ECONNREFUSED/.test(error.message);
  });
  await assert.rejects(at(`${server.url}/elsewhere`), brigade.BrigadeError);
});
