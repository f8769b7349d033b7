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
