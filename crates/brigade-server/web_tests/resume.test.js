// Resuming a task that has ended, and what a read-only token sees.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { api, openDashboard, startProcess, uniqueName, waitUntilLive } from './support.js';

test('a failed agent is resumed with a larger budget', async (t) => {
  const { items } = await api('GET', 'tasks?ended=true&limit=1000');
  const failed = items.find((task) => task.kind === 'agent' && task.state === 'failed');
  assert.ok(failed, 'the server has a failed agent');
  const page = await openDashboard(t, { hash: `#task=${failed.id}` });
  await waitUntilLive(page);
  await page.locator('.ending', { hasText: 'Why it ended' }).waitFor();
  await page.getByRole('button', { name: 'Resume…' }).click();
  await page.locator('#task-panel').getByLabel('Budget in dollars').fill('5');
  const sent = page.waitForRequest((request) => request.url().endsWith('/resume'));
  await page.getByRole('button', { name: 'Resume', exact: true }).click();
  assert.deepEqual((await sent).postDataJSON(), { limits: { money: '5' } });
  await page.getByText(`Run ${failed.run + 1}, attempt`).waitFor();
});

test('a process is resumed, and the output of the new run is shown', async (t) => {
  const name = uniqueName('again');
  const task = await startProcess('echo run of $(date +%N)', name);
  const page = await openDashboard(t, { hash: `#task=${task.id}&tab=output` });
  await waitUntilLive(page);
  await page.getByText('End of the output.').waitFor();
  const first = await page.locator('.output .line', { hasText: 'run of' }).textContent();
  assert.equal(await page.getByRole('button', { name: 'Message' }).count(), 0, 'it takes none');
  await page.getByRole('button', { name: 'Resume…' }).click();
  assert.equal(await page.locator('#task-panel').getByLabel('Budget in dollars').count(), 0);
  await page.getByRole('button', { name: 'Resume', exact: true }).click();
  await page.waitForFunction((text) => {
    const lines = [...document.querySelectorAll('.output .line')].map((line) => line.textContent);
    return lines.some((line) => line.startsWith('run of') && line !== text);
  }, first);
  assert.equal(await page.locator('.output .line', { hasText: 'run of' }).count(), 1);
});

test('the result of a process has its output as text', async (t) => {
  const shell = 'printf "\\033[31mred\\033[0m\\n\\"quoted\\"\\n"; exit 3';
  const task = await startProcess(shell, uniqueName('result'));
  const page = await openDashboard(t, { hash: `#task=${task.id}` });
  await waitUntilLive(page);
  const result = page.locator('.overview section', {
    has: page.getByRole('heading', { name: 'Result', exact: true }),
  });
  await result.locator('.result-output .line', { hasText: '"quoted"' }).waitFor();
  assert.equal(await result.locator('.ansi-fg-1').textContent(), 'red');
  assert.match(await result.textContent(), /exit code3/);
});

test('a read-only caller gets no buttons that change anything', async (t) => {
  const { items } = await api('GET', 'tasks?limit=1000');
  const page = await openDashboard(t);
  await page.route('**/v1/whoami', async (route) => {
    const response = await route.fetch();
    const caller = await response.json();
    await route.fulfill({
      response,
      json: { ...caller, token: { ...caller.token, scope: 'read_only' } },
    });
  });
  await page.goto(`${new URL(page.url()).origin}/?again#task=${items[0].id}`);
  await waitUntilLive(page);
  await page.locator('.panel-title').waitFor();
  for (const name of ['Start…', 'Stop…', 'Message', 'Allow once', 'Answer']) {
    assert.equal(
      await page.getByRole('button', { name }).and(page.locator(':visible')).count(),
      0,
      name,
    );
  }
});
