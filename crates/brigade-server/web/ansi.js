// Output of terminals as DOM: colours and styles become classes, every other escape sequence is
// removed. Text enters the page only as text nodes, and a line cannot reach out of its line.

import { el } from './dom.js';
import { visibleText } from './visible_text.js';

const MAX_LINES = 5000;
const TRIM_LINES = 500;
const MAX_LINE_CHARS = 20_000;
const ESCAPE = '\u001b';

// CSI, OSC and other string sequences, two-character sequences. A string sequence ends with BEL or ST.
const SEQUENCE =
  /\u001b(?:\[([0-?]*)[ -/]*([@-~])|[\]PX^_][^\u0007\u001b]*(?:\u0007|\u001b\\)|[ -/]*[0-OQ-WYZ\\`-~])/y;
/** An unfinished sequence longer than this is text. */
const MAX_SEQUENCE = 4096;

/** The sixteen colours, for the nearest one to an RGB value. */
const PALETTE = [
  [0, 0, 0],
  [205, 49, 49],
  [13, 188, 121],
  [229, 229, 16],
  [36, 114, 200],
  [188, 63, 188],
  [17, 168, 205],
  [204, 204, 204],
  [118, 118, 118],
  [241, 76, 76],
  [35, 209, 139],
  [245, 245, 67],
  [59, 142, 234],
  [214, 112, 214],
  [41, 184, 219],
  [255, 255, 255],
];

class TextStyle {
  /** @type {number | null} */
  foreground = null;
  /** @type {number | null} */
  background = null;
  /** @type {Set<string>} */
  flags = new Set();

  get className() {
    const names = [...this.flags].map((flag) => `ansi-${flag}`);
    if (this.foreground !== null) names.push(`ansi-fg-${this.foreground}`);
    if (this.background !== null) names.push(`ansi-bg-${this.background}`);
    return names.join(' ');
  }
}

/** Writes chunks of output into an element, line by line. */
export class AnsiWriter {
  #style = new TextStyle();
  /** The beginning of a sequence at the end of the last chunk. */
  #unfinished = '';
  #hasReturned = false;
  /** @type {HTMLElement | null} */
  #line = null;
  #lineChars = 0;

  /** @param {HTMLElement} target */
  constructor(target) {
    this.target = target;
    this.lineCount = 0;
  }

  /**
   * Writes a chunk and returns the number of lines that it finished.
   * @param {string} chunk
   * @param {string} [className] A class for the text, such as `stderr`.
   */
  write(chunk, className = '') {
    const text = this.#unfinished + chunk;
    this.#unfinished = '';
    const before = this.lineCount;
    let from = 0;
    while (from < text.length) {
      const escape = text.indexOf(ESCAPE, from);
      const end = escape < 0 ? text.length : escape;
      if (end > from) this.#writeText(text.slice(from, end), className);
      if (escape < 0) break;
      SEQUENCE.lastIndex = escape;
      const match = SEQUENCE.exec(text);
      if (match) {
        if (match[2] === 'm') this.#setStyle(match[1]);
        from = escape + match[0].length;
      } else if (text.length - escape < MAX_SEQUENCE && isUnfinished(text.slice(escape))) {
        this.#unfinished = text.slice(escape);
        break;
      } else {
        from = escape + 1;
      }
    }
    this.#trim();
    return this.lineCount - before;
  }

  /**
   * @param {string} text
   * @param {string} className
   */
  #writeText(text, className) {
    const lines = text.replaceAll('\r\n', '\n').split('\n');
    for (let index = 0; index < lines.length; index += 1) {
      if (index > 0) this.#endLine();
      const parts = lines[index].split('\r');
      for (let part = 0; part < parts.length; part += 1) {
        // A return moves to the start of the line: the next text replaces it.
        if (part > 0) this.#hasReturned = true;
        if (parts[part] !== '') this.#writePart(parts[part], className);
      }
    }
  }

  /**
   * @param {string} text
   * @param {string} className
   */
  #writePart(text, className) {
    if (!this.#line) {
      this.#line = el('div', { class: 'line' });
      this.target.append(this.#line);
      this.#lineChars = 0;
    }
    if (this.#hasReturned) {
      this.#line.replaceChildren();
      this.#lineChars = 0;
      this.#hasReturned = false;
    }
    if (this.#lineChars > MAX_LINE_CHARS) return;
    this.#lineChars += text.length;
    const shown = visibleText(text);
    const classes = `${this.#style.className} ${className}`.trim();
    this.#line.append(classes === '' ? shown : el('span', { class: classes, text: shown }));
  }

  #endLine() {
    if (!this.#line) this.target.append(el('div', { class: 'line', text: '\u00a0' }));
    this.#line = null;
    this.#hasReturned = false;
    this.lineCount += 1;
  }

  /** True if the next text goes on with a line. */
  get isInLine() {
    return this.#line !== null;
  }

  #trim() {
    const excess = this.target.childElementCount - MAX_LINES;
    if (excess < TRIM_LINES) return;
    for (let index = 0; index < excess; index += 1) this.target.firstElementChild?.remove();
  }

  /** @param {string} parameters */
  #setStyle(parameters) {
    const codes = parameters.split(/[;:]/).map(Number);
    for (let index = 0; index < codes.length; index += 1) {
      const code = codes[index];
      if (code === 0) this.#style = new TextStyle();
      else if (code === 38 || code === 48)
        index += this.#setExtendedColour(code, codes.slice(index + 1));
      else if (code >= 30 && code <= 37) this.#style.foreground = code - 30;
      else if (code >= 90 && code <= 97) this.#style.foreground = code - 82;
      else if (code === 39) this.#style.foreground = null;
      else if (code >= 40 && code <= 47) this.#style.background = code - 40;
      else if (code >= 100 && code <= 107) this.#style.background = code - 92;
      else if (code === 49) this.#style.background = null;
      else setFlag(this.#style, code);
    }
  }

  /**
   * Sets a colour of 256 or of RGB to the nearest of the sixteen, which are legible in both themes.
   * @param {number} code
   * @param {number[]} rest
   * @returns {number} The number of codes that were used.
   */
  #setExtendedColour(code, rest) {
    const isRgb = rest[0] === 2;
    const colour = isRgb ? nearestColour(rest.slice(1, 4)) : indexedColour(rest[1] ?? 0);
    if (code === 38) this.#style.foreground = colour;
    else this.#style.background = colour;
    return isRgb ? 4 : 2;
  }
}

const FLAGS = new Map([
  [1, 'bold'],
  [2, 'dim'],
  [3, 'italic'],
  [4, 'underline'],
  [7, 'reverse'],
  [9, 'strike'],
]);
const CLEARED = new Map([
  [22, ['bold', 'dim']],
  [23, ['italic']],
  [24, ['underline']],
  [27, ['reverse']],
  [29, ['strike']],
]);

/**
 * @param {TextStyle} style
 * @param {number} code
 */
function setFlag(style, code) {
  const flag = FLAGS.get(code);
  if (flag) style.flags.add(flag);
  for (const cleared of CLEARED.get(code) ?? []) style.flags.delete(cleared);
}

/** @param {string} text */
function isUnfinished(text) {
  return /^\u001b(?:\[[0-?]*[ -/]*|[\]PX^_][^\u0007\u001b]*\u001b?|[ -/]*)$/.test(text);
}

/** @param {number} index */
function indexedColour(index) {
  if (index < 16) return index;
  if (index >= 232)
    return nearestColour([8 + (index - 232) * 10, 8 + (index - 232) * 10, 8 + (index - 232) * 10]);
  const cube = index - 16;
  const level = (/** @type {number} */ step) => (step === 0 ? 0 : 55 + step * 40);
  return nearestColour([
    level(Math.floor(cube / 36)),
    level(Math.floor(cube / 6) % 6),
    level(cube % 6),
  ]);
}

/** @param {number[]} rgb */
function nearestColour(rgb) {
  let best = 7;
  let bestDistance = Infinity;
  PALETTE.forEach((colour, index) => {
    const distance = colour.reduce(
      (sum, value, channel) => sum + (value - (rgb[channel] ?? 0)) ** 2,
      0,
    );
    if (distance < bestDistance) {
      best = index;
      bestDistance = distance;
    }
  });
  return best;
}
