// Fills the timelines of tasks with what list rows do not tell: earlier runs of rows in view, and all
// states of the task in the panel.

/** @import {Change, ChangeList, TaskDetail, TaskId} from './api_types.d.ts' */
/** @import {AppContext} from './app_context.js' */
/** @import {TaskRecord} from './task_store.js' */

import { STATE_EVENTS } from './task_timeline.js';

/** Requests for earlier runs at a time. */
const MAX_REQUESTS = 2;
/** Rows that scrolled away long ago are not asked for. */
const MAX_WANTED = 100;
const PAGE_EVENTS = 1000;

export class TimelineLoader {
  #requests = 0;
  /** The runs that were asked for, by task. @type {Map<TaskId, number>} */
  #asked = new Map();
  /** @type {TaskRecord[]} */
  #wanted = [];

  /** @param {AppContext} app */
  constructor(app) {
    this.app = app;
  }

  /** Loads the earlier runs of a task in view, unless they are known. @param {TaskRecord} record */
  wantEarlierRuns(record) {
    const { run } = record.task;
    if (run === 1 || !record.timeline.hasMissingRuns || this.#asked.get(record.id) === run) return;
    this.#asked.set(record.id, run);
    this.#wanted.push(record);
    if (this.#wanted.length > MAX_WANTED) {
      const dropped = this.#wanted.shift();
      if (dropped) this.#asked.delete(dropped.id);
    }
    this.#loadNext();
  }

  /** Loads all states of a task. @param {TaskRecord} record */
  async loadStates(record) {
    if (record.timeline.isComplete) return;
    /** @type {Change[]} */
    const changes = [];
    /** Changes that arrive meanwhile. @type {Change[]} */
    const live = [];
    const stopListening = this.app.onChange((change) => {
      if (change.task === record.id) live.push(change);
    });
    try {
      for (let after = '', hasMore = true; hasMore;) {
        const query = new URLSearchParams({
          types: STATE_EVENTS.join(),
          limit: String(PAGE_EVENTS),
        });
        if (after !== '') query.set('after', after);
        /** @type {ChangeList} */
        const page = await this.app.api.get(`${taskPath(record)}/events?${query}`);
        changes.push(...page.items);
        after = page.cursor;
        hasMore = page.has_more;
      }
      const last = changes[changes.length - 1]?.seq ?? 0;
      record.timeline.replay([...changes, ...live.filter((change) => change.seq > last)]);
      this.app.store.noteTimeline(record);
    } catch {
      // The bar shows less. The next opening of the task tries again.
    } finally {
      stopListening();
    }
  }

  async #loadNext() {
    if (this.#requests >= MAX_REQUESTS) return;
    const record = this.#wanted.pop();
    if (!record) return;
    this.#requests += 1;
    try {
      /** @type {TaskDetail} */
      const detail = await this.app.api.get(taskPath(record));
      record.timeline.addEarlierRuns(detail.earlier_runs);
      this.app.store.noteTimeline(record);
    } catch {
      this.#asked.delete(record.id);
    }
    this.#requests -= 1;
    this.#loadNext();
  }
}

/** @param {TaskRecord} record */
function taskPath(record) {
  return `tasks/${encodeURIComponent(record.id)}`;
}
