// 10,000 tasks and 200 changes per second: first rows, frame times, memory.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openDashboard, waitUntilLive } from './support.js';
import { World } from './world.js';

const binary = process.env.BRIGADE_BIN;
const TASKS = 10_000;
const MEASURED_MS = 5000;
/** Each task has two changes: its start and its end. */
const TASKS_PER_SECOND = 100;
const STARTERS = 4;

test(
  'a large world scrolls while changes arrive',
  { skip: binary ? false : 'BRIGADE_BIN is not set' },
  async (t) => {
    const world = await World.start(binary);
    t.after(() => world.stop());
    await world.startMany(TASKS);
    const page = await openDashboard(t, {
      base: world.url,
      withToken: world.token,
      hash: '#levels=all',
    });
    await page.locator('.task-rows .row:not([hidden])').first().waitFor();
    const firstRows = await timeSinceNavigation(page);
    await waitUntilLive(page);
    const loaded = await timeSinceNavigation(page);
    const session = await page.context().newCDPSession(page);
    await session.send('Performance.enable', { timeDomain: 'threadTicks' });
    const processorTime = async () => {
      const { metrics } = await session.send('Performance.getMetrics');
      return metrics.find((metric) => metric.name === 'TaskDuration').value * 1000;
    };
    const beginning = (await world.api('GET', 'whoami')).cursor;
    const before = await processorTime();
    const pause = () =>
      new Promise((resolve) => setTimeout(resolve, (1000 * STARTERS) / TASKS_PER_SECOND));
    const changes = world.startMany((TASKS_PER_SECOND * MEASURED_MS) / 1000, pause);
    const deltas = await page.evaluate(measureScroll, MEASURED_MS);
    const perFrame = (await processorTime()) - before;
    await changes;
    const { items } = await world.api('GET', `events?after=${beginning}&limit=1000`);
    t.diagnostic(`${items.length} changes while scrolling`);
    deltas.sort((a, b) => a - b);
    const nodes = await page.evaluate(() => document.querySelectorAll('*').length);
    t.diagnostic(`first rows after ${firstRows} ms, all after ${loaded} ms, ${nodes} DOM nodes`);
    t.diagnostic(
      `frames: p50 ${at(deltas, 0.5)} ms, p95 ${at(deltas, 0.95)} ms, worst ${at(deltas, 1)} ms`,
    );
    t.diagnostic(
      `processor time of the main thread: ${(perFrame / deltas.length).toFixed(1)} ms per frame`,
    );
    // Wall time depends on what else the machine does; the number of nodes and the processor time do not.
    assert.ok(nodes < 3000, 'only visible rows have nodes');
    assert.ok(perFrame / deltas.length < 16, 'a frame needs less than a frame of processor time');
  },
);

function timeSinceNavigation(page) {
  return page.evaluate(() => Math.round(performance.now()));
}

function at(sorted, quantile) {
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * quantile))].toFixed(1);
}

async function measureScroll(duration) {
  const grid = document.querySelector('#task-grid');
  const deltas = [];
  let last = performance.now();
  const end = last + duration;
  await new Promise((resolve) => {
    const step = (now) => {
      deltas.push(now - last);
      last = now;
      grid.scrollTop += 60;
      if (now < end) requestAnimationFrame(step);
      else resolve();
    };
    requestAnimationFrame(step);
  });
  return deltas;
}
