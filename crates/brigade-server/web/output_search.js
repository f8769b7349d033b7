// Finds lines in all stored output of a process, also in those that the page does not show.

/** @import {OutputLine, OutputSearch as SearchAnswer} from './api_types.d.ts' */
/** @import {AppContext} from './app_context.js' */

import { describeError } from './api.js';
import { AnsiWriter } from './ansi.js';
import { button, el } from './dom.js';
import { formatCount } from './format.js';

const MAX_LINES = 200;

export class OutputSearch {
  /** Ends the search before. */
  #search = new AbortController();
  /** @type {HTMLButtonElement[]} */
  #hits = [];

  /**
   * @param {AppContext} app
   * @param {string} path The path of the task.
   * @param {(line: OutputLine) => void} onJump
   */
  constructor(app, path, onJump) {
    this.app = app;
    this.path = path;
    this.onJump = onJump;
    this.input = el('input', {
      type: 'search',
      placeholder: 'Find in all output',
      'aria-label': 'Find in all output',
      autocomplete: 'off',
      spellcheck: 'false',
    });
    this.isPattern = el('input', { type: 'checkbox' });
    this.status = el('span', { class: 'hint search-status', role: 'status' });
    this.hits = el('ol', { class: 'search-hits', 'aria-label': 'Lines that match', hidden: true });
    const form = el(
      'form',
      { class: 'search-form', role: 'search', 'aria-label': 'Search the output' },
      this.input,
      el('label', { class: 'check' }, this.isPattern, 'Regular expression'),
      this.status,
    );
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      this.#find();
    });
    this.input.addEventListener('input', () => {
      if (this.input.value === '') this.clear();
    });
    this.hits.addEventListener('keydown', (event) => this.#onKey(event));
    this.element = el('div', { class: 'output-search' }, form, this.hits);
  }

  clear() {
    this.#search.abort();
    this.#hits = [];
    this.hits.replaceChildren();
    this.hits.hidden = true;
    this.status.textContent = '';
    this.status.className = 'hint search-status';
  }

  /** Shows which line is jumped to. @param {number} index */
  #mark(index) {
    this.#hits.forEach((hit, at) => {
      if (at === index) hit.setAttribute('aria-current', 'true');
      else hit.removeAttribute('aria-current');
    });
  }

  async #find() {
    const text = this.input.value;
    if (text === '') return;
    this.clear();
    this.#search = new AbortController();
    const { signal } = this.#search;
    this.status.textContent = 'Searching…';
    const query = new URLSearchParams({
      pattern: this.isPattern.checked ? text : escapePattern(text),
      ignore_case: String(!this.isPattern.checked),
      limit: String(MAX_LINES),
    });
    try {
      /** @type {SearchAnswer} */
      const answer = await this.app.api.get(`${this.path}/output/search?${query}`, { signal });
      if (!signal.aborted) this.#show(answer);
    } catch (error) {
      if (signal.aborted) return;
      this.status.className = 'error search-status';
      this.status.textContent = describeError(error);
    }
  }

  /** @param {SearchAnswer} answer */
  #show(answer) {
    const { lines } = answer;
    const found = lines.length === 0 ? 'No line matches' : formatCount(lines.length, 'line');
    const more = answer.has_more ? ', and more' : '';
    const dropped = answer.dropped_bytes > 0 ? '. The oldest output is no longer stored' : '';
    this.status.textContent = `${found}${more}${dropped}`;
    this.#hits = lines.map((line, index) => {
      const hit = button('', () => {
        this.#mark(index);
        this.onJump(line);
      });
      hit.className = 'search-hit';
      new AnsiWriter(hit).write(line.text.slice(0, 400), line.stream === 'stderr' ? 'stderr' : '');
      return hit;
    });
    this.hits.replaceChildren(...this.#hits.map((hit) => el('li', {}, hit)));
    this.hits.hidden = lines.length === 0;
    if (lines.length === 0) return;
    // The last line is the one that a reader of a log looks for first.
    const last = this.#hits[this.#hits.length - 1];
    last.scrollIntoView({ block: 'nearest' });
    last.focus();
    last.click();
  }

  /** Moves through the lines. @param {KeyboardEvent} event */
  #onKey(event) {
    const step = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : 0;
    if (step === 0) return;
    const at = this.#hits.indexOf(/** @type {HTMLButtonElement} */ (document.activeElement));
    const next = this.#hits[at + step];
    if (!next) return;
    event.preventDefault();
    next.focus();
    next.click();
  }
}

/** Returns a regular expression that matches exactly this text. @param {string} text */
function escapePattern(text) {
  return text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
}
