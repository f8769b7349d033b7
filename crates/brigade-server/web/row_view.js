// The DOM of one row. Rows are recycled; a write to the DOM happens only where a value changed.

/** @import {Row} from './visible_rows.js' */
/** @import {TaskRecord} from './task_store.js' */
/** @import {Stretch} from './task_timeline.js' */
/** @import {TimeAxis} from './time_axis.js' */

import { append, el, icon } from './dom.js';
import {
  formatAge,
  formatCost,
  formatCount,
  formatDuration,
  formatTime,
  formatUsage,
  shortSession,
} from './format.js';
import { describeState, stateSymbol } from './task_states.js';
import { PAST, UNSEEN } from './task_timeline.js';
import { visibleLine } from './visible_text.js';

const INDENT_PX = 16;
/** Deeper rows are indented no further, so that their names stay readable. */
const MAX_INDENT = 12;
/** The most lines in the tooltip of a bar. */
const MAX_LINES = 12;

/**
 * @typedef {object} RowContext
 * @property {TimeAxis} axis
 * @property {number} now
 * @property {boolean} showsSession
 * @property {boolean} isActive
 * @property {boolean} isSelected
 */

export class RowView {
  constructor() {
    this.twisty = el('span', { class: 'twisty', 'aria-hidden': 'true' }, icon('i-twisty'));
    this.icon = icon('i-queued');
    this.use = /** @type {SVGUseElement} */ (this.icon.firstChild);
    this.label = el('span', { class: 'label' });
    this.note = el('span', { class: 'note' });
    this.badge = el('span', { class: 'badge', text: 'needs you' });
    this.name = el('div', { class: 'cell cell-name', role: 'gridcell' });
    append(this.name, this.twisty, this.icon, this.label, this.badge, this.note);
    this.stateName = el('span');
    this.stateAge = el('span', { class: 'state-age' });
    this.state = el('div', { class: 'cell cell-state', role: 'gridcell' });
    append(this.state, this.stateName, this.stateAge);
    this.age = el('div', { class: 'cell cell-age', role: 'gridcell' });
    this.cost = el('div', { class: 'cell cell-cost', role: 'gridcell' });
    this.bar = el('div', { class: 'cell cell-bar', role: 'gridcell' });
    this.track = el('div', { class: 'track', 'aria-hidden': 'true' });
    this.earlier = el('span', { class: 'earlier', text: '◂ earlier', hidden: true });
    append(this.bar, this.track, this.earlier);
    this.element = el('div', { class: 'row', role: 'row' });
    append(this.element, this.name, this.state, this.age, this.cost, this.bar);
    /** @type {HTMLElement[]} */
    this.segments = [];
    /** The values that the DOM shows, by slot. @type {Map<string, string>} */
    this.shown = new Map();
    this.index = -1;
    /** What the last rendering showed. */
    this.stamp = '';
    /** @type {Row | null} */
    this.row = null;
  }

  hide() {
    if (this.index === -1) return;
    this.index = -1;
    this.stamp = '';
    this.row = null;
    this.element.hidden = true;
  }

  /**
   * @param {Row} row
   * @param {number} index
   * @param {number} height
   */
  moveTo(row, index, height) {
    this.row = row;
    if (this.index === index) return;
    if (this.index === -1) this.element.hidden = false;
    this.index = index;
    this.element.id = `row-${index}`;
    this.element.style.transform = `translateY(${index * height}px)`;
    this.#attribute(this.element, 'aria-rowindex', String(index + 2));
  }

  /**
   * @param {Row} row
   * @param {RowContext} context
   */
  render(row, context) {
    const { record } = row;
    const { task } = record;
    const { element } = this;
    const symbol = stateSymbol(task.state);
    this.#className(
      element,
      `row state-${symbol}${context.isActive ? ' is-active' : ''}${context.isSelected ? ' is-selected' : ''}` +
        `${row.isContext ? ' is-context' : ''}${row.fold ? ' is-fold' : ''}${task.alive ? '' : ' is-ended'}`,
    );
    this.#attribute(element, 'aria-level', String(row.depth + 1));
    this.#attribute(element, 'aria-posinset', String(row.position));
    this.#attribute(element, 'aria-setsize', String(row.siblings));
    this.#attribute(element, 'aria-selected', String(context.isSelected));
    this.#attribute(element, 'aria-expanded', row.isExpandable ? String(row.isExpanded) : '');
    const indent = `${Math.min(row.depth, MAX_INDENT) * INDENT_PX}px`;
    if (this.#isNew('indent', indent)) this.name.style.setProperty('--indent', indent);
    this.#className(
      this.twisty,
      row.isExpandable ? (row.isExpanded ? 'twisty is-open' : 'twisty') : 'twisty is-leaf',
    );
    if (this.#isNew('symbol', symbol)) this.use.setAttribute('href', `#i-${symbol}`);
    if (row.fold) this.#renderFold(row, row.fold, context);
    else this.#renderTask(record, context);
  }

  /**
   * @param {TaskRecord} record
   * @param {RowContext} context
   */
  #renderTask(record, context) {
    const { task } = record;
    this.#text(this.label, record.label);
    this.#hidden(this.badge, !record.needsOperator);
    const description = task.name ? visibleLine(task.description).slice(0, 120) : task.address;
    this.#text(
      this.note,
      context.showsSession && !record.parent
        ? `${visibleLine(shortSession(task.session_name))} · ${description}`
        : description,
    );
    const state = describeState(task);
    this.#text(this.stateName, state);
    const inState = context.now - record.stateSince;
    // The age of the task says the same about its first state.
    const isLater = record.stateSince - record.spawnedAt >= 1000;
    this.#text(this.stateAge, task.alive && isLater ? formatAge(Math.max(0, inState)) : '');
    const since = task.state_since ? `Since ${formatTime(task.state_since)}` : '';
    const reason = task.reason ? visibleLine(task.reason) : '';
    if (this.#isNew('state title', `${record.id} ${record.version}`))
      this.state.title = [since, reason].filter((text) => text !== '').join('. ');
    const end = task.alive ? context.now : record.endedAt || record.spawnedAt;
    const age = end - record.spawnedAt;
    this.#text(this.age, task.alive && age < 1000 ? '0s' : formatDuration(age));
    this.#text(this.cost, formatCost(task.usage));
    if (this.#isNew('times', `${record.id} ${record.version}`)) {
      const ended = task.ended_at && !task.alive ? `, ended ${formatTime(task.ended_at)}` : '';
      this.age.title = `Spawned ${formatTime(task.spawned_at)}${ended}`;
      this.cost.title = `With descendants: ${formatUsage(task.usage)}`;
      this.name.title = `${visibleLine(task.session_name)}/${task.address}  ${visibleLine(task.description)}`;
    }
    this.#renderBar(record, context);
  }

  /**
   * @param {Row} row
   * @param {TaskRecord[]} fold
   * @param {RowContext} context
   */
  #renderFold(row, fold, context) {
    const first = fold[0];
    const last = fold[fold.length - 1];
    const same = first.label === last.label;
    this.#text(this.label, same ? first.label : `${first.label} … ${last.label}`);
    this.#text(this.note, formatCount(fold.length, 'equal task'));
    this.#hidden(this.badge, true);
    this.#text(this.stateName, `${fold.length} ${row.record.task.state}`);
    this.#text(this.stateAge, '');
    if (this.#isNew('state title', row.key))
      this.state.title = first.task.reason ? visibleLine(first.task.reason) : '';
    this.#text(this.age, '');
    this.#text(this.cost, '');
    if (this.#isNew('times', row.key)) this.name.title = '';
    let from = Infinity;
    let to = 0;
    for (const record of fold) {
      from = Math.min(from, record.spawnedAt);
      to = Math.max(to, record.endedAt || record.spawnedAt);
    }
    // One bar for many tasks, with pauses between them: only the last end is known to be there.
    const look = stateSymbol(first.task.state);
    this.#placeSegment(0, UNSEEN, { from, to }, context.axis);
    this.#placeSegment(1, look, { from: to, to }, context.axis);
    this.#hideSegments(2);
    this.#hidden(this.earlier, to >= context.axis.from);
    if (this.#isNew('bar', row.key)) this.bar.title = 'From the first start to the last end';
  }

  /**
   * @param {TaskRecord} record
   * @param {RowContext} context
   */
  #renderBar(record, context) {
    let used = 0;
    const stretches = record.timeline.stretches(context.now);
    for (const stretch of stretches) {
      if (stretch.to < context.axis.from) continue;
      this.#placeSegment(used, lookName(stretch.look), stretch, context.axis);
      used += 1;
    }
    this.#hideSegments(used);
    this.#hidden(this.earlier, used > 0);
    if (this.#isNew('bar', `${record.id} ${record.version}`))
      this.bar.title = describeStretches(stretches);
  }

  /**
   * @param {number} slot
   * @param {string} look
   * @param {{from: number, to: number}} stretch
   * @param {TimeAxis} axis
   */
  #placeSegment(slot, look, { from, to }, axis) {
    let segment = this.segments[slot];
    if (!segment) {
      segment = el('div');
      this.segments[slot] = segment;
      this.track.append(segment);
    }
    const start = Math.max(0, axis.place(from));
    const width = Math.max(0, Math.min(1, axis.place(to)) - start);
    const place = `${(start * 100).toFixed(2)}% ${(width * 100).toFixed(2)}%`;
    this.#className(segment, from === to ? `segment segment-end segment-${look}` : `segment segment-${look}`);
    if (this.#isNew(`segment ${slot}`, place)) {
      segment.style.left = `${(start * 100).toFixed(2)}%`;
      segment.style.width = `${(width * 100).toFixed(2)}%`;
    }
  }

  /** @param {number} from */
  #hideSegments(from) {
    for (let slot = from; slot < this.segments.length; slot += 1) {
      this.#className(this.segments[slot], 'segment is-unused');
    }
  }

  /**
   * @param {string} slot
   * @param {string} value
   */
  #isNew(slot, value) {
    if (this.shown.get(slot) === value) return false;
    this.shown.set(slot, value);
    return true;
  }

  /** @param {HTMLElement} element @param {string} text */
  #text(element, text) {
    if (element.firstChild) {
      const node = /** @type {Text} */ (element.firstChild);
      if (node.data !== text) node.data = text;
    } else {
      element.append(text);
    }
  }

  /** @param {HTMLElement} element @param {boolean} hidden */
  #hidden(element, hidden) {
    if (element.hidden !== hidden) element.hidden = hidden;
  }

  /** @param {HTMLElement} element @param {string} name */
  #className(element, name) {
    if (element.className !== name) element.className = name;
  }

  /** @param {HTMLElement} element @param {string} name @param {string} value */
  #attribute(element, name, value) {
    if (!this.#isNew(name, value)) return;
    if (value === '') element.removeAttribute(name);
    else element.setAttribute(name, value);
  }
}

/** @param {string} look */
function lookName(look) {
  return look === UNSEEN || look === PAST ? look : stateSymbol(look);
}

/** Returns the last pieces of a bar as lines of text. @param {Stretch[]} stretches */
function describeStretches(stretches) {
  const hasRuns = stretches.some(({ run }) => run > 1);
  const lines = stretches.slice(-MAX_LINES).map(({ look, from, to, run }) => {
    if (look === PAST) return 'Earlier runs: not watched';
    const what = look === UNSEEN ? 'not watched' : look;
    const label = hasRuns ? `Run ${run} ${what}` : what;
    return from === to ? `${label} at ${formatTime(to)}` : `${label} from ${formatTime(from)}`;
  });
  return lines.join('\n');
}
