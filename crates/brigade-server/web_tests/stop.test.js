// Stopping a task from the page.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { api, openDashboard, rowOf, startProcess, uniqueName, waitUntilLive } from './support.js';

test('stop asks once, in place, and then stops', async (t) => {
  const page = await openDashboard(t);
  await waitUntilLive(page);
  const name = uniqueName('stopped');
  const task = await startProcess('sleep 300', name);
  await rowOf(page, name).click();
  await page.getByRole('button', { name: 'Stop…' }).click();
  await page.getByText(`Stop ${name}?`).waitFor();
  await page.getByRole('button', { name: 'Cancel', exact: true }).click();
  assert.equal((await api('GET', `tasks/${task.id}`)).alive, true);
  await page.getByRole('button', { name: 'Stop…' }).click();
  await page.locator('#task-panel').getByLabel('Reason').fill('no longer needed');
  await page.getByRole('button', { name: 'Stop the task' }).click();
  await page.locator('.panel-state', { hasText: 'cancelled' }).waitFor();
  await page.getByText('Why it ended').waitFor();
  await rowOf(page, name).locator('.cell-state', { hasText: 'cancelled' }).waitFor();
  assert.equal((await api('GET', `tasks/${task.id}`)).state, 'cancelled');
  assert.equal(await page.getByRole('button', { name: 'Stop…' }).count(), 0);
  await page.getByRole('tab', { name: 'Events' }).click();
  const stop = page.locator('.event', { hasText: 'stop requested' });
  await stop.locator('.event-author', { hasText: /^by operator, token / }).waitFor();
  const end = page.locator('.event', { hasText: 'ended' }).last();
  assert.equal(await end.locator('.event-author').count(), 0);
});
