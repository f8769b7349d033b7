// Logging in with a code, with a token, and being logged out.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  expectAccessible,
  keepScreenshot,
  openDashboard,
  token,
  url,
  waitUntilLive,
  world,
} from './support.js';

test('a code in the fragment logs in once and leaves the URL at once', async (t) => {
  const code = world ? world.loginCode() : process.env.BRIGADE_CODE;
  const page = await openDashboard(t, { hash: `#code=${code}`, withToken: false });
  await waitUntilLive(page);
  assert.equal(new URL(page.url()).hash, '');
  assert.match(await page.evaluate(() => sessionStorage.getItem('brigade_token')), /^brg_/);
  assert.equal(await page.evaluate(() => localStorage.getItem('brigade_token')), null);
  assert.equal(await page.evaluate(() => document.cookie), '');
  const historyLength = await page.evaluate(() => history.length);
  await page.reload();
  await waitUntilLive(page);
  assert.equal(await page.evaluate(() => history.length), historyLength);
});

test('without a token the page says how to get one', async (t) => {
  const page = await openDashboard(t, { withToken: false });
  await page.getByText('brigade dashboard').waitFor();
  await expectAccessible(page, 'the login page');
  await keepScreenshot(page, 'login');
  const input = page.getByLabel('paste the link, or a token');
  await input.fill(`brg_${'x'.repeat(43)}`);
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.getByText('The server does not know this token.').waitFor();
  await input.fill(token);
  await page.keyboard.press('Enter');
  await waitUntilLive(page);
});

test('a used code leads to the login page with the reason', async (t) => {
  const page = await openDashboard(t, { hash: '#code=used-or-invented', withToken: false });
  await page.locator('#login-status.error', { hasText: /^The code is wrong/ }).waitFor();
  assert.equal(new URL(page.url()).hash, '');
});

test('logging out revokes the token of a login, and only that', async (t) => {
  const statusOf = async (secret) => {
    const headers = { authorization: `Bearer ${secret}` };
    return (await fetch(`${url}/v1/whoami`, { headers })).status;
  };
  const pasted = await openDashboard(t);
  await waitUntilLive(pasted);
  await pasted.getByRole('button', { name: 'Log out' }).click();
  await pasted.getByRole('button', { name: 'Log in' }).waitFor();
  assert.equal(await pasted.evaluate(() => sessionStorage.getItem('brigade_token')), null);
  assert.equal(await statusOf(token), 200, 'a pasted token has other uses');
  if (!world) return;
  const page = await openDashboard(t, { hash: `#code=${world.loginCode()}`, withToken: false });
  await waitUntilLive(page);
  const secret = await page.evaluate(() => sessionStorage.getItem('brigade_token'));
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByRole('button', { name: 'Log in' }).waitFor();
  assert.equal(await statusOf(secret), 401);
});

test('the page and the reference of the API link to each other', async (t) => {
  const page = await openDashboard(t);
  await waitUntilLive(page);
  await page.getByRole('link', { name: 'HTTP API' }).click();
  await page.getByRole('heading', { name: 'HTTP API' }).waitFor();
  await expectAccessible(page, 'the reference');
  await page.getByRole('link', { name: 'Dashboard' }).click();
  await waitUntilLive(page);
});

test('a page without tasks says how to start one', async (t) => {
  const page = await openDashboard(t);
  await page.route('**/v1/tasks?*', async (route) => {
    const response = await route.fetch();
    await route.fulfill({ response, json: { ...(await response.json()), items: [], next_page: null } });
  });
  await page.reload();
  await waitUntilLive(page);
  await page.getByText('brigade exec -- make').waitFor();
  await page.getByRole('button', { name: 'Start one' }).click();
  await page.getByLabel('Command line').waitFor();
});
