// `npm run screenshot`: every part of the page in both themes, and the main view for the README.

import assert from 'node:assert/strict';
import { mkdirSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { test } from 'node:test';
import {
  PHONE,
  WIDE,
  api,
  keepScreenshot,
  openDashboard,
  startProcess,
  waitUntilLive,
} from './support.js';

const README_IMAGE = join(
  dirname(fileURLToPath(import.meta.url)),
  '../../../docs/images/dashboard.png',
);
const MAX_BYTES = 300_000;
/** Processes that run one after the other, so that the time axis has something to show. */
const EARLIER = [
  ['build', 8],
  ['integration-tests', 5],
];

async function taskNamed(name) {
  const { items } = await api('GET', 'tasks?ended=true&limit=1000');
  return items.find((task) => task.name === name);
}

async function open(t, hash, options = {}) {
  const page = await openDashboard(t, { hash, ...options });
  await waitUntilLive(page);
  await page.waitForTimeout(700);
  return page;
}

for (const theme of /** @type {const} */ (['light', 'dark'])) {
  test(`all parts in the ${theme} theme`, async (t) => {
    const views = {
      list: '',
      agent: `#task=${(await taskNamed('Release')).id}&tab=transcript`,
      overview: `#task=${(await taskNamed('Release')).id}`,
      output: `#task=${(await taskNamed('unit-tests')).id}&tab=output`,
      process: `#task=${(await taskNamed('unit-tests')).id}`,
      messages: `#task=${(await taskNamed('Migration')).id}&tab=messages`,
      silent: `#task=${(await taskNamed('lint')).id}&tab=messages`,
      events: `#task=${(await taskNamed('Release')).id}&tab=events`,
      limits: `#task=${(await taskNamed('Release')).id}&tab=limits`,
      empty: '#q=nothing-is-called-so',
      failed: `#task=${(await taskNamed('Research')).id}`,
      asking: `#task=${(await taskNamed('Migration')).id}`,
    };
    for (const [name, hash] of Object.entries(views)) {
      const wide = await open(t, hash, { theme, viewport: WIDE });
      await keepScreenshot(wide, `${name}-${theme}`);
      const phone = await open(t, hash, { theme, viewport: PHONE, withTouch: true });
      await keepScreenshot(phone, `${name}-${theme}-phone`);
    }
  });
}

for (const theme of /** @type {const} */ (['light', 'dark'])) {
  for (const [size, viewport] of Object.entries({ wide: WIDE, phone: PHONE })) {
    test(`forms, rules, errors and other pages: ${theme}, ${size}`, async (t) => {
      const keep = (page, name) => keepScreenshot(page, `${name}-${theme}-${size}`);
      const page = await open(t, '', { theme, viewport });
      await page.getByRole('button', { name: 'Start…' }).click();
      await keep(page, 'start-process');
      await page.getByLabel('an agent').check();
      await keep(page, 'start-agent');
      await page.keyboard.press('Escape');
      await page.getByRole('button', { name: 'Always allowed' }).click();
      await page.locator('#grants li').first().waitFor();
      await keep(page, 'grants');
      await page.getByRole('button', { name: 'Always allowed' }).click();
      await page.getByRole('button', { name: 'Keys' }).click();
      await keep(page, 'keys');
      const output = await open(t, `#task=${(await taskNamed('unit-tests')).id}&tab=output`, {
        theme,
        viewport,
      });
      await output.getByRole('searchbox', { name: 'Find in all output' }).fill('test');
      await output.keyboard.press('Enter');
      await output.locator('.is-hit').waitFor();
      await keep(output, 'search');
      const stop = await open(t, `#task=${(await taskNamed('Release')).id}`, { theme, viewport });
      await stop.getByRole('button', { name: 'Stop…' }).click();
      await keep(stop, 'stop');
      const login = await openDashboard(t, { theme, viewport, withToken: false });
      await login.locator('#login').waitFor();
      await keep(login, 'login');
      const lost = await open(t, '', { theme, viewport });
      await lost.route('**/v1/**', (route) => route.abort());
      await lost.reload();
      await lost.locator('.connection-reconnecting').waitFor();
      await keep(lost, 'unreachable');
      const docs = await openDashboard(t, { theme, viewport });
      await docs.goto(`${new URL(docs.url()).origin}/docs`);
      await docs.waitForTimeout(700);
      await keep(docs, 'docs');
    });
  }
}

/** Denies a call, so that its agent goes on and ends. */
async function deny(name) {
  const task = await taskNamed(name);
  const [{ call }] = task.approvals;
  await api('POST', `tasks/${task.id}/approvals/${call}`, { verdict: 'deny' });
}

test('the main view for the README', async (t) => {
  await deny('Format');
  await deny('Cleanup');
  for (const [name, seconds] of EARLIER) {
    await startProcess(`make ${name} || sleep ${seconds}`, name);
    await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  }
  const release = await taskNamed('Release');
  const hash = `#task=${release.id}&tab=transcript&levels=all`;
  const page = await open(t, hash, { viewport: WIDE });
  mkdirSync(dirname(README_IMAGE), { recursive: true });
  await page.screenshot({ path: README_IMAGE });
  assert.ok(statSync(README_IMAGE).size < MAX_BYTES);
});
