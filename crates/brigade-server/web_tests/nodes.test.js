// "Nodes": the nodes of a fleet, their sessions and their drains. The server of the tests is no node of a
// fleet, so that the tests answer in its place.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  PHONE,
  api,
  expectAccessible,
  keepScreenshot,
  openDashboard,
  waitUntilLive,
} from './support.js';

const ONE = {
  name: 'kitchen-1',
  host: 'rack-7.example/01a1f036a4f2',
  state: 'running',
  lease_remaining_ms: 8400,
  owned_sessions: 2,
  running_tasks: 3,
  clock_skew_ms: 2,
  version: '0.1.0',
  labels: ['gpu', 'node=kitchen-1', 'eu', 'host=rack-7.example'],
  capacity: 1000,
  joined_at: '2026-01-01T00:00:00Z',
  own: true,
};
const TWO = {
  ...ONE,
  name: 'rack/kitchen-2',
  own: false,
  owned_sessions: 0,
  clock_skew_ms: -2500,
  clock_skew_warning: true,
  labels: [],
  capacity: undefined,
  joined_at: '2026-01-02T00:00:00Z',
};
const THREE = { ...ONE, name: 'kitchen-3', state: 'ended', own: false, owned_sessions: 0 };

/**
 * Answers for a fleet.
 * @param {import('playwright-core').Page} page
 */
async function serveFleet(page) {
  const fleet = { nodes: [ONE, TWO, THREE].map((node) => ({ ...node })), drains: [] };
  await page.route('**/v1/nodes', (route) =>
    route.fulfill({ json: { fleet: true, items: fleet.nodes } }),
  );
  await page.route('**/v1/nodes/*/drain', (route) => {
    const name = decodeURIComponent(new URL(route.request().url()).pathname.split('/').at(-2));
    const { draining } = route.request().postDataJSON();
    fleet.drains.push([name, draining]);
    const node = fleet.nodes.find((one) => one.name === name);
    node.state = draining ? 'draining' : 'running';
    return route.fulfill({ json: node });
  });
  await page.route('**/v1/sessions', (route) => {
    const session = { state: 'open', opened_at: ONE.joined_at, uncollected_tasks: 0, usage: {} };
    const items = [
      { ...session, id: '1', name: '/srv/soup\u202e', alive_tasks: 1, node: 'kitchen-1' },
      { ...session, id: '2', name: '/srv/bread', alive_tasks: 2, node: 'kitchen-1' },
      { ...session, id: '3', name: '/srv/rest', alive_tasks: 0 },
    ];
    return route.fulfill({ json: { items } });
  });
  await page.reload();
  await waitUntilLive(page);
  return fleet;
}

const itemOf = (page, name) =>
  page.locator('.node', { has: page.locator('.node-name', { hasText: name }) });

test('a server without a fleet has no button for nodes', async (t) => {
  assert.deepEqual(await api('GET', 'nodes'), { fleet: false, items: [] });
  const page = await openDashboard(t);
  const asked = page.waitForResponse('**/v1/nodes');
  await page.reload();
  await asked;
  await waitUntilLive(page);
  assert.equal(await page.locator('#nodes-toggle').isVisible(), false);
});

for (const theme of /** @type {const} */ (['light', 'dark'])) {
  test(`nodes, their facts and sessions in the ${theme} theme`, async (t) => {
    const page = await openDashboard(t, { theme });
    const fleet = await serveFleet(page);
    await page.getByRole('button', { name: 'Nodes' }).click();
    const one = itemOf(page, 'kitchen-1');
    await one.getByText('this server').waitFor();
    const facts = await one.locator('.node-facts').innerText();
    for (const fact of ['rack-7.example', '2 of 1000', '8s', '+2ms', '0.1.0', 'gpu, eu'])
      assert.ok(facts.includes(fact), `${fact} is in ${facts}`);
    assert.equal(await one.locator('.node-warning').isVisible(), false);
    await itemOf(page, 'kitchen-2').getByText('Its clock differs by −2s').waitFor();
    const three = itemOf(page, 'kitchen-3');
    assert.equal(await three.locator('.node-state').textContent(), 'ended');
    assert.equal(await three.getByRole('button').count(), 0);
    await one.getByText('2 sessions').click();
    await one.getByText('/srv/bread').waitFor();
    await one.locator('.hidden-character', { hasText: 'U+202E' }).waitFor();
    assert.equal(await one.getByText('/srv/rest').count(), 0);
    await expectAccessible(page, 'the nodes', '#nodes');
    await keepScreenshot(page, `nodes-${theme}`);
    // The open section asks again, and what was expanded stays so.
    fleet.nodes[0].owned_sessions = 7;
    fleet.nodes.pop();
    await one.getByText('7 sessions').waitFor();
    await three.waitFor({ state: 'detached' });
    assert.equal(await one.getByText('/srv/bread').isVisible(), true);
    await page.keyboard.press('Escape');
    await page.locator('#nodes').waitFor({ state: 'hidden' });
  });
}

test('a drain asks first, and is undone at once', async (t) => {
  const page = await openDashboard(t);
  const fleet = await serveFleet(page);
  await page.getByRole('button', { name: 'Nodes' }).click();
  const two = itemOf(page, 'kitchen-2');
  await two.getByRole('button', { name: 'Drain rack/kitchen-2' }).click();
  await two.getByText('Drain rack/kitchen-2?').waitFor();
  await expectAccessible(page, 'the question before a drain', '#nodes');
  await keepScreenshot(page, 'nodes-drain');
  await two.getByRole('button', { name: 'Cancel' }).click();
  assert.deepEqual(fleet.drains, []);
  await two.getByRole('button', { name: 'Drain rack/kitchen-2' }).click();
  await two.getByRole('button', { name: 'Drain the node' }).click();
  await page.locator('#nodes').getByText('rack/kitchen-2 is draining.').waitFor();
  assert.equal(await two.locator('.node-state').textContent(), 'draining');
  await two.getByRole('button', { name: 'Undo the drain of rack/kitchen-2' }).click();
  await page.locator('#nodes').getByText('rack/kitchen-2 claims sessions again.').waitFor();
  assert.deepEqual(fleet.drains, [
    ['rack/kitchen-2', true],
    ['rack/kitchen-2', false],
  ]);
});

test('a token that only reads drains nothing', async (t) => {
  const { secret } = await api('POST', 'tokens', { name: 'wall', scope: 'read_only' });
  const page = await openDashboard(t, { withToken: secret });
  await serveFleet(page);
  await page.getByRole('button', { name: 'Nodes' }).click();
  await itemOf(page, 'kitchen-1').getByText('this server').waitFor();
  assert.equal(await page.locator('#nodes').getByRole('button', { name: /rain/ }).count(), 0);
});

test('nodes fit a phone', async (t) => {
  const page = await openDashboard(t, { viewport: PHONE, withTouch: true });
  await serveFleet(page);
  await page.getByRole('button', { name: 'Nodes' }).tap();
  const one = itemOf(page, 'kitchen-1');
  await one.getByText('2 sessions').tap();
  await one.getByText('/srv/bread').waitFor();
  const overflow = await page.evaluate(
    () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
  );
  assert.equal(overflow, 0);
  const head = await page.locator('.page-head').evaluate((element) => ({
    wanted: element.scrollWidth,
    given: element.clientWidth,
  }));
  assert.ok(head.wanted <= head.given, 'the head of the page is not cut off');
  await expectAccessible(page, 'the nodes on a phone', '#nodes');
  await keepScreenshot(page, 'phone-nodes');
});
