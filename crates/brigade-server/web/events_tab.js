// The events of a task: what happened, when, and by whom.

/** @import {Change, ChangeList} from './api_types.d.ts' */
/** @import {AppContext} from './app_context.js' */
/** @import {TaskRecord} from './task_store.js' */

import { el } from './dom.js';
import { describeAuthor, describeData } from './event_text.js';
import { formatName, formatTime } from './format.js';
import { PanelTab } from './panel_tab.js';
import { TailScroller } from './tail_scroller.js';
import { foreignText } from './visible_text.js';

const PAGE_EVENTS = 1000;
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
      for (let after = '', hasMore = true; hasMore;) {
        const query = new URLSearchParams({ limit: String(PAGE_EVENTS) });
        if (after !== '') query.set('after', after);
        /** @type {ChangeList} */
        const page = await this.app.api.get(`${this.path}/events?${query}`, {
          signal: this.abort.signal,
        });
        this.#add(page.items);
        after = page.cursor;
        hasMore = page.has_more;
      }
      this.#add(this.#early ?? []);
      this.#early = null;
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
      this.list.append(renderChange(this.app, change));
      added += 1;
    }
    while (this.list.childElementCount > MAX_EVENTS) this.list.firstElementChild?.remove();
    this.scroller.grow(added);
  }
}

/**
 * @param {AppContext} app
 * @param {Change} change
 */
function renderChange(app, change) {
  const data = describeData(app, change.data);
  const author = change.by ? `by ${describeAuthor(app, change.by)}` : '';
  return el(
    'li',
    { class: 'event' },
    el('time', { text: formatTime(change.at), title: change.at }),
    el('span', { class: 'event-type', text: formatName(change.type) }),
    data ? foreignText('span', data, 'event-data') : null,
    author ? foreignText('span', author, 'event-author') : null,
  );
}
