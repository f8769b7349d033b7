// Sending a message and following its receipt.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  api,
  openDashboard,
  startProcess,
  startTask,
  uniqueName,
  waitUntilLive,
} from './support.js';

test('a message is sent once and its receipt is shown', async (t) => {
  const { items } = await api('GET', 'tasks?kind=agent&limit=1000');
  const agent = items.find((task) => task.kind === 'agent' && task.alive);
  assert.ok(agent, 'the server has an agent that is alive');
  const page = await openDashboard(t, { hash: `#task=${agent.id}&tab=messages` });
  await waitUntilLive(page);
  const text = uniqueName('Use the staging database');
  const input = page.locator('.composer textarea');
  await input.fill(text);
  await input.press('Control+Enter');
  const message = page.locator('.message', { hasText: text });
  await message.waitFor();
  await message.locator('.receipt', { hasText: /accepted|delivered|read/ }).waitFor();
  await message.locator('.entry-role', { hasText: /from operator, token / }).waitFor();
  assert.equal(await input.inputValue(), '');
  const { items: messages } = await api('GET', `tasks/${agent.id}/messages?limit=500`);
  assert.equal(messages.filter((sent) => JSON.stringify(sent.body).includes(text)).length, 1);
});

test('the sender of a message is named, also by a later page of events', async (t) => {
  const reader = await startTask({ kind: 'process', shell: 'cat', stdin: true });
  const text = uniqueName('line');
  await api('POST', `tasks/${reader.id}/messages`, { body: text });
  const page = await openDashboard(t);
  await waitUntilLive(page);
  let requests = 0;
  await page.route(/\/events\?.*types=message_sent/, async (route) => {
    const url = new URL(route.request().url());
    requests += 1;
    if (url.searchParams.get('after') === 'second') {
      url.searchParams.delete('after');
      return route.fulfill({ response: await route.fetch({ url: url.href }) });
    }
    return route.fulfill({ json: { items: [], cursor: 'second', has_more: true, gap: false } });
  });
  await page.goto(`${new URL(page.url()).origin}/#task=${reader.id}&tab=messages`);
  const message = page.locator('.message', { hasText: text });
  await message.locator('.entry-role', { hasText: /from operator, token / }).waitFor();
  assert.equal(requests, 2);
  await api('POST', `tasks/${reader.id}/stop`, { grace_ms: 0 });
});

test('there is no message box where no message can arrive', async (t) => {
  const silent = await startProcess('sleep 300', uniqueName('silent'));
  const reading = await startTask({ kind: 'process', shell: 'cat', stdin: true });
  const page = await openDashboard(t, { hash: `#task=${silent.id}&tab=messages` });
  await waitUntilLive(page);
  await page.getByText('It was started without an input').waitFor();
  assert.equal(await page.locator('.composer').isVisible(), false);
  assert.equal(await page.getByRole('button', { name: 'Message', exact: true }).count(), 0);
  await page.goto(`${new URL(page.url()).origin}/#task=${reading.id}&tab=messages`);
  await page.locator('.composer').waitFor({ state: 'visible' });
  await api('POST', `tasks/${reading.id}/stop`, { grace_ms: 0 });
  await page.getByText('It has ended and takes no more messages.').waitFor();
  assert.equal(await page.locator('.composer').isVisible(), false);
  await api('POST', `tasks/${silent.id}/stop`, { grace_ms: 0 });
});

test('a message to an ended agent says that it starts another run', async (t) => {
  const agent = await startTask({ kind: 'agent', prompt: 'Say hello.', name: uniqueName('Helper') });
  const page = await openDashboard(t, { hash: `#task=${agent.id}&tab=messages` });
  await waitUntilLive(page);
  await page.locator('.composer textarea').fill('Look again.');
  await page.getByRole('button', { name: 'Send and start run 2' }).click();
  await page.getByRole('tab', { name: 'Overview' }).click();
  await page.getByText('Run 2, attempt').waitFor();
});
