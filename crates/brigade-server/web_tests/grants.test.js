// "Always allowed": rules of the operator are listed and revoked on the page.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  api,
  expectAccessible,
  keepScreenshot,
  openDashboard,
  startTask,
  uniqueName,
  waitUntilLive,
} from './support.js';

async function startAsking(name) {
  const task = await startTask({
    kind: 'agent',
    name,
    prompt: 'Ask.',
    permissions: { allow: ['run_process'], ask: ['run_process'] },
  });
  for (;;) {
    const { approvals } = await api('GET', `tasks/${task.id}`);
    if (approvals.length > 0) return { task, approval: approvals[0] };
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

test('a rule is listed as soon as it is granted, and revoked once', async (t) => {
  for (const { session, number } of (await api('GET', 'grants')).items)
    await api('DELETE', `sessions/${session}/grants/${number}`);
  const page = await openDashboard(t);
  await waitUntilLive(page);
  await page.getByRole('button', { name: 'Always allowed' }).click();
  const section = page.locator('#grants');
  await section.getByText('There are none.').waitFor();
  const { task, approval } = await startAsking(uniqueName('Asker'));
  await api('POST', `tasks/${task.id}/approvals/${approval.call}`, {
    verdict: 'allow_always',
    digest: approval.digest,
  });
  const grant = section.locator('.grant');
  await grant.waitFor();
  await expectAccessible(page, 'the rules', '#grants');
  await keepScreenshot(page, 'grants');
  await grant.getByRole('button', { name: /^Revoke / }).click();
  await section.getByText('There are none.').waitFor();
  assert.deepEqual((await api('GET', 'grants')).items, []);
  await section.getByRole('status').getByText(/^Revoked/).waitFor();
});

test('hidden characters of a rule are visible wherever it is named', async (t) => {
  const grant = {
    session: '01890000-0000-7000-8000-000000000000',
    session_name: 'kitchen',
    number: 1,
    rule: 'run_process(echo \u202esoup)',
    granted_at: '2026-01-01T00:00:00Z',
  };
  const page = await openDashboard(t);
  await waitUntilLive(page);
  let items = [grant];
  await page.route('**/v1/grants', (route) => route.fulfill({ json: { items } }));
  await page.route('**/v1/sessions/*/grants/1', (route) => {
    items = [];
    return route.fulfill({ status: 204 });
  });
  await page.getByRole('button', { name: 'Always allowed' }).click();
  const section = page.locator('#grants');
  const rule = 'run_process(echo ⟨U+202E⟩soup)';
  await section.getByRole('button', { name: `Revoke ${rule}` }).click();
  await section.getByText(`Revoked: ${rule}`).waitFor();
});
