// The head of the time axis: ticks with times, and lines through all rows.

/** @import {TimeAxis} from './time_axis.js' */

import { el } from './dom.js';

const DAY = 24 * 60 * 60_000;
const seconds = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });
const minutes = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' });
const days = new Intl.DateTimeFormat(undefined, { month: 'short', day: 'numeric' });

export class AxisHead {
  /** @type {HTMLElement[]} */
  #ticks = [];
  #width = 0;
  #shown = '';

  /** @param {HTMLElement} element */
  constructor(element) {
    this.element = element;
  }

  measure() {
    this.#width = this.element.clientWidth;
    this.#shown = '';
  }

  /** @param {TimeAxis} axis */
  render(axis) {
    const shown = `${axis.from} ${axis.to}`;
    if (shown === this.#shown) return;
    this.#shown = shown;
    const { ticks, step } = axis.ticks(this.#width);
    const format = step >= DAY ? days : step < 60_000 ? seconds : minutes;
    let used = 0;
    for (const time of ticks) {
      const place = axis.place(time);
      // A label at the right edge would be cut off.
      if (place < 0 || place > 1 - 40 / Math.max(this.#width, 1)) continue;
      const tick = this.#tick(used);
      tick.style.left = `${(place * 100).toFixed(2)}%`;
      const text = format.format(time);
      if (tick.textContent !== text) tick.textContent = text;
      used += 1;
    }
    for (let index = used; index < this.#ticks.length; index += 1) this.#ticks[index].hidden = true;
  }

  /** @param {number} index */
  #tick(index) {
    let tick = this.#ticks[index];
    if (!tick) {
      tick = el('span', { class: 'tick' });
      this.#ticks[index] = tick;
      this.element.append(tick);
    }
    tick.hidden = false;
    return tick;
  }
}
