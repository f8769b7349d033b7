// What the parts of the page share.

/** @import {Change, TaskId, WhoAmI} from './api_types.d.ts' */
/** @import {Api} from './api.js' */
/** @import {TaskStore} from './task_store.js' */

/**
 * @typedef {object} AppContext
 * @property {Api} api
 * @property {TaskStore} store
 * @property {WhoAmI} caller
 * @property {boolean} canChange False for a read-only token.
 * @property {(id: TaskId, options?: {tab?: string, action?: string}) => void} openTask
 * @property {(listener: (change: Change) => void) => () => void} onChange Returns a function that ends it.
 */

/**
 * Returns the name of a task or of another sender, for people.
 * @param {AppContext} app
 * @param {string} id
 */
export function nameOf(app, id) {
  const record = app.store.get(id);
  if (!record) return id;
  return record.task.name ? `${record.label} (${record.task.address})` : record.task.address;
}

export {};
