// The live output of a process, with the colours of a terminal.

/** @import {AppContext} from './app_context.js' */
/** @import {TaskRecord} from './task_store.js' */

import { AnsiWriter } from './ansi.js';
import { el } from './dom.js';
import { PanelTab } from './panel_tab.js';
import { followStream } from './stream_reader.js';
import { TailScroller } from './tail_scroller.js';

const TAIL_BYTES = 262_144;
const encoder = new TextEncoder();
const decoder = new TextDecoder();

export class OutputTab extends PanelTab {
  /** The end of what is shown, in bytes of each stream; a new connection repeats nothing. @type {Map<string, number>} */
  #next = new Map();
  /** @type {{text: string, stream: string}[]} */
  #chunks = [];
  #isScheduled = false;

  /**
   * @param {AppContext} app
   * @param {TaskRecord} record
   */
  constructor(app, record) {
    super(app, record);
    this.scroller = new TailScroller('Output');
    this.output = el('div', { class: 'output' });
    this.end = el('p', { class: 'hint output-end', hidden: true });
    this.scroller.list.append(this.output, this.end);
    this.element.classList.add('tab-fill');
    this.element.append(this.scroller.element);
    this.writer = new AnsiWriter(this.output);
    this.#follow();
  }

  /** @override */
  follow() {
    this.scroller.follow();
  }

  #follow() {
    followStream(this.app.api, `${this.path}/output/stream?tail=${TAIL_BYTES}`, this.abort.signal, (event, data) => {
      if (event === 'output') this.#receive(data);
      else if (event === 'end') this.#finish();
    }).catch((error) => this.showError(error));
  }

  /** @param {{stream: string, from: number, next?: number, text: string}} piece */
  #receive(piece) {
    const bytes = encoder.encode(piece.text);
    const end = piece.next ?? piece.from + bytes.length;
    const shown = this.#next.get(piece.stream) ?? 0;
    if (end <= shown) return;
    const text = piece.from < shown ? decoder.decode(bytes.subarray(shown - piece.from)) : piece.text;
    this.#next.set(piece.stream, end);
    this.#chunks.push({ text, stream: piece.stream });
    this.#schedule();
  }

  #schedule() {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    requestAnimationFrame(() => {
      this.#isScheduled = false;
      let lines = 0;
      for (const chunk of this.#chunks) lines += this.writer.write(chunk.text, chunk.stream === 'stderr' ? 'stderr' : '');
      this.#chunks = [];
      this.scroller.grow(lines);
    });
  }

  #finish() {
    this.end.hidden = false;
    this.end.textContent = this.#next.size === 0 ? 'There is no output.' : 'End of the output.';
    this.scroller.grow(0);
  }
}
