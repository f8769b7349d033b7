// Collapsed and expanded rows are in the URL: a reload and a shared link show the same tree.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { api, openDashboard, rowOf, waitUntilLive } from './support.js';

async function taskNamed(name) {
  const { items } = await api('GET', 'tasks?ended=true&order=newest&limit=1000');
  return items.find((task) => task.name === name);
}

async function isExpanded(page, name) {
  return rowOf(page, name).getAttribute('aria-expanded');
}

test('a collapsed row stays collapsed after a reload and in a shared link', async (t) => {
  const { id } = await taskNamed('Release');
  const page = await openDashboard(t);
  await waitUntilLive(page);
  await rowOf(page, 'Checks').waitFor();
  assert.equal(await isExpanded(page, 'Release'), 'true');
  await rowOf(page, 'Release').locator('.twisty').click();
  await rowOf(page, 'Checks').waitFor({ state: 'detached' });
  assert.equal(await isExpanded(page, 'Release'), 'false');
  const link = page.url();
  assert.match(link, new RegExp(`shut=${id}(&|$)`));
  await page.reload();
  await waitUntilLive(page);
  assert.equal(await isExpanded(page, 'Release'), 'false');
  const other = await openDashboard(t, { hash: new URL(link).hash });
  await waitUntilLive(other);
  assert.equal(await isExpanded(other, 'Release'), 'false');
  await rowOf(other, 'Release').locator('.twisty').click();
  await rowOf(other, 'Checks').waitFor();
  assert.equal(new URL(other.url()).hash, '', 'rows that are as by default are not in the URL');
});

test('a row that the reader expanded is expanded after a reload', async (t) => {
  const page = await openDashboard(t);
  await waitUntilLive(page);
  assert.equal(await isExpanded(page, 'Checks'), 'false');
  await rowOf(page, 'Checks').locator('.twisty').click();
  await rowOf(page, 'checks').waitFor();
  await page.reload();
  await waitUntilLive(page);
  await rowOf(page, 'checks').waitFor();
});

test('an ancestor that the reader collapsed stays so beside an open task', async (t) => {
  const child = await taskNamed('Checks');
  const page = await openDashboard(t, { hash: `#task=${child.id}&shut=${child.parent}` });
  await waitUntilLive(page);
  await page.locator('#task-panel .panel-title', { hasText: 'Checks' }).waitFor();
  assert.equal(await isExpanded(page, 'Release'), 'false');
});

test('the URL stays short, and wrong rows in it do no harm', async (t) => {
  const session = (await taskNamed('Release')).session;
  const numbers = Array.from({ length: 3000 }, (_, index) => `f${index + 1000}`).join('.');
  const page = await openDashboard(t, { hash: `#open=${session}.${numbers}.x~.~%00.1&shut=~~.` });
  await waitUntilLive(page);
  await rowOf(page, 'Release').locator('.twisty').click();
  await page.waitForFunction(() => location.hash.includes('shut='));
  const { hash } = new URL(page.url());
  assert.ok(hash.length < 1700, `${hash.length} characters`);
  assert.match(hash, /shut=/, 'the row that was touched last is kept');
});
