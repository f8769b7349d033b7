// 10,000 tasks and 200 changes per second: first rows, frame times, memory.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { openDashboard, waitUntilLive } from './support.js';

const base = process.env.BRIGADE_LARGE_URL;
const MEASURED_MS = 5000;

test(
  'a large world scrolls while changes arrive',
  { skip: base ? false : 'BRIGADE_LARGE_URL is not set' },
  async (t) => {
    const page = await openDashboard(t, { base: base.replace(/\/$/, ''), hash: '#levels=all' });
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
    const before = await processorTime();
    const deltas = await page.evaluate(measureScroll, MEASURED_MS);
    const perFrame = (await processorTime()) - before;
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
