// Changes appear without a reload, and the reader's place stays.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  openDashboard,
  rowOf,
  startProcess,
  startTask,
  uniqueName,
  waitUntilLive,
} from './support.js';

test('a task that starts elsewhere appears, and its end too', async (t) => {
  const page = await openDashboard(t);
  await waitUntilLive(page);
  const name = uniqueName('live');
  await startProcess('echo hello', name);
  await rowOf(page, name).waitFor();
  await rowOf(page, name).locator('.cell-state', { hasText: 'succeeded' }).waitFor();
});

test('the title counts tasks by state', async (t) => {
  const page = await openDashboard(t);
  await waitUntilLive(page);
  await startProcess('sleep 5', uniqueName('counted'));
  await page.waitForFunction(() => /\d+ running/.test(document.title));
  assert.match(await page.title(), /Brigade$/);
});

test('rows that arrive above are counted and do not move the reader', async (t) => {
  const page = await openDashboard(t, {
    viewport: { width: 1000, height: 500 },
    hash: '#levels=all',
  });
  for (let index = 0; index < 12; index += 1)
    await startProcess(`sleep ${30 + index}`, uniqueName('filler'));
  await waitUntilLive(page);
  await page.waitForFunction(
    () => document.querySelectorAll('.task-rows .row:not([hidden])').length > 8,
  );
  await page.waitForTimeout(500);
  await page.locator('#task-grid').evaluate((grid) => {
    grid.scrollTop = 84;
  });
  await page.waitForTimeout(300);
  const topLabel = () =>
    page.locator('#task-grid').evaluate((grid) => {
      const head = grid.querySelector('.grid-head').getBoundingClientRect().bottom;
      const rows = [...grid.querySelectorAll('.task-rows .row:not([hidden])')];
      const first = rows.find((row) => Math.abs(row.getBoundingClientRect().top - head) < 4);
      return first?.querySelector('.label').textContent;
    });
  const before = await topLabel();
  assert.ok(before);
  const names = [uniqueName('above'), uniqueName('above'), uniqueName('above')];
  for (const name of names) await startProcess('sleep 30', name);
  await page.locator('#new-rows', { hasText: '3 new' }).waitFor();
  assert.equal(await topLabel(), before);
  await page.locator('#new-rows').click();
  await rowOf(page, names[2]).waitFor();
  await page.locator('#new-rows').waitFor({ state: 'hidden' });
});

test('live output is text, whatever it says', async (t) => {
  const page = await openDashboard(t);
  await waitUntilLive(page);
  const name = uniqueName('output');
  const task = await startProcess('echo "<img src=x onerror=alert(1)> first-line"; sleep 30', name);
  await page.goto(`${new URL(page.url()).origin}/#task=${task.id}&tab=output`);
  const line = page.locator('.output .line', { hasText: 'first-line' });
  await line.waitFor();
  assert.match(await line.textContent(), /<img src=x onerror=alert\(1\)>/);
  assert.equal(await page.locator('img').count(), 0);
});

test('a reply is shown while it arrives, and once when it is recorded', async (t) => {
  const name = uniqueName('Helper-live');
  const agent = await startTask({ kind: 'agent', prompt: 'Say hello.', name });
  const page = await openDashboard(t, { hash: `#task=${agent.id}&tab=transcript` });
  await waitUntilLive(page);
  const reply = 'Hello. I looked around';
  await page.locator('.transcript-live', { hasText: 'Hello.' }).waitFor();
  await page.locator('.entry', { hasText: reply }).waitFor();
  await page.locator('.transcript-live').waitFor({ state: 'hidden' });
  assert.equal(await page.getByText(reply).and(page.locator(':visible')).count(), 1);
});

test('the ANSI writer keeps colours and removes the rest', async (t) => {
  const page = await openDashboard(t);
  const shown = await page.evaluate(async () => {
    const { AnsiWriter } = await import(new URL('assets/ansi.js', document.baseURI).href);
    const target = document.createElement('div');
    const writer = new AnsiWriter(target);
    writer.write(
      '\u001b[31mred\u001b[0m plain \u001b]0;title\u0007\u001b[2J\u001b[1;1H<b>text</b>\n',
    );
    writer.write('cut \u001b[3');
    writer.write('2mgreen\u001b[m\nold\rnew\n\u202etxt\n');
    return [...target.children].map((line) => line.innerHTML);
  });
  assert.deepEqual(shown, [
    '<span class="ansi-fg-1">red</span> plain &lt;b&gt;text&lt;/b&gt;',
    'cut <span class="ansi-fg-2">green</span>',
    'new',
    '⟨U+202E⟩txt',
  ]);
});

test('the SSE reader accepts frames that are cut anywhere', async (t) => {
  const page = await openDashboard(t);
  const events = await page.evaluate(async () => {
    const { SseParser } = await import(new URL('assets/sse_reader.js', document.baseURI).href);
    const text =
      ': comment\r\nid: a\r\nevent: change\r\ndata: {"x":\r\ndata: 1}\r\n\r\nevent: heartbeat\ndata:\n\n';
    const parser = new SseParser();
    return [...text].flatMap((letter) => parser.push(letter));
  });
  assert.deepEqual(events, [
    { event: 'change', id: 'a', data: '{"x":\n1}' },
    { event: 'heartbeat', id: '', data: '' },
  ]);
});
