// Turns the tree of tasks into a flat list of rows: filtered, collapsed and folded. Linear in the
// number of tasks.

/** @import {TaskId} from './api_types.d.ts' */
/** @import {TaskRecord, TaskStore} from './task_store.js' */

/** Fewer equal siblings than this are shown one by one. */
const MIN_FOLD = 3;
/** The key of a fold is this and the id of its first task. */
export const FOLD_PREFIX = 'fold ';

/**
 * One row: a task, or a fold of equal ended siblings.
 * @typedef {object} Row
 * @property {string} key
 * @property {TaskRecord} record The task, or the first one of the fold.
 * @property {TaskRecord[] | null} fold The tasks of the fold.
 * @property {number} depth
 * @property {boolean} isExpandable
 * @property {boolean} isExpanded
 * @property {boolean} isExpandedByDefault
 * @property {boolean} isContext Shown only because a descendant matches the filter.
 * @property {number} position From 1, among its siblings.
 * @property {number} siblings
 *
 * @typedef {object} RowOptions
 * @property {string} text Lower case.
 * @property {Set<string>} states
 * @property {string} session
 * @property {number} levels The number of levels that are expanded by default.
 * @property {Map<string, boolean>} expanded What the reader expanded or collapsed, by row key.
 */

/**
 * @param {TaskStore} store
 * @param {RowOptions} options
 * @returns {Row[]}
 */
export function buildRows(store, options) {
  const builder = new RowBuilder(options);
  builder.addSiblings(store.roots, 0, true);
  return builder.rows;
}

/**
 * Counts the tasks of a row that arrived after others, with those that it hides.
 * @param {Row} row
 * @param {number} seenArrivals
 */
export function countNew(row, seenArrivals) {
  if (row.isExpanded && row.fold) return 0;
  const stack = row.fold ? [...row.fold] : [row.record];
  let count = 0;
  for (let next = stack.pop(); next; next = stack.pop()) {
    if (next.arrival > seenArrivals) count += 1;
    if (!row.isExpanded) stack.push(...next.children);
  }
  return count;
}

/** @param {TaskId} id */
export function taskKey(id) {
  return id;
}

class RowBuilder {
  /** @param {RowOptions} options */
  constructor(options) {
    this.options = options;
    this.isFiltered = options.text !== '' || options.states.size > 0 || options.session !== '';
    /** Tasks that have a match among their descendants or are one. @type {Map<TaskRecord, boolean>} */
    this.matches = new Map();
    /** @type {Row[]} */
    this.rows = [];
  }

  /**
   * @param {TaskRecord[]} records
   * @param {number} depth
   * @param {boolean} adjacentOnly Top-level tasks keep their order in time: only neighbours fold.
   */
  addSiblings(records, depth, adjacentOnly) {
    const visible = this.isFiltered ? records.filter((record) => this.hasMatch(record)) : records;
    const groups = groupEqual(visible, adjacentOnly);
    let position = 0;
    for (const group of groups) {
      position += 1;
      if (group.length < MIN_FOLD) {
        this.addTask(group[0], depth, position, groups.length);
        continue;
      }
      const key = `${FOLD_PREFIX}${group[0].id}`;
      const isExpanded = this.options.expanded.get(key) ?? false;
      this.rows.push({
        key,
        record: group[0],
        fold: group,
        depth,
        isExpandable: true,
        isExpanded,
        isExpandedByDefault: false,
        isContext: false,
        position,
        siblings: groups.length,
      });
      if (!isExpanded) continue;
      let member = 0;
      for (const record of group) {
        member += 1;
        this.addTask(record, depth + 1, member, group.length);
      }
    }
  }

  /**
   * @param {TaskRecord} record
   * @param {number} depth
   * @param {number} position
   * @param {number} siblings
   */
  addTask(record, depth, position, siblings) {
    const isExpandable = record.children.length > 0;
    const byDefault = this.isFiltered || depth + 1 < this.options.levels;
    const isExpanded = isExpandable && (this.options.expanded.get(record.id) ?? byDefault);
    this.rows.push({
      key: taskKey(record.id),
      record,
      fold: null,
      depth,
      isExpandable,
      isExpanded,
      isExpandedByDefault: byDefault,
      isContext: this.isFiltered && !this.isMatch(record),
      position,
      siblings,
    });
    if (isExpanded) this.addSiblings(record.children, depth + 1, false);
  }

  /**
   * @param {TaskRecord} record
   * @returns {boolean}
   */
  hasMatch(record) {
    const known = this.matches.get(record);
    if (known !== undefined) return known;
    const found = this.isMatch(record) || record.children.some((child) => this.hasMatch(child));
    this.matches.set(record, found);
    return found;
  }

  /** @param {TaskRecord} record */
  isMatch(record) {
    const { states } = this.options;
    if (states.size > 0 && !states.has(record.task.state)) return false;
    return isSelected(record, this.options);
  }
}

/**
 * Counts the tasks of each state that the text and the session select.
 * @param {TaskStore} store
 * @param {RowOptions} options
 */
export function countSelected(store, options) {
  if (options.text === '' && options.session === '') return store.counts;
  /** @type {Map<string, number>} */
  const counts = new Map();
  for (const record of store.records.values()) {
    if (!isSelected(record, options)) continue;
    const { state } = record.task;
    counts.set(state, (counts.get(state) ?? 0) + 1);
  }
  return counts;
}

/**
 * @param {TaskRecord} record
 * @param {RowOptions} options
 */
function isSelected(record, { text, session }) {
  if (session !== '' && record.task.session !== session) return false;
  return text === '' || record.searchText.includes(text);
}

/**
 * Groups equal ended siblings at the place of the first. Groups below the minimum are split again.
 * @param {TaskRecord[]} records
 * @param {boolean} adjacentOnly
 * @returns {TaskRecord[][]}
 */
function groupEqual(records, adjacentOnly) {
  /** @type {TaskRecord[][]} */
  const groups = [];
  /** @type {Map<string, TaskRecord[]>} */
  let open = new Map();
  for (const record of records) {
    const key = foldKey(record);
    const group = key === '' ? undefined : open.get(key);
    if (group) {
      group.push(record);
      continue;
    }
    const fresh = [record];
    groups.push(fresh);
    if (adjacentOnly) open = new Map();
    if (key !== '') open.set(key, fresh);
  }
  return groups.flatMap((group) => (group.length < MIN_FOLD ? group.map((one) => [one]) : [group]));
}

/** A task whose children still live is not folded away. @param {TaskRecord} record */
function foldKey(record) {
  if (record.foldKey === '' || record.children.length > 0) return '';
  return record.foldKey;
}
