// The list of tasks: tree and timeline in the same rows. Only visible rows have DOM nodes.
// The reader's place is never moved: rows that arrive above are counted instead of shown.

/** @import {TaskId} from './api_types.d.ts' */
/** @import {TaskRecord, TaskStore, StoreUpdate} from './task_store.js' */
/** @import {Row, RowOptions} from './visible_rows.js' */
/** @import {RowContext} from './row_view.js' */
/** @import {WaitLine} from './wait_lines.js' */

import { byId } from './dom.js';
import { formatNumber } from './format.js';
import { RowView } from './row_view.js';
import { serverNow } from './server_clock.js';
import { TimeAxis } from './time_axis.js';
import { AxisHead } from './axis_head.js';
import { WaitLines } from './wait_lines.js';
import { buildRows, countNew } from './visible_rows.js';

const ROW_PX = 28;
const PHONE_ROW_PX = 52;
const OVERSCAN = 6;
/** The tree is rebuilt at most this often; the contents of rows change with every frame. */
const REBUILD_MS = 150;
const TICK_MS = 1000;
/** The most lines between tasks that are not selected. */
const MAX_LINES = 60;

/**
 * @typedef {object} RowsHandlers
 * @property {(id: TaskId) => void} onOpen
 * @property {() => void} onExpandedChange
 * @property {(record: TaskRecord) => void} onShow Runs when a row of a task is rendered.
 */

export class TaskRows {
  /** @type {Row[]} */
  rows = [];
  /** The index of each row by its key. @type {Map<string, number>} */
  #places = new Map();
  /** @type {RowView[]} */
  #pool = [];
  #rowPx = ROW_PX;
  #activeKey = '';
  /** @type {TaskId | null} */
  #selected = null;
  #hovered = -1;
  #isDirty = true;
  #isScheduled = false;
  #lastBuild = 0;
  #seenArrivals = 0;
  #isPointerOver = false;
  #tick = 0;
  /** @type {{top: number, height: number, width: number}} */
  #viewport = { top: 0, height: 0, width: 0 };

  /**
   * @param {TaskStore} store
   * @param {RowOptions} options
   * @param {RowsHandlers} handlers
   */
  constructor(store, options, handlers) {
    this.store = store;
    this.options = options;
    this.handlers = handlers;
    this.axis = new TimeAxis();
    this.grid = byId('task-grid');
    this.body = byId('task-rows');
    this.newButton = byId('new-rows');
    this.empty = byId('no-tasks');
    this.emptyText = byId('no-tasks-text');
    this.clearFilter = byId('clear-filter');
    this.firstTask = byId('first-task');
    this.head = new AxisHead(byId('axis-head'), byId('axis-lines'));
    this.lines = new WaitLines(byId('row-area'));
    this.#listen();
    store.subscribe((update) => this.#onUpdate(update));
    setInterval(() => this.#onTick(), TICK_MS);
  }

  /** Rebuilds the rows after an option changed. */
  refresh() {
    this.#isDirty = true;
    this.#lastBuild = 0;
    this.#schedule();
  }

  /** @param {TaskId | null} id */
  select(id) {
    this.#selected = id;
    if (id) this.#activeKey = id;
    this.#tick += 1;
    this.#schedule();
  }

  /**
   * Expands the ancestors of a task and scrolls to it. Those that the reader collapsed stay so, unless
   * the reader has opened the task now.
   * @param {TaskId} id
   * @param {{isOpenedNow: boolean}} options
   */
  reveal(id, { isOpenedNow }) {
    const record = this.store.get(id);
    if (!record) return;
    this.#build();
    const isHidden = this.#indexOf(id) < 0;
    const { expanded } = this.options;
    const expand = (/** @type {string} */ key) => {
      if (isOpenedNow || expanded.get(key) !== false) this.#setExpanded(key, true, false);
    };
    if (isHidden) {
      for (let parent = record.parent; parent; parent = parent.parent) expand(parent.id);
      this.#build();
      const fold = this.rows.find((row) => row.fold?.includes(record));
      if (fold) {
        expand(fold.key);
        this.#build();
      }
      this.handlers.onExpandedChange();
    }
    const index = this.#visibleIndex(record);
    if (index >= 0) this.#setActive(index);
  }

  /** Moves the active row. @param {number} by */
  moveActive(by) {
    const index = this.#indexOf(this.#activeKey);
    const start = index < 0 ? Math.floor(this.grid.scrollTop / this.#rowPx) - Math.sign(by) : index;
    this.#setActive(Math.max(0, Math.min(this.rows.length - 1, start + by)));
  }

  moveToEdge(/** @type {'first' | 'last'} */ edge) {
    this.#setActive(edge === 'first' ? 0 : this.rows.length - 1);
  }

  /** The number of rows on one screen. */
  get pageSize() {
    return Math.max(1, Math.floor(this.#viewport.height / this.#rowPx) - 2);
  }

  /** Collapses the active row, or goes to its parent. */
  collapseActive() {
    const index = this.#indexOf(this.#activeKey);
    const row = this.rows[index];
    if (!row) return;
    if (row.isExpandable && row.isExpanded) {
      this.#toggle(row);
      return;
    }
    for (let at = index - 1; at >= 0; at -= 1) {
      if (this.rows[at].depth < row.depth) {
        this.#setActive(at);
        return;
      }
    }
  }

  /** Expands the active row, or goes to its first child. */
  expandActive() {
    const index = this.#indexOf(this.#activeKey);
    const row = this.rows[index];
    if (!row?.isExpandable) return;
    if (row.isExpanded) this.#setActive(index + 1);
    else this.#toggle(row);
  }

  openActive() {
    const row = this.rows[this.#indexOf(this.#activeKey)];
    if (!row) return;
    if (row.fold) this.#toggle(row);
    else this.handlers.onOpen(row.record.id);
  }

  /** The task of the active row. @returns {TaskRecord | null} */
  get activeTask() {
    const row = this.rows[this.#indexOf(this.#activeKey)];
    return row && !row.fold ? row.record : null;
  }

  /** Shows the newest rows. */
  showNew() {
    this.grid.scrollTop = 0;
    this.#seenArrivals = this.store.arrivals;
    this.#schedule();
  }

  focus() {
    this.grid.focus({ preventScroll: true });
    if (this.#indexOf(this.#activeKey) < 0) this.moveActive(1);
  }

  #listen() {
    const { grid, body } = this;
    grid.addEventListener('scroll', () => this.#schedule(), { passive: true });
    grid.addEventListener('focus', () => {
      if (this.#indexOf(this.#activeKey) < 0 && this.rows.length > 0) this.moveActive(1);
    });
    body.addEventListener('click', (event) => this.#onClick(event));
    body.addEventListener('pointermove', (event) => this.#hover(this.#indexAt(event)), {
      passive: true,
    });
    grid.addEventListener('pointerenter', () => {
      this.#isPointerOver = true;
    });
    grid.addEventListener('pointerleave', () => {
      this.#isPointerOver = false;
      this.#hover(-1);
    });
    this.newButton.addEventListener('click', () => this.showNew());
    const phone = matchMedia('(max-width: 720px)');
    const setHeight = () => {
      this.#rowPx = phone.matches ? PHONE_ROW_PX : ROW_PX;
      for (const view of this.#pool) view.hide();
      this.refresh();
    };
    phone.addEventListener('change', setHeight);
    setHeight();
    new ResizeObserver(() => {
      const wasHidden = this.#viewport.height === 0;
      this.#measure();
      this.#tick += 1;
      // A list that was hidden behind a task, or not laid out yet, could not be scrolled.
      if (wasHidden && this.#viewport.height > 0) this.#setActive(this.#indexOf(this.#activeKey));
      this.#schedule();
    }).observe(grid);
  }

  /** Reads the layout once, so that rendering never has to. */
  #measure() {
    this.#viewport.height = this.grid.clientHeight;
    this.#viewport.width = this.grid.clientWidth;
    this.#viewport.top = this.body.offsetTop;
    this.head.measure();
    this.lines.measure(this.grid, this.head.element);
  }

  /** @param {StoreUpdate} update */
  #onUpdate(update) {
    if (update.structure) this.#isDirty = true;
    this.#schedule();
  }

  /** Time passes: ages and the ends of bars change. */
  #onTick() {
    if (document.hidden) return;
    this.#tick += 1;
    this.#schedule();
  }

  #schedule() {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    requestAnimationFrame(() => {
      this.#isScheduled = false;
      this.#render();
    });
  }

  #render() {
    const now = serverNow();
    if (this.#isDirty) {
      if (performance.now() - this.#lastBuild >= REBUILD_MS) this.#build();
      else this.#schedule();
    }
    const top = this.grid.scrollTop;
    const height = this.#viewport.height;
    if (this.#viewport.width === 0) return;
    this.axis.fit(this.store, Math.floor(now / TICK_MS) * TICK_MS);
    this.head.render(this.axis);
    const first = Math.max(0, Math.floor(top / this.#rowPx) - OVERSCAN);
    const last = Math.min(this.rows.length, Math.ceil((top + height) / this.#rowPx) + OVERSCAN);
    this.#fillPool(Math.ceil(height / this.#rowPx) + 2 * OVERSCAN + 1);
    const used = this.#renderRows(first, last, now);
    for (const view of this.#pool) {
      if (!used.has(view)) view.hide();
    }
    this.#renderActive(first, last);
    this.#renderNewCount(top);
    this.#renderLines(top, first, last, now);
  }

  /**
   * @param {number} first
   * @param {number} last
   * @param {number} now
   */
  #renderRows(first, last, now) {
    /** @type {RowContext} */
    const context = {
      axis: this.axis,
      now,
      showsSession: this.store.sessions.size > 1,
      isActive: false,
      isSelected: false,
    };
    const used = new Set();
    for (let index = first; index < last; index += 1) {
      const row = this.rows[index];
      const view = this.#pool[index % this.#pool.length];
      used.add(view);
      view.moveTo(row, index, this.#rowPx);
      context.isActive = row.key === this.#activeKey;
      context.isSelected = row.key === this.#selected;
      // The tree is rebuilt often, so equal rows are new objects: they are compared by what they show.
      const stamp = `${describeRow(row)} ${context.isActive} ${context.isSelected} ${this.axis.to} ${this.#tick}`;
      if (view.stamp === stamp) continue;
      view.stamp = stamp;
      view.render(row, context);
      if (!row.fold) this.handlers.onShow(row.record);
    }
    return used;
  }

  /**
   * Names the active row for screen readers, while it has a node.
   * @param {number} first
   * @param {number} last
   */
  #renderActive(first, last) {
    const index = this.#indexOf(this.#activeKey);
    const id = index >= first && index < last ? `row-${index}` : null;
    if (this.grid.getAttribute('aria-activedescendant') === id) return;
    if (id) this.grid.setAttribute('aria-activedescendant', id);
    else this.grid.removeAttribute('aria-activedescendant');
  }

  /** Rebuilds the list and keeps the row at the top edge where it is. */
  #build() {
    const top = this.grid.scrollTop;
    const anchor = Math.floor(top / this.#rowPx);
    const isFollowing = top < this.#rowPx / 2 && !this.#isReading();
    const before = this.rows;
    this.rows = buildRows(this.store, this.options);
    this.#places = new Map();
    for (let index = 0; index < this.rows.length; index += 1)
      this.#places.set(this.rows[index].key, index);
    this.#isDirty = false;
    this.#lastBuild = performance.now();
    const height = `${this.rows.length * this.#rowPx}px`;
    if (this.body.style.height !== height) this.body.style.height = height;
    this.grid.setAttribute('aria-rowcount', String(this.rows.length + 1));
    this.#renderEmpty();
    if (isFollowing) this.#seenArrivals = this.store.arrivals;
    else this.#restoreAnchor(before, anchor, top);
  }

  #renderEmpty() {
    this.empty.hidden = this.rows.length > 0;
    const isFiltered = this.store.records.size > 0;
    const text = isFiltered ? 'No task matches the filter.' : 'There are no tasks yet.';
    if (this.emptyText.textContent !== text) this.emptyText.textContent = text;
    this.clearFilter.hidden = !isFiltered;
    this.firstTask.hidden = isFiltered;
  }

  /**
   * @param {Row[]} before
   * @param {number} anchor
   * @param {number} top
   */
  #restoreAnchor(before, anchor, top) {
    if (before[anchor] === undefined || this.rows[anchor]?.key === before[anchor].key) return;
    for (let index = anchor; index < before.length; index += 1) {
      const place = this.#indexOf(before[index].key);
      if (place < 0) continue;
      const target = top + (place - index) * this.#rowPx;
      if (target !== top) this.grid.scrollTop = target;
      return;
    }
  }

  /** New rows may push the list down only while nobody points at it or steers it. */
  #isReading() {
    return this.#isPointerOver || document.activeElement === this.grid;
  }

  /** @param {number} top */
  #renderNewCount(top) {
    if (top < this.#rowPx / 2) this.#seenArrivals = this.store.arrivals;
    let count = 0;
    if (this.#seenArrivals < this.store.arrivals) {
      const anchor = Math.min(this.rows.length, Math.floor(top / this.#rowPx));
      for (let index = 0; index < anchor; index += 1) {
        count += countNew(this.rows[index], this.#seenArrivals);
      }
    }
    const isHidden = count === 0;
    if (this.newButton.hidden !== isHidden) this.newButton.hidden = isHidden;
    const text = `↑ ${formatNumber(count)} new`;
    if (!isHidden && this.newButton.textContent !== text) this.newButton.textContent = text;
  }

  /**
   * @param {number} top
   * @param {number} first
   * @param {number} last
   * @param {number} now
   */
  #renderLines(top, first, last, now) {
    const hovered = this.rows[this.#hovered];
    const strong =
      hovered && hovered.record.task.waits.length > 0
        ? this.#hovered
        : this.#indexOf(this.#selected ?? this.#activeKey);
    /** @type {WaitLine[]} */
    const lines = [];
    let key = `${strong} ${top} ${this.axis.from} ${this.axis.to}`;
    const add = (/** @type {number} */ index) => {
      const row = this.rows[index];
      if (!row || row.fold || row.record.task.waits.length === 0) return;
      const source = { record: row.record, y: this.#middle(index, top) };
      for (const target of this.#waitTargets(row.record)) {
        const isStrong = index === strong;
        const isInView = target.index >= first && target.index < last;
        if (!isStrong && (!isInView || lines.length >= MAX_LINES)) continue;
        const end = { record: target.record, y: this.#middle(target.index, top) };
        lines.push({ source, target: end, isStrong });
        key += ` ${index}-${target.index}`;
      }
    };
    for (let index = first; index < last; index += 1) add(index);
    if (strong < first || strong >= last) add(strong);
    if (lines.length === 0) this.lines.clear();
    else this.lines.render({ axis: this.axis, now, lines, key });
  }

  /**
   * Returns the rows for which a task waits; for a collapsed one, the row that hides it.
   * @param {TaskRecord} source
   */
  #waitTargets(source) {
    /** @type {{record: TaskRecord, index: number}[]} */
    const targets = [];
    for (const wait of source.task.waits) {
      for (const id of wait.tasks ?? []) {
        const record = this.store.get(id);
        if (!record?.task.alive) continue;
        const index = this.#visibleIndex(record);
        if (index >= 0 && this.rows[index].record !== source) targets.push({ record, index });
      }
    }
    return targets;
  }

  /** @param {TaskRecord} record */
  #visibleIndex(record) {
    for (let next = /** @type {TaskRecord | null} */ (record); next; next = next.parent) {
      const index = this.#indexOf(next.id);
      if (index >= 0) return index;
    }
    return -1;
  }

  /**
   * @param {number} index
   * @param {number} top
   */
  #middle(index, top) {
    return this.#viewport.top + index * this.#rowPx - top + this.#rowPx / 2;
  }

  /** @param {number} size */
  #fillPool(size) {
    if (this.#pool.length >= size) return;
    for (const view of this.#pool) view.hide();
    while (this.#pool.length < size) {
      const view = new RowView();
      view.element.hidden = true;
      this.#pool.push(view);
      this.body.append(view.element);
    }
  }

  /** @param {string} key */
  #indexOf(key) {
    return this.#places.get(key) ?? -1;
  }

  /** @param {number} index */
  #setActive(index) {
    const row = this.rows[index];
    if (!row) return;
    this.#activeKey = row.key;
    this.#tick += 1;
    this.#schedule();
    if (this.#viewport.height === 0) return;
    const top = index * this.#rowPx;
    const visible = this.#viewport.height - this.#viewport.top;
    if (top < this.grid.scrollTop) this.grid.scrollTop = top;
    else if (top + this.#rowPx > this.grid.scrollTop + visible)
      this.grid.scrollTop = top + this.#rowPx - visible;
  }

  /** @param {Row} row */
  #toggle(row) {
    this.#setExpanded(row.key, !row.isExpanded, row.isExpandedByDefault);
    this.#build();
    this.#schedule();
    this.handlers.onExpandedChange();
  }

  /**
   * Remembers a row that is not as it is by default, the last one at the end.
   * @param {string} key
   * @param {boolean} isExpanded
   * @param {boolean} byDefault
   */
  #setExpanded(key, isExpanded, byDefault) {
    const { expanded } = this.options;
    expanded.delete(key);
    if (isExpanded !== byDefault) expanded.set(key, isExpanded);
  }

  /** @param {MouseEvent} event */
  #onClick(event) {
    const row = this.rows[this.#indexAt(event)];
    if (!row) return;
    this.#activeKey = row.key;
    this.#tick += 1;
    const target = /** @type {Element} */ (event.target);
    if (row.isExpandable && (row.fold || target.closest('.twisty'))) this.#toggle(row);
    else if (!row.fold) this.handlers.onOpen(row.record.id);
    this.#schedule();
  }

  /** @param {MouseEvent} event */
  #indexAt(event) {
    const element = /** @type {Element} */ (event.target).closest('.row');
    const view = this.#pool.find((candidate) => candidate.element === element);
    return view ? view.index : -1;
  }

  /** @param {number} index */
  #hover(index) {
    if (this.#hovered === index) return;
    this.#hovered = index;
    this.#schedule();
  }
}

/** Returns a text that differs if the row looks different. @param {Row} row */
function describeRow(row) {
  const { key, record, fold, depth, position, siblings, isExpandable, isExpanded, isContext } = row;
  const flags = (isExpandable ? 1 : 0) + (isExpanded ? 2 : 0) + (isContext ? 4 : 0);
  return `${key} ${record.version} ${fold?.length ?? 0} ${depth} ${position} ${siblings} ${flags}`;
}
