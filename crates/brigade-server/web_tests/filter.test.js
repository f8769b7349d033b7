// The filters and what they count.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openDashboard, rowOf, startProcess, uniqueName, waitUntilLive } from './support.js';

test('counts follow the text, and Escape clears it', async (t) => {
  const page = await openDashboard(t);
  await waitUntilLive(page);
  const name = uniqueName('counted');
  await startProcess('true', name);
  await rowOf(page, name).locator('.cell-state', { hasText: 'succeeded' }).waitFor();
  const counts = page.locator('.state-filter:visible .state-count');
  await page.keyboard.press('/');
  await page.keyboard.type(name);
  await page.waitForFunction(
    () => document.querySelectorAll('.task-rows .row:not([hidden])').length === 1,
  );
  assert.deepEqual(await counts.allTextContents(), ['1']);
  await page.keyboard.press('Escape');
  assert.equal(await page.locator('#filter-text').inputValue(), '');
  await page.waitForFunction(
    () => document.querySelectorAll('.task-rows .row:not([hidden])').length > 1,
  );
  assert.ok((await counts.count()) > 1);
  await page.keyboard.press('Escape');
  await page.locator('#task-grid:focus').waitFor();
});

test('new tasks are counted, also those in a fold or below a collapsed row', async (t) => {
  const page = await openDashboard(t);
  const counted = await page.evaluate(async () => {
    const { countNew } = await import(new URL('assets/visible_rows.js', document.baseURI).href);
    const task = (arrival, children = []) => ({ arrival, children });
    const row = (record, more) => ({ record, fold: null, isExpanded: false, ...more });
    const parent = task(1, [task(2), task(3, [task(4)])]);
    const fold = [task(1), task(2), task(3)];
    return [
      countNew(row(parent, {}), 1),
      countNew(row(parent, { isExpanded: true }), 1),
      countNew(row(fold[0], { fold }), 1),
      countNew(row(fold[0], { fold, isExpanded: true }), 1),
    ];
  });
  assert.deepEqual(counted, [3, 0, 2, 0]);
});
