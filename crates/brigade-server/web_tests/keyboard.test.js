// Everything works with the keyboard alone.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  api,
  openDashboard,
  startProcess,
  startTask,
  uniqueName,
  waitUntilLive,
} from './support.js';

/** Waits until the page has drawn what the last key changed. */
async function untilRendered(page) {
  await page.evaluate(
    () =>
      new Promise((resolve) => {
        requestAnimationFrame(() => requestAnimationFrame(resolve));
      }),
  );
}

test('find, open, stop and close a task without a mouse', async (t) => {
  const name = uniqueName('by-key');
  const task = await startProcess('sleep 300', name);
  const page = await openDashboard(t);
  await waitUntilLive(page);
  await page.keyboard.press('/');
  await page.keyboard.type(name);
  await page.waitForFunction(
    () => document.querySelectorAll('.task-rows .row:not([hidden]):not(.is-context)').length === 1,
  );
  assert.ok(new URL(page.url()).hash.includes(`q=${name}`));
  await page.keyboard.press('Enter');
  await page.keyboard.press('j');
  await page.waitForFunction(
    (label) => document.querySelector('.row.is-active .label')?.textContent === label,
    name,
  );
  const active = await page.locator('#task-grid').getAttribute('aria-activedescendant');
  assert.equal(await page.locator(`#${active} .label`).textContent(), name);
  await page.keyboard.press('Enter');
  await page.locator('.panel-title', { hasText: name }).waitFor();
  assert.ok(new URL(page.url()).hash.includes(`task=${task.id}`));
  await page.keyboard.press('s');
  await page.getByRole('button', { name: 'Stop the task' }).waitFor();
  await page.keyboard.press('Enter');
  await page.locator('.panel-state', { hasText: 'cancelled' }).waitFor();
  await page.keyboard.press('Escape');
  await page.locator('#task-panel').waitFor({ state: 'hidden' });
  assert.equal((await api('GET', `tasks/${task.id}`)).state, 'cancelled');
});

test('rows expand and collapse with l and h, and ? shows the keys', async (t) => {
  const page = await openDashboard(t, { hash: '#levels=1' });
  await waitUntilLive(page);
  const parent = page.locator('.task-rows .row[aria-expanded=false]:not(.is-fold)').first();
  await parent.waitFor();
  const name = await parent.locator('.label').textContent();
  for (let step = 0; step < 200; step += 1) {
    await page.keyboard.press('j');
    await untilRendered(page);
    const label = await page.locator('.row.is-active .label').textContent();
    if (label === name) break;
  }
  const count = () => page.locator('#task-grid').getAttribute('aria-rowcount');
  const collapsed = Number(await count());
  await page.keyboard.press('l');
  await page.locator('.row.is-active[aria-expanded=true]').waitFor();
  assert.ok(Number(await count()) > collapsed);
  await page.keyboard.press('l');
  await page.locator('.row.is-active[aria-level="2"]').waitFor();
  await page.keyboard.press('h');
  await page.locator('.row.is-active[aria-level="1"]').waitFor();
  await page.keyboard.press('h');
  await page.locator('.row.is-active[aria-expanded=false]').waitFor();
  await page.keyboard.press('?');
  await page.locator('#key-help').waitFor({ state: 'visible' });
  await page.keyboard.press('Escape');
  await page.locator('#key-help').waitFor({ state: 'hidden' });
});

test('m writes a message, and typing is not taken for keys', async (t) => {
  const name = uniqueName('typed');
  await startTask({ kind: 'process', shell: 'sleep 300', stdin: true, name });
  const page = await openDashboard(t, { hash: `#q=${name}` });
  await waitUntilLive(page);
  await page.waitForFunction(
    () => document.querySelectorAll('.task-rows .row:not([hidden]):not(.is-context)').length === 1,
  );
  await page.keyboard.press('j');
  await page.keyboard.press('m');
  await page.locator('.composer textarea:focus').waitFor();
  await page.keyboard.type('jkhlsa?');
  assert.equal(await page.locator('.composer textarea').inputValue(), 'jkhlsa?');
});

test('Tab reaches every control in a sensible order with a visible focus', async (t) => {
  const page = await openDashboard(t);
  await waitUntilLive(page);
  const reached = [];
  for (let step = 0; step < 80; step += 1) {
    await page.keyboard.press('Tab');
    const id = await page.evaluate(() => document.activeElement?.id ?? '');
    if (id) reached.push(id);
    if (id === 'task-grid') break;
  }
  const wanted = [
    'help-toggle',
    'start-toggle',
    'filter-text',
    'filter-levels',
    'filter-range',
    'task-grid',
  ];
  assert.deepEqual(
    reached.filter((id) => wanted.includes(id)),
    wanted,
  );
});
