// All visible tasks in memory: by id, with their parents and children, counted by state.
// Changes are applied at once; readers are told at most once per frame.

/** @import {Change, Task, TaskId} from './api_types.d.ts' */

import { TaskTimeline } from './task_timeline.js';
import { visibleLine } from './visible_text.js';

const HIDDEN_FLUSH_MS = 500;

/**
 * What changed since the last frame.
 * @typedef {{changed: Set<TaskId>, structure: boolean}} StoreUpdate
 */

/** A task with what the page derives from it. */
export class TaskRecord {
  /**
   * @param {Task} task
   * @param {number} arrival
   */
  constructor(task, arrival) {
    this.id = task.id;
    this.task = task;
    /** Rises with every new task, so that the page can count the new ones. */
    this.arrival = arrival;
    /** Rises with every change, so that a row knows when to render again. */
    this.version = 0;
    /** @type {TaskRecord | null} */
    this.parent = null;
    /** @type {TaskRecord[]} */
    this.children = [];
    this.spawnedAt = Date.parse(task.spawned_at);
    this.endedAt = NaN;
    this.label = '';
    this.foldKey = '';
    this.searchText = '';
    this.timeline = new TaskTimeline(task);
    this.#derive();
  }

  /** @param {Task} task */
  update(task) {
    this.task = task;
    this.version += 1;
    this.#derive();
  }

  /** Includes a change of this task into its timeline. @param {Change} change */
  applyChange(change) {
    const { task, timeline } = this;
    if (change.type === 'spawned') timeline.replay([change]);
    else timeline.apply(change);
    // An event that this page does not know began the state of the row. A newer row has events to come.
    if (timeline.state !== task.state && this.stateSince < Date.parse(change.at))
      timeline.sync(task);
  }

  /** When the present state began; `NaN` if the server has not stored it. */
  get stateSince() {
    return Date.parse(this.task.state_since ?? '');
  }

  get needsOperator() {
    return this.task.approvals.length > 0 || this.task.questions.length > 0;
  }

  #derive() {
    const { task } = this;
    this.endedAt = task.ended_at && !task.alive ? Date.parse(task.ended_at) : NaN;
    this.label = visibleLine(task.name ?? (task.description || task.address)).slice(0, 200);
    this.searchText = `${task.name ?? ''} ${task.address} ${task.description}`.toLowerCase();
    const pattern = this.label.replace(/\d+/g, '#');
    this.foldKey = task.alive ? '' : `${task.kind} ${task.state} ${task.reason ?? ''} ${pattern}`;
  }
}

export class TaskStore {
  #arrivals = 0;
  #areRootsSorted = true;
  /** @type {TaskRecord[]} */
  #roots = [];
  /** @type {Set<TaskId>} */
  #changed = new Set();
  #structure = false;
  #isScheduled = false;
  /** @type {((update: StoreUpdate) => void)[]} */
  #listeners = [];
  /** Children that arrived before their parent. @type {Map<TaskId, TaskRecord[]>} */
  #orphans = new Map();
  /** Tasks changed by the feed since a load began; older pages do not overwrite them. @type {Set<TaskId> | null} */
  #touched = null;
  /** @type {Set<TaskId> | null} */
  #loaded = null;
  /** The load repairs a gap in the feed. */
  #isRepair = false;

  constructor() {
    /** @type {Map<TaskId, TaskRecord>} */
    this.records = new Map();
    /** @type {Map<string, number>} */
    this.counts = new Map();
    /** @type {Map<TaskId, TaskRecord>} */
    this.needing = new Map();
    /** @type {Map<string, string>} */
    this.sessions = new Map();
    document.addEventListener('visibilitychange', () => this.#flush());
  }

  /** @param {(update: StoreUpdate) => void} listener */
  subscribe(listener) {
    this.#listeners.push(listener);
  }

  /** The number of tasks that have ever arrived. */
  get arrivals() {
    return this.#arrivals;
  }

  /** Tasks without a visible parent, newest first. */
  get roots() {
    if (!this.#areRootsSorted) {
      this.#roots.sort((a, b) => b.spawnedAt - a.spawnedAt || b.task.number - a.task.number);
      this.#areRootsSorted = true;
    }
    return this.#roots;
  }

  /**
   * Begins to load all pages. Tasks that no page names are removed by `finishLoad`.
   * @param {{isRepair: boolean}} options
   */
  beginLoad({ isRepair }) {
    this.#isRepair = isRepair;
    this.#touched = new Set();
    this.#loaded = new Set();
  }

  /** Adds a page, which has the newest task first. @param {Task[]} tasks */
  addPage(tasks) {
    // From the last to the first, so that parents come before their children.
    for (const task of [...tasks].reverse()) {
      this.#loaded?.add(task.id);
      if (this.#touched?.has(task.id)) continue;
      const record = this.#upsert(task);
      // Otherwise the feed has every change, and its events follow.
      if (this.#isRepair) record.timeline.sync(task);
    }
  }

  finishLoad() {
    const loaded = this.#loaded;
    const touched = this.#touched;
    this.#loaded = null;
    this.#touched = null;
    if (!loaded) return;
    for (const id of this.records.keys()) {
      if (!loaded.has(id) && !touched?.has(id)) this.#remove(id);
    }
  }

  /** @param {Change} change */
  apply(change) {
    if (change.type === 'collected') this.#noteCollected(change.data.runs);
    if (!change.row) return;
    this.#touched?.add(change.row.id);
    this.#upsert(change.row).applyChange(change);
  }

  /** One change collects the results of several tasks and carries no row. @param {unknown} runs */
  #noteCollected(runs) {
    for (const { task: id, run } of Array.isArray(runs) ? runs : []) {
      const record = this.records.get(id);
      if (record && record.task.run === run)
        this.#upsert({ ...record.task, collected: true });
    }
  }

  /** Removes a task that is no longer stored. Its descendants went with it. @param {TaskId} id */
  forget(id) {
    const record = this.records.get(id);
    if (!record) return;
    for (const child of [...record.children]) this.forget(child.id);
    this.#remove(id);
  }

  /** @param {TaskId | null | undefined} id */
  get(id) {
    return id ? this.records.get(id) : undefined;
  }

  /**
   * Returns the alive tasks under a task.
   * @param {TaskRecord} record
   */
  countAliveDescendants(record) {
    let count = 0;
    const stack = [...record.children];
    for (let next = stack.pop(); next; next = stack.pop()) {
      if (next.task.alive) count += 1;
      stack.push(...next.children);
    }
    return count;
  }

  /** The timeline of a task has changed. @param {TaskRecord} record */
  noteTimeline(record) {
    record.version += 1;
    this.#changed.add(record.id);
    this.#schedule();
  }

  /** @param {Task} task */
  #upsert(task) {
    this.#schedule();
    const known = this.records.get(task.id);
    if (!known) return this.#insert(task);
    this.#update(known, task);
    return known;
  }

  /**
   * @param {TaskRecord} record
   * @param {Task} task
   */
  #update(record, task) {
    const previous = record.task;
    const previousFold = record.foldKey;
    if (previous.state !== task.state) {
      this.#count(previous.state, -1);
      this.#count(task.state, 1);
    }
    record.update(task);
    this.#noteNeeds(record);
    this.#changed.add(task.id);
    if (record.foldKey !== previousFold || previous.state !== task.state) this.#structure = true;
    if (previous.parent !== task.parent) this.#relink(record);
  }

  /** @param {Task} task */
  #insert(task) {
    this.#arrivals += 1;
    const record = new TaskRecord(task, this.#arrivals);
    this.records.set(task.id, record);
    this.sessions.set(task.session, task.session_name);
    this.#count(task.state, 1);
    this.#noteNeeds(record);
    this.#link(record);
    for (const child of this.#orphans.get(task.id) ?? []) {
      this.#roots.splice(this.#roots.indexOf(child), 1);
      adopt(record, child);
    }
    this.#orphans.delete(task.id);
    this.#changed.add(task.id);
    this.#structure = true;
    return record;
  }

  /** @param {TaskRecord} record */
  #link(record) {
    const parentId = record.task.parent;
    const parent = this.get(parentId);
    if (parent) {
      adopt(parent, record);
      return;
    }
    if (parentId) {
      const waiting = this.#orphans.get(parentId) ?? [];
      waiting.push(record);
      this.#orphans.set(parentId, waiting);
    }
    this.#roots.push(record);
    this.#areRootsSorted = false;
  }

  /** A kept task passes from its parent to the session. @param {TaskRecord} record */
  #relink(record) {
    this.#unlink(record);
    this.#link(record);
    this.#structure = true;
  }

  /** @param {TaskRecord} record */
  #unlink(record) {
    const siblings = record.parent ? record.parent.children : this.#roots;
    siblings.splice(siblings.indexOf(record), 1);
    record.parent = null;
  }

  /** @param {TaskId} id */
  #remove(id) {
    const record = this.records.get(id);
    if (!record) return;
    this.#unlink(record);
    this.records.delete(id);
    this.needing.delete(id);
    this.#count(record.task.state, -1);
    for (const child of record.children) {
      child.parent = null;
      this.#roots.push(child);
      this.#areRootsSorted = false;
    }
    this.#changed.add(id);
    this.#structure = true;
    this.#schedule();
  }

  /** @param {TaskRecord} record */
  #noteNeeds(record) {
    if (record.needsOperator) this.needing.set(record.id, record);
    else this.needing.delete(record.id);
  }

  /**
   * @param {string} state
   * @param {number} by
   */
  #count(state, by) {
    this.counts.set(state, (this.counts.get(state) ?? 0) + by);
  }

  #schedule() {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    // A hidden page gets no frames, but its title and notifications stay true.
    if (document.hidden) setTimeout(() => this.#flush(), HIDDEN_FLUSH_MS);
    else requestAnimationFrame(() => this.#flush());
  }

  #flush() {
    if (!this.#isScheduled) return;
    this.#isScheduled = false;
    const update = { changed: this.#changed, structure: this.#structure };
    this.#changed = new Set();
    this.#structure = false;
    for (const listener of this.#listeners) listener(update);
  }
}

/**
 * Adds a child in the order of the numbers. Most arrive last.
 * @param {TaskRecord} parent
 * @param {TaskRecord} child
 */
function adopt(parent, child) {
  child.parent = parent;
  const { children } = parent;
  let at = children.length;
  let low = 0;
  if (at > 0 && children[at - 1].task.number < child.task.number) low = at;
  while (low < at) {
    const middle = (low + at) >> 1;
    if (children[middle].task.number < child.task.number) low = middle + 1;
    else at = middle;
  }
  children.splice(at, 0, child);
}
