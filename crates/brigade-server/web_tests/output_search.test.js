// Finding a line in output that the page does not show.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  api,
  expectAccessible,
  keepScreenshot,
  openDashboard,
  startProcess,
  uniqueName,
  waitUntilLive,
} from './support.js';

/** More lines than the page shows at the end of the output. */
const LINES = 40_000;

async function startNoisy() {
  const name = uniqueName('noisy');
  const shell = `printf 'start\\n'; seq -f 'line number %.0f (all is well)' ${LINES}; printf 'The End\\n' >&2`;
  const task = await startProcess(shell, name);
  await api('GET', `tasks/${task.id}`, undefined, { prefer: 'wait=30' });
  return task;
}

test('a hit is shown with the lines around it', async (t) => {
  const task = await startNoisy();
  const page = await openDashboard(t, { hash: `#task=${task.id}&tab=output` });
  await waitUntilLive(page);
  await page.locator('.output .line', { hasText: 'The End' }).waitFor();
  const search = page.getByRole('searchbox', { name: 'Find in all output' });
  await search.fill('NUMBER 123 (');
  await search.press('Enter');
  const hit = page.locator('.excerpt .line.is-hit');
  await hit.waitFor();
  assert.equal(await hit.textContent(), 'line number 123 (all is well)');
  assert.equal(await hit.locator('xpath=preceding-sibling::*[1]').textContent(), 'line number 122 (all is well)');
  assert.equal(await hit.locator('xpath=following-sibling::*[1]').textContent(), 'line number 124 (all is well)');
  await page.waitForFunction(() => {
    const line = document.querySelector('.excerpt .line.is-hit').getBoundingClientRect();
    const list = document.querySelector('.excerpt .tail-list').getBoundingClientRect();
    return line.top >= list.top && line.bottom <= list.bottom;
  });
  await page.getByRole('status').getByText(/^1 line$/).waitFor();
  await expectAccessible(page, 'a hit', '#task-panel');
  await keepScreenshot(page, 'output-search');
  await page.getByRole('button', { name: 'Back to the end' }).click();
  await page.locator('.tail .line', { hasText: 'The End' }).waitFor({ state: 'visible' });
});

test('the first line, a pattern, the keys, nothing and a wrong pattern', async (t) => {
  const task = await startNoisy();
  const page = await openDashboard(t, { hash: `#task=${task.id}&tab=output` });
  await waitUntilLive(page);
  const search = page.getByRole('searchbox', { name: 'Find in all output' });
  const status = page.locator('.search-status');
  const hit = page.locator('.excerpt .line.is-hit');
  await search.fill('start');
  await search.press('Enter');
  await hit.filter({ hasText: /^start$/ }).waitFor();
  await page.getByLabel('Regular expression').check();
  await search.fill('number 39[0-9]{3} .all');
  await search.press('Enter');
  await status.filter({ hasText: '200 lines, and more' }).waitFor();
  await page.keyboard.press('ArrowUp');
  await hit.filter({ hasText: 'line number 39198 ' }).waitFor();
  await search.fill('nothing like this');
  await search.press('Enter');
  await status.filter({ hasText: 'No line matches' }).waitFor();
  await search.fill('(');
  await search.press('Enter');
  await page.locator('.search-status.error').waitFor();
  await search.fill('');
  await status.filter({ hasText: /^$/ }).waitFor({ state: 'attached' });
});
