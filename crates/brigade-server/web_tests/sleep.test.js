// A browser that sleeps: the page stands still, and its connections are lost meanwhile.

import assert from 'node:assert/strict';
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
} from './support.js';

/** A page that can sleep, and the proxy that loses its connections. */
async function openSleeper(t, options = {}) {
  const proxy = new CuttingProxy(url);
  const base = await proxy.listen();
  t.after(() => proxy.close());
  const page = await openDashboard(t, { ...options, base });
  await waitUntilLive(page);
  const devtools = await page.context().newCDPSession(page);
  const setState = (state) => devtools.send('Page.setWebLifecycleState', { state });
  return {
    page,
    proxy,
    /** Returns the number of requests before the sleep. */
    async sleep() {
      await setState('frozen');
      proxy.cut();
      return proxy.paths.length;
    },
    async wake() {
      proxy.restore();
      await setState('active');
    },
  };
}

async function isRefused(secret) {
  const headers = { authorization: `Bearer ${secret}` };
  const response = await fetch(`${url}/v1/whoami`, { headers });
  await response.arrayBuffer();
  return response.status === 401;
}

test('a page that slept shows the present state without a reload', async (t) => {
  const { page, proxy, sleep, wake } = await openSleeper(t);
  await page.evaluate(() => {
    globalThis.wasHereBefore = true;
  });
  const running = uniqueName('before-sleep');
  await startProcess('sleep 2', running);
  await rowOf(page, running).waitFor();
  const requests = await sleep();
  const missed = uniqueName('while-asleep');
  const task = await startProcess('echo missed', missed);
  await api('GET', `tasks/${task.id}`, undefined, { prefer: 'wait=30' });
  await new Promise((resolve) => setTimeout(resolve, 3000));
  assert.equal(proxy.paths.length, requests, 'a page that sleeps asks for nothing');
  await wake();
  await waitUntilLive(page);
  for (const name of [running, missed])
    await rowOf(page, name).locator('.cell-state', { hasText: 'succeeded' }).waitFor();
  assert.equal(await rowOf(page, missed).count(), 1);
  assert.ok(await page.evaluate(() => globalThis.wasHereBefore), 'the page is the same');
  const later = proxy.paths.slice(requests);
  assert.ok(!later.some((path) => path.startsWith('/v1/tasks?')), 'nothing is loaded again');
});

test('a token that expired during the sleep leads to the login page once', async (t) => {
  const body = { name: uniqueName('short'), scope: 'operator', expires_in_ms: 15_000 };
  const { secret } = await api('POST', 'tokens', body);
  const { page, proxy, sleep, wake } = await openSleeper(t, { withToken: secret });
  await sleep();
  while (!(await isRefused(secret))) await new Promise((resolve) => setTimeout(resolve, 200));
  await wake();
  await page.getByText('brigade dashboard').waitFor();
  assert.equal(await page.evaluate(() => sessionStorage.getItem('brigade_token')), null);
  const requests = proxy.paths.length;
  await page.waitForTimeout(4000);
  assert.deepEqual(proxy.paths.slice(requests), [], 'it does not try again and again');
});
