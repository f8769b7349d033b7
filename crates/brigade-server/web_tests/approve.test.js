// Deciding a pending approval on the page.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { api, openDashboard, waitUntilLive } from './support.js';

test('the card shows the whole call, and the verdict names its digest', async (t) => {
  const page = await openDashboard(t);
  await waitUntilLive(page);
  const { approvals } = await api('GET', 'pending');
  assert.ok(approvals.length > 0, 'the server has a pending approval');
  const { task, approval } = approvals.sort((a, b) =>
    a.approval.requested_at.localeCompare(b.approval.requested_at),
  )[0];
  const card = page
    .locator('.card', { has: page.getByRole('button', { name: 'Allow once' }) })
    .first();
  await card.waitFor();
  const text = await card.innerText();
  assert.ok(text.includes(approval.tool));
  assert.ok(text.includes(approval.rule));
  if (approval.directory) assert.ok(text.includes(approval.directory));
  for (const name of Object.keys(JSON.parse(approval.arguments)))
    assert.ok(text.includes(name), `the card shows ${name}`);
  assert.doesNotMatch(
    text,
    /[\u202a-\u202e\u2066-\u2069]/,
    'bidirectional controls are spelled out',
  );

  const sent = page.waitForRequest(
    (request) => request.method() === 'POST' && request.url().includes('/approvals/'),
  );
  await card.getByRole('button', { name: 'Allow once' }).click();
  const body = (await sent).postDataJSON();
  assert.equal(body.verdict, 'allow_once');
  assert.equal(body.digest, approval.digest);
  await page.locator('.card.is-decided', { hasText: 'Allowed' }).waitFor();
  const decided = await api('GET', `tasks/${task}`);
  assert.ok(!decided.approvals.some((pending) => pending.call === approval.call));
  await page.mouse.move(5, 895);
  await page.locator('#task-grid').focus();
  await page.locator('.card.is-decided').waitFor({ state: 'detached' });
});
