// Deciding pending approvals on the page. The server has at least two.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  PHONE,
  api,
  expectAccessible,
  keepScreenshot,
  openDashboard,
  startTask,
  uniqueName,
  waitUntilLive,
} from './support.js';

/** Returns pending approvals with their whole calls, the oldest first. */
async function pendingApprovals() {
  const { approvals } = await api('GET', 'pending');
  return approvals.sort((a, b) => a.approval.requested_at.localeCompare(b.approval.requested_at));
}

/** Returns the cards with an approval whose whole call is shown. */
function approvalCards(page) {
  return page.locator('.card:not(.is-decided)', {
    has: page.getByRole('button', { name: 'Allow once' }),
  });
}

test('a card shows the whole call', async (t) => {
  const page = await openDashboard(t);
  await waitUntilLive(page);
  const pending = await pendingApprovals();
  assert.ok(pending.length >= 2, 'the server has two pending approvals');
  await approvalCards(page).nth(1).waitFor();
  const texts = await approvalCards(page).allTextContents();
  const shown = texts.join();
  for (const { approval } of pending) {
    assert.ok(shown.includes(approval.tool));
    assert.ok(shown.includes(approval.rule));
    if (approval.directory) assert.ok(shown.includes(approval.directory));
    for (const [name, value] of Object.entries(JSON.parse(approval.arguments))) {
      assert.ok(shown.includes(name), `the card shows ${name}`);
      const isPlain = typeof value === 'string' && !/\p{Cf}/u.test(value);
      if (isPlain) assert.ok(shown.includes(value), `the card shows all of ${name}`);
    }
  }
  assert.doesNotMatch(shown, /[\u202a-\u202e\u2066-\u2069]/, 'such controls are spelled out');
});

test('a card that is decided elsewhere does not move the others under the pointer', async (t) => {
  const page = await openDashboard(t);
  await waitUntilLive(page);
  await approvalCards(page).nth(1).waitFor();
  const [oldest] = await pendingApprovals();
  const other = approvalCards(page).nth(1);
  await other.getByRole('button', { name: 'Allow once' }).hover();
  const before = await other.boundingBox();
  await api('POST', `tasks/${oldest.task}/approvals/${oldest.approval.call}`, { verdict: 'deny' });
  await page.locator('.card.is-decided', { hasText: 'Decided' }).waitFor();
  assert.deepEqual(await approvalCards(page).first().boundingBox(), before);
  await page.mouse.move(5, 895);
  await page.locator('.card.is-decided').waitFor({ state: 'detached' });
});

test('the verdict names the digest of the call that was shown', async (t) => {
  const page = await openDashboard(t);
  await waitUntilLive(page);
  const [{ task, approval }] = await pendingApprovals();
  const card = approvalCards(page).first();
  const sent = page.waitForRequest(
    (request) => request.method() === 'POST' && request.url().includes('/approvals/'),
  );
  await card.getByRole('button', { name: 'Allow once' }).click();
  assert.deepEqual((await sent).postDataJSON(), {
    verdict: 'allow_once',
    digest: approval.digest,
  });
  await page.locator('.card.is-decided', { hasText: 'Allowed' }).waitFor();
  const decided = await api('GET', `tasks/${task}`);
  assert.ok(!decided.approvals.some((pending) => pending.call === approval.call));
});

/** Starts an agent that asks to run a process, and returns it and its card. */
async function startAsker(page) {
  const name = uniqueName('Asker');
  const permissions = { allow: ['run_process'], ask: ['run_process'] };
  const task = await startTask({ kind: 'agent', prompt: 'Ask.', name, permissions });
  const card = page.locator('.card:not(.is-decided)', { hasText: name });
  await card.getByRole('button', { name: 'Deny…' }).waitFor();
  return { task, card };
}

test('a rule that is always allowed becomes a grant', async (t) => {
  const page = await openDashboard(t);
  await waitUntilLive(page);
  const { task, card } = await startAsker(page);
  await card.getByRole('button', { name: 'Always allow…' }).click();
  const rule = card.getByLabel('Calls that are always allowed');
  await rule.fill('run_process(make *)');
  await card.getByRole('button', { name: 'Always allow', exact: true }).click();
  await card.locator('.card-status.error', { hasText: 'does not allow' }).waitFor();
  await rule.fill('run_process(echo *)');
  await card.getByRole('button', { name: 'Always allow', exact: true }).click();
  await page.locator('.card.is-decided', { hasText: 'Allowed' }).waitFor();
  const { items } = await api('GET', 'grants');
  assert.ok(items.some((grant) => grant.rule === 'run_process(echo *)'));
  assert.deepEqual((await api('GET', `tasks/${task.id}`)).approvals, []);
});

test('the agent reads the reason of a denial', async (t) => {
  const page = await openDashboard(t);
  await waitUntilLive(page);
  for (const grant of (await api('GET', 'grants')).items)
    await api('DELETE', `sessions/${grant.session}/grants/${grant.number}`);
  const { task, card } = await startAsker(page);
  await card.getByRole('button', { name: 'Deny…' }).click();
  const reason = uniqueName('not before the release');
  await card.getByLabel('Reason').fill(reason);
  await card.getByRole('button', { name: 'Deny', exact: true }).click();
  await page.locator('.card.is-decided', { hasText: 'Denied' }).waitFor();
  await page.goto(`${new URL(page.url()).origin}/#task=${task.id}&tab=transcript`);
  await page.locator('.entry-tool', { hasText: reason }).waitFor();
});

test('the panel of a waiting task has the same card', async (t) => {
  const page = await openDashboard(t, { viewport: PHONE, withTouch: true });
  await waitUntilLive(page);
  const { task } = await startAsker(page);
  await page.goto(`${new URL(page.url()).origin}/#task=${task.id}`);
  const card = page.locator('#task-panel .card');
  await keepScreenshot(page, 'phone-approval');
  await expectAccessible(page, 'a task that needs an approval');
  await card.getByRole('button', { name: 'Allow once' }).tap();
  await page.locator('#task-panel .card.is-decided', { hasText: 'Allowed' }).waitFor();
  assert.deepEqual((await api('GET', `tasks/${task.id}`)).approvals, []);
});

test('a client sees no buttons at a call that it may not decide', async (t) => {
  const operator = await openDashboard(t);
  await waitUntilLive(operator);
  const { task } = await startAsker(operator);
  const { secret } = await api('POST', 'tokens', {
    name: uniqueName('viewer'),
    scope: 'client',
    session: task.session,
  });
  const page = await openDashboard(t, { withToken: secret, hash: `#task=${task.id}` });
  await waitUntilLive(page);
  const card = page.locator('#task-panel .card');
  await card.getByText('An operator decides this call').waitFor();
  assert.equal(await card.getByRole('button', { name: 'Allow once' }).count(), 0);
});
