// Logging in with a code, with a token, and being logged out.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  expectAccessible,
  keepScreenshot,
  openDashboard,
  token,
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
  await page.locator('#login-status:not(:empty)').waitFor();
  assert.equal(new URL(page.url()).hash, '');
});
