// The filters above the list: text, states with their counts, session, levels and time range.

/** @import {TaskStore} from './task_store.js' */
/** @import {UrlState} from './url_state.js' */
/** @import {RowOptions} from './visible_rows.js' */

import { byId, el, icon } from './dom.js';
import { formatNumber, shortSession } from './format.js';
import { countedStates, stateSymbol } from './task_states.js';
import { throttle } from './throttle.js';
import { ALL_LEVELS } from './url_state.js';
import { countSelected } from './visible_rows.js';

const COUNT_MS = 250;

export class FilterBar {
  /** @type {Map<string, {button: HTMLButtonElement, count: HTMLElement}>} */
  #states = new Map();
  #sessionNames = '';

  /**
   * @param {TaskStore} store
   * @param {UrlState} url
   * @param {() => void} onChange
   */
  constructor(store, url, onChange) {
    this.store = store;
    this.url = url;
    this.onChange = onChange;
    this.input = /** @type {HTMLInputElement} */ (byId('filter-text'));
    this.session = /** @type {HTMLSelectElement} */ (byId('filter-session'));
    this.levels = /** @type {HTMLSelectElement} */ (byId('filter-levels'));
    this.range = /** @type {HTMLSelectElement} */ (byId('filter-range'));
    this.bar = byId('filter-states');
    /** @type {RowOptions} */
    this.rowOptions = { text: '', states: new Set(), session: '', levels: 2, expanded: url.expanded };
    this.input.addEventListener('input', () => this.#read());
    this.session.addEventListener('change', () => this.#read());
    this.range.addEventListener('change', () => this.#read());
    this.levels.addEventListener('change', () => {
      this.rowOptions.expanded.clear();
      this.#read();
    });
    byId('clear-filter').addEventListener('click', () => this.#clear());
    this.sync();
    store.subscribe(throttle(COUNT_MS, () => this.#render()));
  }

  focus() {
    this.input.focus();
    this.input.select();
  }

  /** Shows the state of the URL. */
  sync() {
    const { url } = this;
    this.input.value = url.text;
    this.#renderSessions();
    this.session.value = url.session;
    this.range.value = url.range;
    this.levels.value = url.levels >= ALL_LEVELS ? 'all' : String(url.levels);
    this.#setOptions();
    this.#render();
  }

  #read() {
    const { url } = this;
    url.text = this.input.value;
    url.session = this.session.value;
    url.range = this.range.value;
    url.levels = this.levels.value === 'all' ? ALL_LEVELS : Number(this.levels.value);
    this.#setOptions();
    this.#render();
    this.onChange();
  }

  /** Removes the text. Returns false if there is none. */
  clearText() {
    if (this.input.value === '') return false;
    this.input.value = '';
    this.#read();
    return true;
  }

  #clear() {
    Object.assign(this.url, { text: '', states: [], session: '' });
    this.sync();
    this.onChange();
    this.input.focus();
  }

  #setOptions() {
    const { rowOptions, url } = this;
    rowOptions.text = url.text.trim().toLowerCase();
    rowOptions.states = new Set(url.states);
    rowOptions.session = url.session;
    rowOptions.levels = url.levels;
    rowOptions.expanded = url.expanded;
  }

  /** @param {string} state */
  #toggleState(state) {
    const { url } = this;
    url.states = url.states.includes(state)
      ? url.states.filter((one) => one !== state)
      : [...url.states, state];
    this.#setOptions();
    this.#render();
    this.onChange();
  }

  #render() {
    this.#renderSessions();
    const counts = countSelected(this.store, this.rowOptions);
    const present = new Set([...countedStates(counts), ...this.url.states]);
    for (const state of present) {
      if (!this.#states.has(state)) this.#addState(state);
    }
    for (const [state, view] of this.#states) {
      const text = formatNumber(counts.get(state) ?? 0);
      if (view.count.textContent !== text) view.count.textContent = text;
      const isHidden = !present.has(state);
      if (view.button.hidden !== isHidden) view.button.hidden = isHidden;
      const pressed = String(this.url.states.includes(state));
      if (view.button.getAttribute('aria-pressed') !== pressed)
        view.button.setAttribute('aria-pressed', pressed);
    }
  }

  /** @param {string} state */
  #addState(state) {
    const count = el('span', { class: 'state-count' });
    const symbol = stateSymbol(state);
    const toggle = el(
      'button',
      {
        type: 'button',
        class: `state-filter state-${symbol}`,
        title: state,
        'aria-pressed': 'false',
      },
      icon(`i-${symbol}`),
      count,
      el('span', { class: 'state-name', text: state }),
    );
    toggle.addEventListener('click', () => this.#toggleState(state));
    this.#states.set(state, { button: toggle, count });
    const order = countedStates(new Map([...this.#states.keys()].map((name) => [name, 1])));
    for (const name of order)
      this.bar.append(/** @type {{button: HTMLElement}} */ (this.#states.get(name)).button);
  }

  #renderSessions() {
    const sessions = [...this.store.sessions].sort((a, b) => a[1].localeCompare(b[1]));
    const names = sessions.map(([id, name]) => `${id} ${name}`).join('\n');
    if (names === this.#sessionNames && this.session.options.length > 0) return;
    this.#sessionNames = names;
    this.session.replaceChildren(el('option', { value: '', text: 'All sessions' }));
    for (const [id, name] of sessions)
      this.session.append(el('option', { value: id, text: shortSession(name), title: name }));
    this.session.value = this.url.session;
    this.session.hidden = sessions.length < 2;
  }
}
