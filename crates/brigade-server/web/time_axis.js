// The one time axis that all rows share.

/** @import {TaskStore, TaskRecord} from './task_store.js' */

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const STEPS = [
  1000,
  5000,
  15_000,
  30_000,
  MINUTE,
  2 * MINUTE,
  5 * MINUTE,
  10 * MINUTE,
  15 * MINUTE,
  30 * MINUTE,
  HOUR,
  2 * HOUR,
  3 * HOUR,
  6 * HOUR,
  12 * HOUR,
  DAY,
  2 * DAY,
  7 * DAY,
  14 * DAY,
  28 * DAY,
];
const MIN_TICK_PX = 88;
/** Ended top-level tasks that the automatic range shows when nothing is alive. */
const RECENT_ROOTS = 30;
/** Alive top-level tasks to which the automatic range is fitted. */
const RECENT_ALIVE = 100;

/** The ranges that a reader can choose, in milliseconds. `auto` and `all` depend on the tasks. */
export const RANGES = new Map([
  ['5m', 5 * MINUTE],
  ['15m', 15 * MINUTE],
  ['1h', HOUR],
  ['6h', 6 * HOUR],
  ['24h', DAY],
  ['7d', 7 * DAY],
]);

export class TimeAxis {
  constructor() {
    this.from = Date.now() - HOUR;
    this.to = Date.now();
    /** A subtree to which the axis is fitted. @type {TaskRecord | null} */
    this.focus = null;
    this.range = 'auto';
    /** The start of the automatic range. It stays when the oldest alive task ends. */
    this.autoStart = Infinity;
  }

  /** Chooses a range. The automatic one is fitted anew. @param {string} range */
  setRange(range) {
    this.range = range;
    this.focus = null;
    this.autoStart = Infinity;
  }

  /**
   * Sets both ends.
   * @param {TaskStore} store
   * @param {number} now
   */
  fit(store, now) {
    let from;
    let to = now;
    if (this.focus) {
      const extent = subtreeExtent(this.focus, now);
      from = extent.from;
      to = extent.to;
    } else {
      from = this.#start(store, now);
    }
    const span = Math.max(to - from, 10_000);
    this.from = to - span * 1.01;
    this.to = to + span * 0.02;
  }

  /**
   * Returns the place of a time between 0 and 1. It may lie outside.
   * @param {number} time
   */
  place(time) {
    return (time - this.from) / (this.to - this.from);
  }

  /**
   * Returns the times of the ticks for a width in pixels.
   * @param {number} width
   */
  ticks(width) {
    const span = this.to - this.from;
    const most = Math.max(1, Math.floor(width / MIN_TICK_PX));
    const step = STEPS.find((candidate) => span / candidate <= most) ?? STEPS[STEPS.length - 1];
    const offset = new Date(this.to).getTimezoneOffset() * MINUTE;
    const ticks = [];
    let tick = Math.ceil((this.from - offset) / step) * step + offset;
    for (; tick < this.to; tick += step) ticks.push(tick);
    return { ticks, step };
  }

  /**
   * @param {TaskStore} store
   * @param {number} now
   */
  #start(store, now) {
    const fixed = RANGES.get(this.range);
    if (fixed) return now - fixed;
    if (this.range === 'all') {
      let from = now;
      for (const root of store.roots) from = Math.min(from, root.spawnedAt);
      return from;
    }
    const fitted = autoStart(store, now);
    // The range grows, but does not jump when a task ends.
    if (store.roots.length > 0) this.autoStart = Math.min(this.autoStart, fitted);
    return Math.min(this.autoStart, fitted);
  }
}

/**
 * Returns the start that fits the alive tasks, or the last ended ones.
 * @param {TaskStore} store
 * @param {number} now
 */
function autoStart(store, now) {
  const alive = [];
  for (const root of store.roots) {
    if (root.task.alive) alive.push(root.spawnedAt);
    if (alive.length === RECENT_ALIVE) break;
  }
  // A few old tasks do not squeeze all others: their bars are cut off at the edge.
  if (alive.length > 0) return alive[Math.ceil(0.9 * (alive.length - 1))];
  let from = now;
  for (const root of store.roots.slice(0, RECENT_ROOTS)) from = Math.min(from, root.spawnedAt);
  return from;
}

/**
 * @param {TaskRecord} record
 * @param {number} now
 */
function subtreeExtent(record, now) {
  let from = Infinity;
  let to = 0;
  const stack = [record];
  for (let next = stack.pop(); next; next = stack.pop()) {
    from = Math.min(from, next.spawnedAt);
    to = Math.max(to, next.task.alive ? now : next.endedAt || next.spawnedAt);
    stack.push(...next.children);
  }
  return { from, to };
}
