// A part of a process's output around one line, away from its end.

/** @import {OutputLine, OutputPage} from './api_types.d.ts' */
/** @import {AppContext} from './app_context.js' */

import { AnsiWriter } from './ansi.js';
import { button, el } from './dom.js';
import { formatNumber } from './format.js';

const BYTES_BEFORE = 16_384;
const BYTES = 131_072;

/** @typedef {{stream: string, bytes: Uint8Array}} Chunk */

export class OutputExcerpt {
  /** @param {() => void} onClose */
  constructor(onClose) {
    this.text = el('span', { class: 'hint' });
    this.output = el('div', { class: 'output' });
    this.list = el(
      'div',
      { class: 'tail-list output-list', tabindex: '0', role: 'region', 'aria-label': 'Excerpt' },
      this.output,
    );
    this.element = el(
      'div',
      { class: 'excerpt', hidden: true },
      el('div', { class: 'excerpt-head' }, this.text, button('Back to the end', onClose)),
      el('div', { class: 'tail' }, this.list),
    );
  }

  /**
   * Shows the output around a line.
   * @param {AppContext} app
   * @param {string} path The path of the task.
   * @param {OutputLine} line
   * @param {AbortSignal} signal
   */
  async show(app, path, line, signal) {
    const from = Math.max(0, line.offset - BYTES_BEFORE);
    /** @type {OutputPage} */
    const page = await app.api.get(`${path}/output?from=${from}&limit=${BYTES}`, { signal });
    if (signal.aborted) return;
    const { before, after } = splitPage(page, line.offset);
    this.output.replaceChildren();
    const writer = new AnsiWriter(this.output);
    write(writer, from > 0 ? withoutPartialLine(before) : before);
    const at = this.output.childElementCount - (writer.isInLine ? 1 : 0);
    write(writer, after);
    const hit = this.output.children[at];
    hit?.classList.add('is-hit');
    hit?.setAttribute('aria-current', 'true');
    this.text.textContent = `From byte ${formatNumber(page.from)} to ${formatNumber(page.next)} of ${formatNumber(page.total)}`;
    this.element.hidden = false;
    hit?.scrollIntoView({ block: 'center' });
    // Lines that come into view get their true height only now.
    requestAnimationFrame(() => hit?.scrollIntoView({ block: 'center' }));
  }

  hide() {
    this.element.hidden = true;
    this.output.replaceChildren();
  }
}

/**
 * Splits a page at a position, in bytes.
 * @param {OutputPage} page
 * @param {number} offset
 */
function splitPage(page, offset) {
  /** @type {Chunk[]} */
  const before = [];
  /** @type {Chunk[]} */
  const after = [];
  let position = page.from;
  for (const piece of page.pieces) {
    if ('dropped' in piece) {
      position += piece.dropped;
      continue;
    }
    const bytes =
      'text' in piece ? new TextEncoder().encode(piece.text) : decodeBase64(piece.base64);
    const cut = Math.max(0, Math.min(bytes.length, offset - position));
    before.push({ stream: piece.stream, bytes: bytes.subarray(0, cut) });
    after.push({ stream: piece.stream, bytes: bytes.subarray(cut) });
    position += bytes.length;
  }
  return { before, after };
}

/** Leaves out the end of a line that began earlier. @param {Chunk[]} chunks */
function withoutPartialLine(chunks) {
  const first = chunks.findIndex(({ bytes }) => bytes.includes(10));
  if (first < 0) return [];
  const { stream, bytes } = chunks[first];
  return [{ stream, bytes: bytes.subarray(bytes.indexOf(10) + 1) }, ...chunks.slice(first + 1)];
}

/**
 * @param {AnsiWriter} writer
 * @param {Chunk[]} chunks
 */
function write(writer, chunks) {
  for (const { stream, bytes } of chunks)
    writer.write(new TextDecoder().decode(bytes), stream === 'stderr' ? 'stderr' : '');
}

/** Returns the bytes of a text in base64. @param {string} base64 */
export function decodeBase64(base64) {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}
