// The live output of a process, with the colours of a terminal.

/** @import {OutputLine} from './api_types.d.ts' */
/** @import {AppContext} from './app_context.js' */
/** @import {TaskRecord} from './task_store.js' */

import { AnsiWriter } from './ansi.js';
import { el } from './dom.js';
import { formatNumber } from './format.js';
import { OutputExcerpt, decodeBase64 } from './output_excerpt.js';
import { OutputSearch } from './output_search.js';
import { PanelTab } from './panel_tab.js';
import { followStream } from './stream_reader.js';
import { TailScroller } from './tail_scroller.js';

const TAIL_BYTES = 262_144;

/**
 * A piece of the output. `base64` has bytes that are not UTF-8.
 * @typedef {{stream: string, from: number, next: number, text?: string, base64?: string}} ProcessOutput
 */

export class OutputTab extends PanelTab {
  /** The end of what is shown, in bytes; a new connection goes on from there. */
  #next = -1;
  /** @type {{text: string, stream: string}[]} */
  #chunks = [];
  #isScheduled = false;
  #run = 0;
  /** Ends the stream of the shown run. */
  #ofRun = new AbortController();
  /** Ends the loading of an excerpt. */
  #ofExcerpt = new AbortController();

  /**
   * @param {AppContext} app
   * @param {TaskRecord} record
   */
  constructor(app, record) {
    super(app, record);
    this.scroller = new TailScroller('Output');
    this.output = el('div', { class: 'output' });
    this.end = el('p', { class: 'hint output-end', hidden: true });
    this.scroller.list.classList.add('output-list');
    this.scroller.list.append(this.output, this.end);
    this.element.classList.add('tab-fill');
    this.excerpt = new OutputExcerpt(() => this.follow());
    this.search = new OutputSearch(app, this.path, (line) => this.#jump(line));
    this.element.append(this.search.element, this.scroller.element, this.excerpt.element);
    this.writer = new AnsiWriter(this.output);
  }

  /** Shows the output of the task's current run. @override */
  update() {
    const { run } = this.record.task;
    if (run === this.#run) return;
    this.#run = run;
    this.#ofRun.abort();
    this.#ofRun = new AbortController();
    this.#next = -1;
    this.#chunks = [];
    this.output.replaceChildren();
    this.end.hidden = true;
    this.writer = new AnsiWriter(this.output);
    this.search.clear();
    this.follow();
    this.#follow();
  }

  /** @override */
  follow() {
    this.#ofExcerpt.abort();
    this.excerpt.hide();
    this.scroller.element.hidden = false;
    this.scroller.follow();
  }

  /** Shows the output around a line that was found. @param {OutputLine} line */
  #jump(line) {
    this.#ofExcerpt.abort();
    this.#ofExcerpt = new AbortController();
    const signal = AbortSignal.any([this.abort.signal, this.#ofExcerpt.signal]);
    const shown = this.excerpt.show(this.app, this.path, line, signal);
    shown.then(
      () => {
        if (!signal.aborted) this.scroller.element.hidden = true;
      },
      (error) => {
        if (!signal.aborted) this.showError(error);
      },
    );
  }

  #follow() {
    const path = () =>
      `${this.path}/output/stream?${this.#next < 0 ? `tail=${TAIL_BYTES}` : `from=${this.#next}`}`;
    const signal = AbortSignal.any([this.abort.signal, this.#ofRun.signal]);
    followStream(this.app.api, path, signal, (event, data) => {
      if (signal.aborted) return;
      if (event === 'output') this.#receive(data);
      else if (event === 'dropped') this.#skip(data);
      else if (event === 'end') this.#finish();
    }).catch((error) => this.showError(error));
  }

  /** @param {ProcessOutput} piece */
  #receive(piece) {
    this.#next = piece.next;
    const text = piece.text ?? new TextDecoder().decode(decodeBase64(piece.base64 ?? ''));
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
