// Lines from waiting tasks to the tasks for which they wait.

/** @import {TaskRecord} from './task_store.js' */
/** @import {TimeAxis} from './time_axis.js' */

const SVG = 'http://www.w3.org/2000/svg';
/** A line to a row outside of the view ends this far beyond its edge. */
const BEYOND_PX = 24;
/** The distance of the vertical parts from the ends of the bars, and from each other. */
const NEAREST_PX = 8;
const LANE_PX = 3;
const MAX_LANES = 2;

/**
 * @typedef {{record: TaskRecord, y: number}} LineEnd
 *
 * @typedef {object} WaitLine
 * @property {LineEnd} source
 * @property {LineEnd} target
 * @property {boolean} isStrong The reader looks at the waiting task.
 *
 * @typedef {object} LinesToRender
 * @property {TimeAxis} axis
 * @property {number} now
 * @property {WaitLine[]} lines
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
    // Strong lines are drawn above the others.
    const sorted = [...lines.lines].sort((a, b) => Number(a.isStrong) - Number(b.isStrong));
    this.svg.replaceChildren(...sorted.map((line) => this.#draw(lines, line)));
  }

  /**
   * @param {LinesToRender} lines
   * @param {WaitLine} line
   * @returns {SVGElement}
   */
  #draw({ axis, now }, { source, target, isStrong }) {
    const x1 = this.#x(axis, source.record.task.alive ? now : source.record.endedAt);
    const x2 = this.#x(axis, target.record.task.alive ? now : target.record.endedAt);
    const y1 = this.#clamp(source.y);
    const y2 = this.#clamp(target.y);
    const path = document.createElementNS(SVG, 'path');
    // Lines of a parent run outside those of its children.
    const lane = Math.max(0, MAX_LANES - depthOf(source.record));
    const elbow = Math.max(x1, x2) + NEAREST_PX + lane * LANE_PX;
    path.setAttribute('d', `M ${x1} ${y1} H ${elbow} V ${y2} H ${x2 + 4}`);
    const dot = document.createElementNS(SVG, 'circle');
    dot.setAttribute('cx', String(x1));
    dot.setAttribute('cy', String(y1));
    dot.setAttribute('r', isStrong ? '3' : '2');
    const head = document.createElementNS(SVG, 'path');
    head.setAttribute('class', 'arrow');
    head.setAttribute('d', `M ${x2} ${y2} l 6 -4 v 8 z`);
    const group = document.createElementNS(SVG, 'g');
    group.setAttribute('class', isStrong ? 'wait-line is-strong' : 'wait-line');
    group.append(path, dot, head);
    return group;
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

/** @param {TaskRecord} record */
function depthOf(record) {
  let depth = 0;
  for (let next = record.parent; next; next = next.parent) depth += 1;
  return depth;
}
