// The dashboard on a phone.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  PHONE,
  api,
  expectAccessible,
  keepScreenshot,
  openDashboard,
  rowOf,
  startProcess,
  startTask,
  uniqueName,
  waitUntilLive,
} from './support.js';

test('a task is a page of its own with a way back', async (t) => {
  const name = uniqueName('phone');
  await startProcess('echo on a phone; sleep 60', name);
  const page = await openDashboard(t, { viewport: PHONE, withTouch: true });
  await waitUntilLive(page);
  await rowOf(page, name).waitFor();
  const overflow = () =>
    page.evaluate(
      () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
    );
  assert.equal(await overflow(), 0);
  await keepScreenshot(page, 'phone-list');
  await expectAccessible(page, 'the list on a phone');
  await rowOf(page, name).tap();
  await page.locator('.panel-title', { hasText: name }).waitFor();
  assert.equal(await page.locator('#task-grid').isVisible(), false);
  assert.equal(await overflow(), 0);
  await keepScreenshot(page, 'phone-task');
  await expectAccessible(page, 'a task on a phone');
  await page.getByRole('button', { name: 'Back to the list' }).tap();
  await page.locator('#task-grid').waitFor({ state: 'visible' });
  await rowOf(page, name).tap();
  await page.locator('.panel-title', { hasText: name }).waitFor();
  await page.goBack();
  await page.locator('#task-grid').waitFor({ state: 'visible' });
});

test('all filters are in view, and the facts of a call take one line each', async (t) => {
  const page = await openDashboard(t, { viewport: PHONE, withTouch: true });
  await waitUntilLive(page);
  const filters = await page.locator('.filters').evaluate((bar) => ({
    wanted: bar.scrollWidth,
    given: bar.clientWidth,
  }));
  assert.ok(filters.wanted <= filters.given, 'nothing is cut off');
  await page.locator('#filter-range').waitFor({ state: 'visible' });
  const name = uniqueName('Asker');
  const permissions = { allow: ['run_process'], ask: ['run_process'] };
  const agent = await startTask({ kind: 'agent', prompt: 'Ask.', name, permissions });
  const facts = page.locator('.card', { hasText: name }).locator('.call-facts');
  const label = await facts.locator('dt').first().boundingBox();
  const value = await facts.locator('dd').first().boundingBox();
  assert.ok(Math.abs(label.y - value.y) < 4, 'the value is beside its label');
  await keepScreenshot(page, 'phone-cards');
  await api('POST', `tasks/${agent.id}/stop`, { grace_ms: 0 });
});

test('a server that cannot be reached at the start is named, until it answers', async (t) => {
  const page = await openDashboard(t, { viewport: PHONE, withTouch: true });
  await waitUntilLive(page);
  await page.route('**/v1/**', (route) => route.abort());
  await page.reload();
  await page.getByText('The server cannot be reached.').waitFor();
  const status = await page.locator('#connection').evaluate((element) => ({
    wanted: element.scrollWidth,
    given: element.clientWidth,
  }));
  assert.ok(status.wanted <= status.given, 'the state of the connection is not cut off');
  await expectAccessible(page, 'the page without a server');
  await keepScreenshot(page, 'phone-unreachable');
  await page.unroute('**/v1/**');
  await waitUntilLive(page);
  await page.getByText('The server cannot be reached.').waitFor({ state: 'hidden' });
});
