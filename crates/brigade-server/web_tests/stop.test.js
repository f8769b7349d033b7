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

test('a note disappears when the state changes', async (t) => {
  const name = uniqueName('noted');
  const task = await startProcess('trap "" TERM; while :; do sleep 1; done', name);
  const page = await openDashboard(t, { hash: `#task=${task.id}` });
  await waitUntilLive(page);
  await page.getByRole('button', { name: 'Stop…' }).click();
  await page.getByRole('button', { name: 'Stop the task' }).click();
  const note = page.locator('.task-actions .form-status');
  await note.filter({ hasText: 'Stopping 1 task.' }).waitFor();
  await api('POST', `tasks/${task.id}/stop`, { grace_ms: 0 });
  await page.locator('.panel-state', { hasText: 'cancelled' }).waitFor();
  await note.waitFor({ state: 'hidden' });
});

test('all times look the same, with the day if it is not today', async (t) => {
  const page = await openDashboard(t);
  const texts = await page.evaluate(async () => {
    const { formatTime } = await import(new URL('assets/format.js', document.baseURI).href);
    const noon = new Date();
    noon.setHours(15, 4, 5);
    const lastYear = new Date(noon);
    lastYear.setFullYear(noon.getFullYear() - 1);
    return [formatTime(noon.getTime()), formatTime(lastYear.getTime())];
  });
  assert.equal(texts[0], '15:04:05');
  assert.match(texts[1], /\d{4}, 15:04:05$/);
});
