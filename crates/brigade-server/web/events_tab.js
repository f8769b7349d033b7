// The events of a task: what happened, when, and by whom.

/** @import {Change} from './api_types.d.ts' */
/** @import {AppContext} from './app_context.js' */
/** @import {TaskRecord} from './task_store.js' */

import { el } from './dom.js';
import { formatFullTime, formatName, formatTime } from './format.js';
import { PanelTab } from './panel_tab.js';
import { TailScroller } from './tail_scroller.js';
import { foreignText } from './visible_text.js';

const PAGE_EVENTS = 500;
const MAX_EVENTS = 2000;

export class EventsTab extends PanelTab {
  #lastSeq = -1;
  /** Live changes that arrive before the page is loaded. @type {Change[] | null} */
  #early = [];

  /**
   * @param {AppContext} app
   * @param {TaskRecord} record
   */
  constructor(app, record) {
    super(app, record);
    this.scroller = new TailScroller('Events');
    this.list = el('ol', { class: 'events' });
    this.scroller.list.append(this.list);
    this.element.classList.add('tab-fill');
    this.element.append(this.scroller.element);
    this.#load();
  }

  /** @override @param {Change} change */
  receive(change) {
    if (this.#early) this.#early.push(change);
    else this.#add([change]);
  }

  /** @override */
  follow() {
    this.scroller.follow();
  }

  async #load() {
    try {
      const answer = await this.app.api.get(`${this.path}/events?limit=${PAGE_EVENTS}`, { signal: this.abort.signal });
      const early = this.#early ?? [];
      this.#early = null;
      this.#add([...answer.items, ...early]);
    } catch (error) {
      this.showError(error);
    }
  }

  /** @param {Change[]} changes */
  #add(changes) {
    let added = 0;
    for (const change of changes) {
      if (change.seq <= this.#lastSeq) continue;
      this.#lastSeq = change.seq;
      this.list.append(renderChange(change));
      added += 1;
    }
    while (this.list.childElementCount > MAX_EVENTS) this.list.firstElementChild?.remove();
    this.scroller.grow(added);
  }
}

/** @param {Change} change */
function renderChange(change) {
  const data = change.data && Object.keys(change.data).length > 0 ? JSON.stringify(change.data) : '';
  const by = change.by === undefined ? '' : typeof change.by === 'string' ? change.by : JSON.stringify(change.by);
  return el('li', { class: 'event' }, el('time', { text: formatTime(change.at), title: formatFullTime(change.at) }), el('span', { class: 'event-type', text: formatName(change.type) }), by ? el('span', { class: 'event-by' }, 'by ', foreignText('span', by)) : null, data ? foreignText('span', data, 'event-data') : null);
}
