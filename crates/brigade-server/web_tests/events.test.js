// The tab of a task's events.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { api, keepScreenshot, openDashboard, waitUntilLive } from './support.js';

test('events name tasks by their addresses and have no raw JSON', async (t) => {
  const { items } = await api('GET', 'tasks?limit=1000');
  const waiting = items.find((task) => task.waits.some((wait) => wait.tasks?.length > 0));
  assert.ok(waiting, 'the server has a task that waits for others');
  const page = await openDashboard(t, { hash: `#task=${waiting.id}&tab=events` });
  await waitUntilLive(page);
  const parked = page.locator('.event', { hasText: 'parked' }).last();
  await parked.waitFor();
  await keepScreenshot(page, 'events');
  const other = await api('GET', `tasks/${waiting.waits.find((wait) => wait.tasks).tasks[0]}`);
  assert.ok((await parked.textContent()).includes(`${other.name} (${other.address})`));
  const texts = (await page.locator('.event').allTextContents()).join('\n');
  assert.doesNotMatch(texts, /[{}"]/, 'no JSON');
  assert.doesNotMatch(texts, /[0-9a-f]{8}-[0-9a-f]{4}-/, 'no ids');
  assert.doesNotMatch(texts, /\d{4}-\d\d-\d\dT/, 'no raw times');
});
