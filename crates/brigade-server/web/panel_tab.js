// The base of the tabs in a task's panel.

/** @import {Change, TaskDetail} from './api_types.d.ts' */
/** @import {AppContext} from './app_context.js' */
/** @import {TaskRecord} from './task_store.js' */

import { el } from './dom.js';

/** One tab of the panel, for one task, from when it is shown until another one is. */
export class PanelTab {
  /**
   * @param {AppContext} app
   * @param {TaskRecord} record
   */
  constructor(app, record) {
    this.app = app;
    this.record = record;
    this.element = el('div', { class: 'tab-body' });
    this.abort = new AbortController();
  }

  /** The path of the task in the API. */
  get path() {
    return `tasks/${encodeURIComponent(this.record.id)}`;
  }

  /**
   * Shows a newer state of the task.
   * @param {TaskDetail | null} _detail
   */
  update(_detail) {}

  /**
   * Receives a change of the task.
   * @param {Change} _change
   */
  receive(_change) {}

  /** Goes to the newest entry. */
  follow() {}

  close() {
    this.abort.abort();
  }

  /** @param {unknown} error */
  showError(error) {
    if (this.abort.signal.aborted) return;
    const text = error instanceof Error ? error.message : String(error);
    this.element.prepend(el('p', { class: 'error', role: 'alert', text }));
  }
}
