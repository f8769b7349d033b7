// Bars are truthful: they show the same before and after a reload, and only what is known as known.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import {
  api,
  keepScreenshot,
  openDashboard,
  rowOf,
  startProcess,
  startTask,
  uniqueName,
  waitUntilLive,
} from './support.js';

/** Returns the pieces of a bar, from the left to the right. */
function bar(page, name) {
  return rowOf(page, name)
    .locator('.segment:not(.is-unused)')
    .evaluateAll((segments) =>
      segments.map((segment) => ({
        look: segment.className.replace('segment ', '').replaceAll('segment-', ''),
        left: Number.parseFloat(segment.style.left),
        width: Number.parseFloat(segment.style.width),
      })),
    );
}

async function untilState(id, state) {
  const deadline = Date.now() + 15_000;
  for (;;) {
    const task = await api('GET', `tasks/${id}`);
    if (task.state === state) return task;
    assert.ok(Date.now() < deadline, `${task.name} is ${task.state}, not ${state}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

const looks = (pieces) => pieces.map((piece) => piece.look);

test('runs are separate pieces with their own outcomes, also after a reload', async (t) => {
  const name = uniqueName('runs');
  const task = await startProcess('sleep 600', name);
  const page = await openDashboard(t, { hash: '#range=5m' });
  await waitUntilLive(page);
  await rowOf(page, name).waitFor();
  await api('POST', `tasks/${task.id}/stop`, { grace_ms: 0 });
  await untilState(task.id, 'cancelled');
  await page.waitForTimeout(3000);
  await api('POST', `tasks/${task.id}/resume`, {});
  await untilState(task.id, 'running');
  await rowOf(page, name).locator('.segment-running').waitFor();
  const watched = await bar(page, name);
  const isFirstRun = (piece) => piece.look.includes('cancelled');
  const endOfFirst = (pieces) => {
    const first = pieces.filter(isFirstRun).at(-1);
    return first.left + first.width;
  };
  const startOfSecond = (pieces) => pieces.find((piece) => piece.look === 'running').left;
  assert.ok(startOfSecond(watched) - endOfFirst(watched) > 0.5, 'nothing is drawn in the pause');
  await page.reload();
  await rowOf(page, name).locator('.segment-end.segment-cancelled').waitFor();
  const reloaded = await bar(page, name);
  assert.deepEqual(looks(reloaded), ['unseen', 'end cancelled', 'running']);
  assert.ok(startOfSecond(reloaded) - endOfFirst(reloaded) > 0.5, 'nothing is drawn in the pause');
  assert.match(
    await rowOf(page, name).locator('.cell-bar').getAttribute('title'),
    /Run 1 cancelled at .*\nRun 2 running from/,
  );
  await rowOf(page, name).click();
  await rowOf(page, name).locator('.segment-unseen').waitFor({ state: 'detached' });
  assert.deepEqual(new Set(looks(await bar(page, name))), new Set(['cancelled', 'running']));
  await api('POST', `tasks/${task.id}/stop`, { grace_ms: 0 });
});

test('states that nobody watched are neutral until the task is opened', async (t) => {
  const name = uniqueName('Asker');
  const agent = await startTask({
    kind: 'agent',
    prompt: 'Ask.',
    name,
    permissions: { allow: ['run_process'], ask: ['run_process'] },
  });
  const waiting = await untilState(agent.id, 'waiting');
  const page = await openDashboard(t, { hash: '#range=5m' });
  await waitUntilLive(page);
  await rowOf(page, name).locator('.segment-waiting').waitFor();
  await page.waitForTimeout(3000);
  const [{ call, digest }] = waiting.approvals;
  await api('POST', `tasks/${agent.id}/approvals/${call}`, { verdict: 'deny', digest });
  await untilState(agent.id, 'succeeded');
  const widest = async () => (await bar(page, name)).sort((a, b) => b.width - a.width)[0].look;
  await rowOf(page, name).and(page.locator('.is-ended')).waitFor();
  assert.equal(await widest(), 'waiting', 'the page watched it');
  await page.reload();
  await rowOf(page, name).locator('.segment-end').waitFor();
  assert.equal(await widest(), 'unseen', 'nobody has watched it');
  await rowOf(page, name).click();
  await rowOf(page, name).locator('.segment-waiting').waitFor();
  assert.equal(await widest(), 'waiting', 'its events say so');
});

test('a task before the range has a mark, and the automatic range does not jump', async (t) => {
  const name = uniqueName('before');
  await startProcess('true', name);
  const page = await openDashboard(t);
  await waitUntilLive(page);
  await rowOf(page, name).locator('.segment:not(.is-unused)').waitFor({ state: 'attached' });
  await page.evaluate(async () => {
    const { TimeAxis } = await import(new URL('assets/time_axis.js', document.baseURI).href);
    const root = (spawnedAt, alive) => ({ spawnedAt, task: { alive } });
    const axis = new TimeAxis();
    const now = 1_000_000;
    axis.fit({ roots: [root(900_000, true), root(100_000, true)] }, now);
    const before = axis.from;
    axis.fit({ roots: [root(900_000, true), root(100_000, false)] }, now);
    if (axis.from !== before) throw new Error('the range jumps when the oldest task ends');
    axis.setRange('auto');
    axis.fit({ roots: [root(900_000, true), root(100_000, false)] }, now);
    if (axis.from === before) throw new Error('a choice fits the range anew');
  });
  await page.clock.install();
  await page.clock.setSystemTime(Date.now() + 600_000);
  await page.locator('#filter-range').selectOption('5m');
  await rowOf(page, name).locator('.earlier').waitFor({ state: 'visible' });
});

test('every waiting row in view has a line, and that of the selected one is stronger', async (t) => {
  const hash = '#levels=all&state=running,waiting';
  const page = await openDashboard(t, { hash });
  await waitUntilLive(page);
  const release = rowOf(page, 'Release');
  await release.waitFor();
  await page.locator('.wait-line').first().waitFor({ state: 'attached' });
  assert.equal(await page.locator('.wait-line.is-strong').count(), 0);
  await keepScreenshot(page, 'wait-lines');
  await release.click();
  await page.locator('.wait-line.is-strong').first().waitFor({ state: 'attached' });
});

test('after a gap in the feed, time that nobody told is unseen', async (t) => {
  const page = await openDashboard(t);
  const looks = await page.evaluate(async () => {
    const address = new URL('assets/task_timeline.js', document.baseURI).href;
    const { TaskTimeline } = await import(address);
    const time = (second) => new Date(second * 1000).toISOString();
    const row = (more) => ({
      kind: 'agent',
      run: 1,
      attempt: 1,
      alive: true,
      state: 'running',
      spawned_at: time(0),
      started_at: time(0),
      state_since: time(0),
      ...more,
    });
    const shown = (timeline) =>
      timeline.stretches(20_000).map(({ look, from, to }) => `${look} ${from / 1000}-${to / 1000}`);
    const same = new TaskTimeline(row({}));
    same.sync(row({ state: 'waiting', state_since: time(9) }));
    const later = new TaskTimeline(row({}));
    later.sync(row({ run: 3, attempt: 3, started_at: time(12), state_since: time(12) }));
    const missing = shown(later);
    const outcome = { type: 'failed', text: 'failed' };
    later.addEarlierRuns([{ run: 1, ended_at: time(5), outcome, collected: false }]);
    return [shown(same), missing, shown(later)];
  });
  assert.deepEqual(looks, [
    ['unseen 0-9', 'waiting 9-20'],
    ['past 0-12', 'running 12-20'],
    ['unseen 0-5', 'failed 5-5', 'past 5-12', 'running 12-20'],
  ]);
});
