// Starting a process and an agent from the page.

import assert from 'node:assert/strict';
import { basename } from 'node:path';
import { test } from 'node:test';
import { directory, openDashboard, rowOf, uniqueName, waitUntilLive } from './support.js';

test('a process starts, and its output is shown', async (t) => {
  const page = await openDashboard(t);
  await waitUntilLive(page);
  const name = uniqueName('started');
  await page.getByRole('button', { name: 'Start…' }).click();
  await page.getByLabel('Command line').fill('echo hello from the form; sleep 1');
  await page.getByLabel('Directory', { exact: true }).fill(directory);
  await page.getByLabel('Name', { exact: true }).fill(name);
  await page.getByRole('button', { name: 'Start', exact: true }).click();
  await page.locator('.panel-title', { hasText: name }).waitFor();
  await page.locator('.output .line', { hasText: 'hello from the form' }).waitFor();
  await rowOf(page, name).locator('.cell-state', { hasText: 'succeeded' }).waitFor();
});

test('an agent starts, and its transcript is shown', async (t) => {
  const page = await openDashboard(t);
  await waitUntilLive(page);
  const name = uniqueName('Helper');
  await page.keyboard.press('n');
  await page.getByLabel('an agent').check();
  await page.getByLabel('Prompt').fill('Say hello.');
  await page.getByLabel('Directory', { exact: true }).fill(directory);
  await page.getByLabel('Name', { exact: true }).fill(name);
  await page.getByLabel('Budget in dollars').fill('0.50');
  await page.getByRole('button', { name: 'Start', exact: true }).click();
  await page.locator('.panel-title', { hasText: name }).waitFor();
  await page.getByRole('tab', { name: 'Transcript', selected: true }).waitFor();
});

test('a refusal is shown in the form', async (t) => {
  const page = await openDashboard(t);
  await waitUntilLive(page);
  await page.getByRole('button', { name: 'Start…' }).click();
  await page.getByLabel('Command line').fill('true');
  await page.getByLabel('Directory', { exact: true }).fill(directory);
  await page.route('**/tasks', (route) =>
    route.request().method() === 'POST'
      ? route.fulfill({
          status: 429,
          contentType: 'application/problem+json',
          body: JSON.stringify({
            code: 'limit',
            status: 429,
            title: 'limit',
            detail: 'the session runs 4 of 4 tasks',
          }),
        })
      : route.fallback(),
  );
  await page.getByRole('button', { name: 'Start', exact: true }).click();
  await page
    .locator('#start .form-status.error', { hasText: 'The session runs 4 of 4 tasks' })
    .waitFor();
});

test('a session fills in its directory, and an error names the field', async (t) => {
  const page = await openDashboard(t);
  await waitUntilLive(page);
  await page.getByRole('button', { name: 'Start…' }).click();
  await page.getByLabel('Command line').fill('true');
  const session = page.locator('#start .field', { hasText: /^Session/ }).locator('select');
  await session.locator(`option[title="${directory}"]`).waitFor({ state: 'attached' });
  await session.selectOption({ label: basename(directory) });
  const field = page.getByLabel('Directory', { exact: true });
  assert.equal(await field.inputValue(), directory);
  const start = page.getByRole('button', { name: 'Start', exact: true });
  const error = page.locator('#start .form-status.error');
  await field.fill('/no/such/directory');
  await start.click();
  await error.filter({ hasText: /^Directory is not a directory/ }).waitFor();
  const isAbove = (await error.boundingBox()).y < (await start.boundingBox()).y;
  assert.ok(isAbove, 'the error stands above the buttons');
  await session.selectOption('');
  await start.click();
  await error.filter({ hasText: /^Directory: "\/no\/such\/directory"/ }).waitFor();
});
