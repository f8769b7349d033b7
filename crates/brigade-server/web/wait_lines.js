// Lines from a waiting task to the tasks for which it waits.

/** @import {TaskRecord} from './task_store.js' */
/** @import {TimeAxis} from './time_axis.js' */

const SVG = 'http://www.w3.org/2000/svg';
/** A line to a row outside of the view ends this far beyond its edge. */
const BEYOND_PX = 24;

/**
 * @typedef {{record: TaskRecord, y: number}} LineEnd
 *
 * @typedef {object} LinesToRender
 * @property {TimeAxis} axis
 * @property {number} now
 * @property {LineEnd} source
 * @property {LineEnd[]} targets
 * @property {string} key Equal keys give equal lines.
 */

export class WaitLines {
  #key = '';
  /** @type {{left: number, width: number, height: number}} */
  #area = { left: 0, width: 0, height: 0 };

  /** @param {HTMLElement} parent */
  constructor(parent) {
    this.svg = document.createElementNS(SVG, 'svg');
    this.svg.setAttribute('class', 'wait-lines');
    this.svg.setAttribute('aria-hidden', 'true');
    parent.append(this.svg);
  }

  /**
   * @param {HTMLElement} grid
   * @param {HTMLElement} axis
   */
  measure(grid, axis) {
    const left = axis.getBoundingClientRect().left - grid.getBoundingClientRect().left;
    this.#area = { left, width: axis.clientWidth, height: grid.clientHeight };
    this.#key = '';
  }

  clear() {
    if (this.#key === '') return;
    this.#key = '';
    this.svg.replaceChildren();
  }

  /** @param {LinesToRender} lines */
  render(lines) {
    if (lines.key === this.#key) return;
    this.#key = lines.key;
    const paths = lines.targets.flatMap((target) => this.#path(lines, target));
    this.svg.replaceChildren(...paths);
  }

  /**
   * @param {LinesToRender} lines
   * @param {LineEnd} target
   * @returns {SVGElement[]}
   */
  #path(lines, target) {
    const { axis, now, source } = lines;
    const x1 = this.#x(axis, source.record.task.alive ? now : source.record.endedAt);
    const x2 = this.#x(axis, target.record.task.alive ? now : target.record.endedAt);
    const y1 = this.#clamp(source.y);
    const y2 = this.#clamp(target.y);
    const path = document.createElementNS(SVG, 'path');
    const elbow = Math.max(x1, x2) + 8;
    path.setAttribute('d', `M ${x1} ${y1} H ${elbow} V ${y2} H ${x2 + 4}`);
    const dot = document.createElementNS(SVG, 'circle');
    dot.setAttribute('cx', String(x1));
    dot.setAttribute('cy', String(y1));
    dot.setAttribute('r', '3');
    const head = document.createElementNS(SVG, 'path');
    head.setAttribute('class', 'arrow');
    head.setAttribute('d', `M ${x2} ${y2} l 6 -4 v 8 z`);
    return [path, dot, head];
  }

  /**
   * @param {TimeAxis} axis
   * @param {number} time
   */
  #x(axis, time) {
    return this.#area.left + Math.max(0, Math.min(1, axis.place(time))) * this.#area.width;
  }

  /** @param {number} y */
  #clamp(y) {
    return Math.max(-BEYOND_PX, Math.min(this.#area.height + BEYOND_PX, y));
  }
}
