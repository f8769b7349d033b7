// Many tabs: browsers open six connections to a server, for all tabs together.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openDashboard, rowOf, startProcess, uniqueName, waitUntilLive } from './support.js';

const TABS = 8;

async function setHidden(page, isHidden) {
  await page.evaluate((hidden) => {
    Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden });
    document.dispatchEvent(new Event('visibilitychange'));
  }, isHidden);
}

test('hidden tabs leave connections to the visible one and miss nothing', async (t) => {
  const first = await openDashboard(t);
  await waitUntilLive(first);
  const hidden = [];
  let page = first;
  while (hidden.length < TABS) {
    await setHidden(page, true);
    hidden.push(page);
    page = await first.context().newPage();
    page.setDefaultTimeout(15_000);
    await page.goto(first.url());
    await waitUntilLive(page);
  }
  const states = await Promise.all(
    hidden.map((tab) => tab.locator('#connection-text').textContent()),
  );
  assert.ok(states.includes('Paused while hidden'), states.join());
  assert.ok(states.includes('Live'), states.join());
  const name = uniqueName('many-tabs');
  await startProcess('sleep 1', name);
  await rowOf(page, name).locator('.cell-state', { hasText: 'succeeded' }).waitFor();
  const paused = hidden[states.indexOf('Paused while hidden')];
  assert.equal(await rowOf(paused, name).count(), 0);
  await setHidden(paused, false);
  await waitUntilLive(paused);
  await rowOf(paused, name).locator('.cell-state', { hasText: 'succeeded' }).waitFor();
});
