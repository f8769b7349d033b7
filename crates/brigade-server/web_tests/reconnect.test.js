// A lost connection is visible, and nothing is missed.

import assert from 'node:assert/strict';
import { execSync } from 'node:child_process';
import { test } from 'node:test';
import { CuttingProxy } from './cutting_proxy.js';
import {
  api,
  openDashboard,
  rowOf,
  startProcess,
  uniqueName,
  url,
  waitUntilLive,
  world,
} from './support.js';

async function openThroughProxy(t) {
  const proxy = new CuttingProxy(url);
  const base = await proxy.listen();
  t.after(() => proxy.close());
  const page = await openDashboard(t, { base });
  await waitUntilLive(page);
  return { proxy, page };
}

test('changes during an interruption appear once after it', async (t) => {
  const { proxy, page } = await openThroughProxy(t);
  const running = uniqueName('before');
  await startProcess('sleep 2', running);
  await rowOf(page, running).waitFor();
  proxy.cut();
  await page.getByText('Connection lost').waitFor();
  const missed = uniqueName('missed');
  await startProcess('echo missed', missed);
  await page.waitForTimeout(2500);
  assert.equal(await rowOf(page, missed).count(), 0);
  const requests = proxy.paths.length;
  proxy.restore();
  await page
    .getByRole('button', { name: 'Now' })
    .click({ timeout: 1000 })
    .catch(() => {});
  await waitUntilLive(page);
  await rowOf(page, missed).locator('.cell-state', { hasText: 'succeeded' }).waitFor();
  await rowOf(page, running).locator('.cell-state', { hasText: 'succeeded' }).waitFor();
  assert.equal(await rowOf(page, missed).count(), 1);
  const later = proxy.paths.slice(requests);
  assert.ok(
    later.some((path) => path.startsWith('/v1/events?') && path.includes('after=')),
    'the feed is resumed',
  );
  assert.ok(!later.some((path) => path.startsWith('/v1/tasks?')), 'nothing is loaded again');
});

test('a gap loads all tasks again', async (t) => {
  const { proxy, page } = await openThroughProxy(t);
  const name = uniqueName('gap');
  proxy.cut();
  await page.getByText('Connection lost').waitFor();
  await startProcess('echo gap', name);
  const { cursor } = await (
    await fetch(`${url}/v1/whoami`, {
      headers: { authorization: `Bearer ${process.env.BRIGADE_TOKEN}` },
    })
  ).json();
  proxy.nextAnswer = {
    path: '/v1/events',
    status: 200,
    type: 'text/event-stream',
    body: `event: gap\ndata: ${JSON.stringify({ cursor })}\n\n`,
  };
  const requests = proxy.paths.length;
  proxy.restore();
  await waitUntilLive(page);
  await rowOf(page, name).waitFor();
  assert.ok(proxy.paths.slice(requests).some((path) => path.startsWith('/v1/tasks?')));
});

test('a token that is no longer accepted leads to the login page', async (t) => {
  const { proxy, page } = await openThroughProxy(t);
  proxy.cut();
  await page.getByText('Connection lost').waitFor();
  proxy.nextAnswer = {
    path: '/v1/events',
    status: 401,
    type: 'application/problem+json',
    body: JSON.stringify({ code: 'unauthenticated', status: 401 }),
  };
  proxy.restore();
  await page.getByText('brigade dashboard').waitFor();
  assert.equal(await page.evaluate(() => sessionStorage.getItem('brigade_token')), null);
});

test('a token that is revoked ends the page without any action', async (t) => {
  const { secret, token } = await api('POST', 'tokens', { name: 'revoked', scope: 'operator' });
  const page = await openDashboard(t, { withToken: secret });
  await waitUntilLive(page);
  await api('DELETE', `tokens/${token.id}`);
  // The server checks the token of a stream with each heartbeat.
  await page.getByText('brigade dashboard').waitFor({ timeout: 40_000 });
  assert.equal(await page.evaluate(() => sessionStorage.getItem('brigade_token')), null);
});

const command = process.env.BRIGADE_RESTART;

async function restart() {
  if (world) await world.restart();
  else execSync(command, { stdio: 'inherit' });
}

test(
  'the page survives kill -9 of the server',
  { skip: world || command ? false : 'BRIGADE_RESTART is not set' },
  async (t) => {
    const page = await openDashboard(t);
    await waitUntilLive(page);
    const name = uniqueName('survivor');
    await startProcess('sleep 4', name);
    await rowOf(page, name).waitFor();
    const requests = [];
    page.on('request', (request) => requests.push(new URL(request.url())));
    const cursor = (await api('GET', 'whoami')).cursor;
    await restart();
    const later = uniqueName('after-restart');
    await startProcess('echo back', later);
    await waitUntilLive(page);
    await rowOf(page, later).locator('.cell-state', { hasText: 'succeeded' }).waitFor();
    await rowOf(page, name)
      .locator('.cell-state', { hasText: 'succeeded' })
      .waitFor({ timeout: 30_000 });
    assert.equal(await rowOf(page, name).count(), 1);
    const paths = requests.map((address) => address.pathname);
    assert.ok(paths.includes('/v1/events'), 'the feed is resumed');
    assert.ok(!paths.includes('/v1/tasks'), 'nothing is loaded again');
    // The server that was killed has lost no change either.
    const { items, gap } = await api('GET', `events?after=${cursor}&limit=1000`);
    assert.ok(!gap);
    const types = (label) =>
      items.filter((change) => change.data.name === label).map((change) => change.type);
    assert.deepEqual(types(later), ['spawned']);
  },
);
