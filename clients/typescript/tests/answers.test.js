// Answers that the real server does not give: of newer servers, of proxies, of other servers.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as brigade from '../dist/index.js';

const TASK = '019a92b4-7c51-7c3e-9d0b-4f0d6c1f2a3b.3';

/** Returns a client that gets these answers in order, and the requests that it sends. */
function clientOf(answers, options = {}) {
  const requests = [];
  const remaining = [...answers];
  const fetch = async (url, init) => {
    requests.push({ url: new URL(url), ...init });
    init.signal.throwIfAborted();
    return remaining.shift()(init);
  };
  return [new brigade.Client({ url: 'http://localhost', token: 't', fetch, ...options }), requests];
}

function reply(status, body, headers = {}) {
  return () => new Response(JSON.stringify(body), { status, headers });
}

function problem(status, code, headers = {}) {
  const body = { type: `/docs#${code}`, title: 'T', status, code, detail: 'D' };
  return reply(status, body, { 'content-type': 'application/problem+json', ...headers });
}

function page(status) {
  return () => new Response('<h1>nginx</h1>', { status, headers: { 'content-type': 'text/html' } });
}

function lost(code) {
  return () => {
    throw new TypeError('fetch failed', { cause: Object.assign(new Error(code), { code }) });
  };
}

/** A stream of chunks, which may end with an error. */
function stream(...chunks) {
  const encoder = new TextEncoder();
  return () => {
    const remaining = [...chunks];
    const body = new ReadableStream({
      pull(controller) {
        const chunk = remaining.shift();
        if (chunk instanceof Error) controller.error(chunk);
        else if (chunk === undefined) controller.close();
        else controller.enqueue(encoder.encode(chunk));
      },
    });
    return new Response(body, { headers: { 'content-type': 'text/event-stream' } });
  };
}

function ended(fields) {
  const task = { id: TASK, address: 'job:3', run: 1, ...fields };
  return { done: true, ended: [task], running: [], pending_approvals: [] };
}

function change(cursor) {
  return `id: ${cursor}\nevent: change\ndata: {"seq": ${cursor.length}, "new": 1}\n\n`;
}

function changed(cursor) {
  return { type: 'change', cursor, change: { seq: cursor.length, new: 1 } };
}

async function take(events, count) {
  const found = [];
  for (let at = 0; at < count; at += 1) found.push((await events.next()).value);
  return found;
}

test('unknown fields and states are kept', async () => {
  const [client] = clientOf([reply(200, { id: TASK, state: 'hibernating', mood: { a: 1 } })]);
  assert.deepEqual(await client.task(TASK).show(), { id: TASK, state: 'hibernating', mood: { a: 1 } });
});

test('an unknown outcome is no success', async () => {
  const outcome = { type: 'abandoned', text: 'was abandoned' };
  const [client] = clientOf([reply(200, ended({ state: 'abandoned', outcome }))]);
  await assert.rejects(client.task(TASK).result(), (error) => {
    assert.equal(error.constructor, brigade.OutcomeError);
    assert.match(error.message, /was abandoned/);
    assert.deepEqual(error.outcome, outcome);
    return true;
  });
});

test('each code has its class', async () => {
  const classes = {
    not_found: brigade.NotFoundError,
    forbidden: brigade.ForbiddenError,
    invalid: brigade.InvalidError,
    conflict: brigade.ConflictError,
    limit: brigade.LimitError,
    ended: brigade.EndedError,
    unavailable: brigade.UnavailableError,
    unknown: brigade.UnknownError,
    internal: brigade.InternalError,
    unauthenticated: brigade.UnauthenticatedError,
    too_early: brigade.ApiError,
  };
  for (const [code, expected] of Object.entries(classes)) {
    const [client] = clientOf([problem(418, code)], { retryForMs: 0 });
    await assert.rejects(client.whoami(), (error) => {
      assert.equal(error.constructor, expected);
      assert.deepEqual([error.code, error.detail, error.status], [code, 'D', 418]);
      assert.equal(error.name, expected.name);
      return true;
    });
  }
});

test('another server is recognized', async () => {
  const redirect = () => new Response(null, { status: 302, headers: { location: 'http://evil.example' } });
  for (const answer of [page(200), page(404), page(500), redirect]) {
    const [client, requests] = clientOf([answer]);
    await assert.rejects(client.whoami(), (error) => {
      assert.ok(error instanceof brigade.AnswerError);
      return /check the URL/.test(error.message);
    });
    assert.equal(requests.length, 1);
    assert.equal(requests[0].redirect, 'manual');
  }
});

test('a request that changed nothing is repeated', async () => {
  const busy = problem(503, 'unavailable', { 'retry-after': '0' });
  const [client, requests] = clientOf([busy, lost('ECONNREFUSED'), reply(200, { run: 2 })]);
  await client.task(TASK).resume();
  assert.equal(requests.length, 3);
});

test('a lost answer is unknown unless the request has a key', async () => {
  for (const answer of [lost('UND_ERR_SOCKET'), page(502), page(504)]) {
    const [once, sent] = clientOf([answer]);
    await assert.rejects(once.task(TASK).resume(), brigade.UnknownError);
    assert.equal(sent.length, 1);
    const [client, requests] = clientOf([answer, answer, reply(202, { numbers: [7] })]);
    assert.deepEqual(await client.task(TASK).send('hello'), [7]);
    const keys = new Set(requests.map((request) => request.headers['idempotency-key']));
    assert.deepEqual([requests.length, keys.size], [3, 1]);
  }
});

test('two messages have two keys', async () => {
  const [client, requests] = clientOf(Array(3).fill(reply(202, { numbers: [7] })));
  const task = client.task(TASK);
  for (const key of [undefined, undefined, 'Schlüssel']) await task.send('hello', { key });
  const keys = requests.map((request) => new Headers(request.headers).get('idempotency-key'));
  assert.equal(new Set(keys).size, 3);
  assert.equal(Buffer.from(keys[2], 'latin1').toString(), 'Schlüssel');
  assert.deepEqual(JSON.parse(requests[2].body), { body: 'hello' });
  for (const key of ['', ' a', 'a\nb']) await assert.rejects(task.send('hello', { key }), TypeError);
});

test('a large answer is refused', async () => {
  const chunk = new Uint8Array(1 << 20);
  let cancelled = false;
  const endless = () =>
    new Response(
      new ReadableStream({ pull: (controller) => controller.enqueue(chunk), cancel: () => (cancelled = true) }),
    );
  const [client, requests] = clientOf([endless]);
  await assert.rejects(client.task(TASK).output(), brigade.AnswerError);
  assert.ok(requests[0].signal.aborted || cancelled, 'the connection is closed');
});

test('an id is no path', async () => {
  const [client, requests] = clientOf([problem(404, 'not_found')]);
  await assert.rejects(client.task('../sessions?x#').show(), brigade.NotFoundError);
  assert.equal(requests[0].url.pathname, '/v1/tasks/..%2Fsessions%3Fx%23');
  for (const id of ['..', '.', '']) assert.throws(() => client.task(id).show(), TypeError);
});

test('an attempt has a timeout', async () => {
  const never = (init) =>
    new Promise((_, reject) => {
      init.signal.addEventListener('abort', () => reject(init.signal.reason));
    });
  const [client, requests] = clientOf([never, reply(200, { run: 7 })], { timeoutMs: 20 });
  assert.equal((await client.task(TASK).show()).run, 7);
  assert.equal(requests.length, 2);
  const [other] = clientOf([never], { timeoutMs: 20 });
  await assert.rejects(other.task(TASK).resume(), /no answer within 0.02 seconds/);
});

test('a signal ends a request', async () => {
  const never = (init) =>
    new Promise((_, reject) => {
      init.signal.addEventListener('abort', () => reject(init.signal.reason));
    });
  const controller = new AbortController();
  const reason = new Error('enough');
  const [client] = clientOf([never]);
  const shown = client.task(TASK).show({ signal: controller.signal });
  controller.abort(reason);
  await assert.rejects(shown, reason);
  await assert.rejects(client.task(TASK).wait({ signal: controller.signal }), reason);
  await assert.rejects(client.events({ signal: controller.signal }).next(), reason);
});

test('a stream goes on at its cursor', async () => {
  const [client, requests] = clientOf([
    stream('id: a\nevent: cursor\ndata: {"cursor":"a"}\n\n', change('aa'), change('aaa').slice(0, -2)),
    page(502),
    stream(change('aaa'), 'event: sparkle\ndata: {}\n\n', new TypeError('terminated')),
    lost('ECONNREFUSED'),
    stream('id: b\nevent: heartbeat\ndata: {}\n\n', 'event: too_slow\ndata: {}\n\n'),
    stream('id: c\nevent: gap\ndata: {"cursor":"c"}\n\n', change('cc')),
  ]);
  const events = client.events({ after: 'start', types: ['spawned', 'ended'] });
  const gap = { type: 'gap', cursor: 'c' };
  assert.deepEqual(await take(events, 4), [changed('aa'), changed('aaa'), gap, changed('cc')]);
  const places = requests.map((request) => request.headers['last-event-id']);
  assert.deepEqual(places, ['start', 'aa', 'aa', 'aaa', 'aaa', 'b']);
  assert.equal(requests[0].url.search, '?types=spawned%2Cended');
});

test('a stream without a cursor starts now', async () => {
  const [client, requests] = clientOf([
    reply(200, { cursor: 'now' }),
    lost('UND_ERR_SOCKET'),
    stream(change('aa')),
  ]);
  const events = await client.events().start();
  assert.equal(events.cursor, 'now');
  await events.next();
  assert.equal(requests[2].headers['last-event-id'], 'now');
});

test('a final error ends a stream', async () => {
  const revoked = 'event: error\ndata: {"code": "unauthenticated", "detail": "revoked"}\n\n';
  const [client] = clientOf([stream(change('aa'), revoked)]);
  const events = client.events({ after: 'a' });
  await events.next();
  await assert.rejects(events.next(), brigade.UnauthenticatedError);
  assert.equal(events.cursor, 'aa');
  const [other] = clientOf([problem(400, 'invalid')]);
  await assert.rejects(other.events({ after: 'of another store' }).next(), brigade.InvalidError);
  const [wrong] = clientOf([page(200)]);
  await assert.rejects(wrong.events({ after: 'a' }).next(), brigade.AnswerError);
});

test('a stream gives up and can go on', async () => {
  const answers = [lost('ECONNREFUSED'), problem(503, 'unavailable'), stream(change('aa'))];
  const [client, requests] = clientOf(answers, { retryForMs: 0 });
  const events = client.events({ after: 'a' });
  for (let at = 0; at < 2; at += 1) await assert.rejects(events.next(), brigade.UnavailableError);
  assert.deepEqual(await take(events, 1), [changed('aa')]);
  assert.equal(requests.length, 3);
});

test('a loop that ends closes the connection, and the next one goes on', async () => {
  const [client, requests] = clientOf([
    stream(change('aa'), change('aaa')),
    stream(change('aaa'), change('aaaa')),
  ]);
  const events = client.events({ after: 'a' });
  for await (const item of events) {
    assert.deepEqual(item, changed('aa'));
    break;
  }
  assert.ok(requests[0].signal.aborted);
  assert.deepEqual(await take(events, 1), [changed('aaa')]);
  assert.equal(requests[1].headers['last-event-id'], 'aa');
});

test('a stream that is closed ends its iterator', async () => {
  const silent = (init) => {
    const body = new ReadableStream({
      start(controller) {
        init.signal.addEventListener('abort', () => controller.error(init.signal.reason));
      },
    });
    return new Response(body, { headers: { 'content-type': 'text/event-stream' } });
  };
  for (const answer of [silent, lost('ECONNREFUSED')]) {
    const [client] = clientOf([answer]);
    const events = client.events({ after: 'a' });
    const next = events.next();
    await new Promise((resolve) => setTimeout(resolve, 20));
    events.close();
    assert.deepEqual(await next, { done: true, value: undefined });
  }
});

test('output goes on at its offset', async () => {
  const [client, requests] = clientOf([
    stream(
      'id: 3\nevent: output\ndata: {"stream":"stdout","from":0,"next":3,"text":"hi\\n"}\n\n',
      new TypeError('terminated'),
    ),
    stream(
      'id: 5\nevent: output\ndata: {"stream":"stderr","from":3,"next":5,"base64":"/wA="}\n\n',
      'id: 9\nevent: dropped\ndata: {"from":5,"next":9}\n\n',
      'event: end\ndata: {}\n\n',
    ),
  ]);
  const output = client.task(TASK).followOutput({ tail: 3 });
  const found = [];
  for await (const item of output) found.push(item);
  assert.deepEqual(found, [
    { type: 'output', stream: 'stdout', start: 0, next: 3, data: new Uint8Array([104, 105, 10]), text: 'hi\n' },
    { type: 'output', stream: 'stderr', start: 3, next: 5, data: new Uint8Array([255, 0]), text: '\ufffd\0' },
    { type: 'gap', start: 5, next: 9 },
  ]);
  assert.deepEqual(await output.next(), { done: true, value: undefined });
  assert.equal(requests[0].url.search, '?stream=combined&tail=3');
  assert.equal(requests[0].headers['last-event-id'], undefined);
  assert.equal(requests[1].headers['last-event-id'], '3');
  for (const wrong of ['{"from":0}', '{"from":0,"next":1,"stream":"stdout"}']) {
    const [broken] = clientOf([stream(`event: output\ndata: ${wrong}\n\n`)]);
    await assert.rejects(broken.task(TASK).followOutput().next(), brigade.AnswerError);
  }
});
