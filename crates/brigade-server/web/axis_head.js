// The head of the time axis: ticks with times, and lines behind all rows.

/** @import {TimeAxis} from './time_axis.js' */

import { el } from './dom.js';

const DAY = 24 * 60 * 60_000;
const seconds = new Intl.DateTimeFormat(undefined, {
  hour: '2-digit',
  minute: '2-digit',
  second: '2-digit',
  hourCycle: 'h23',
});
const minutes = new Intl.DateTimeFormat(undefined, {
  hour: '2-digit',
  minute: '2-digit',
  hourCycle: 'h23',
});
const days = new Intl.DateTimeFormat(undefined, { month: 'short', day: 'numeric' });

export class AxisHead {
  /** @type {{label: HTMLElement, line: HTMLElement}[]} */
  #ticks = [];
  #width = 0;
  #shown = '';

  /**
   * @param {HTMLElement} element
   * @param {HTMLElement} lines An element behind the rows.
   */
  constructor(element, lines) {
    this.element = element;
    this.lines = lines;
  }

  measure() {
    this.#width = this.element.clientWidth;
    this.#shown = '';
    const area = /** @type {HTMLElement} */ (this.lines.parentElement).getBoundingClientRect();
    this.lines.style.left = `${this.element.getBoundingClientRect().left - area.left}px`;
    this.lines.style.width = `${this.#width}px`;
  }

  /** @param {TimeAxis} axis */
  render(axis) {
    const shown = `${axis.from} ${axis.to}`;
    if (shown === this.#shown) return;
    this.#shown = shown;
    const { ticks, step } = axis.ticks(this.#width);
    const format = step >= DAY ? days : step < 60_000 ? seconds : minutes;
    const labelWidth = format === seconds ? 64 : 40;
    let used = 0;
    for (const time of ticks) {
      const place = axis.place(time);
      // A label at the right edge would be cut off.
      if (place < 0 || place > 1 - labelWidth / Math.max(this.#width, 1)) continue;
      const { label, line } = this.#tick(used);
      const left = `${(place * 100).toFixed(2)}%`;
      label.style.left = left;
      line.style.left = left;
      const text = format.format(time);
      if (label.textContent !== text) label.textContent = text;
      used += 1;
    }
    this.#ticks.forEach((tick, index) => {
      tick.label.hidden = index >= used;
      tick.line.hidden = index >= used;
    });
  }

  /** @param {number} index */
  #tick(index) {
    const known = this.#ticks[index];
    if (known) return known;
    const tick = { label: el('span', { class: 'tick' }), line: el('span', { class: 'axis-line' }) };
    this.#ticks[index] = tick;
    this.element.append(tick.label);
    this.lines.append(tick.line);
    return tick;
  }
}
