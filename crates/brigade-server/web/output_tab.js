// The live output of a process, with the colours of a terminal.

/** @import {ProcessOutput} from './api_types.d.ts' */
/** @import {AppContext} from './app_context.js' */
/** @import {TaskRecord} from './task_store.js' */

import { AnsiWriter } from './ansi.js';
import { el } from './dom.js';
import { formatNumber } from './format.js';
import { PanelTab } from './panel_tab.js';
import { followStream } from './stream_reader.js';
import { TailScroller } from './tail_scroller.js';

const TAIL_BYTES = 262_144;

export class OutputTab extends PanelTab {
  /** The end of what is shown, in bytes; a new connection goes on from there. */
  #next = -1;
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
    const path = () =>
      `${this.path}/output/stream?${this.#next < 0 ? `tail=${TAIL_BYTES}` : `from=${this.#next}`}`;
    followStream(this.app.api, path, this.abort.signal, (event, data) => {
      if (event === 'output') this.#receive(data);
      else if (event === 'dropped') this.#skip(data);
      else if (event === 'end') this.#finish();
    }).catch((error) => this.showError(error));
  }

  /** @param {ProcessOutput} piece */
  #receive(piece) {
    this.#next = piece.next;
    const text = piece.text ?? decodeBase64(piece.base64 ?? '');
    this.#chunks.push({ text, stream: piece.stream });
    this.#schedule();
  }

  /** @param {{from: number, next: number}} dropped */
  #skip(dropped) {
    this.#next = dropped.next;
    const bytes = formatNumber(dropped.next - dropped.from);
    this.#chunks.push({ text: `\n[${bytes} bytes are no longer stored]\n`, stream: 'stdout' });
    this.#schedule();
  }

  #schedule() {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    requestAnimationFrame(() => {
      this.#isScheduled = false;
      let lines = 0;
      for (const chunk of this.#chunks)
        lines += this.writer.write(chunk.text, chunk.stream === 'stderr' ? 'stderr' : '');
      this.#chunks = [];
      this.scroller.grow(lines);
    });
  }

  #finish() {
    this.end.hidden = false;
    this.end.textContent = this.#next <= 0 ? 'There is no output.' : 'End of the output.';
    this.scroller.grow(0);
  }
}

/** Returns the text of bytes that are not all UTF-8. @param {string} base64 */
function decodeBase64(base64) {
  return new TextDecoder().decode(
    Uint8Array.from(atob(base64), (character) => character.charCodeAt(0)),
  );
}
