// The panel of the selected task, beside the list (on a phone: instead of it).

/** @import {Change, TaskDetail, TaskId} from './api_types.d.ts' */
/** @import {AppContext} from './app_context.js' */
/** @import {PanelTab} from './panel_tab.js' */
/** @import {StoreUpdate, TaskRecord} from './task_store.js' */

import { Problem } from './api.js';
import { append, button, byId, el, icon } from './dom.js';
import { EventsTab } from './events_tab.js';
import { formatDuration, formatTime, shortSession } from './format.js';
import { LimitsTab } from './limits_tab.js';
import { MessagesTab } from './messages_tab.js';
import { OutputTab } from './output_tab.js';
import { OverviewTab } from './overview_tab.js';
import { PendingCards } from './pending_cards.js';
import { serverNow } from './server_clock.js';
import { describeState, stateSymbol } from './task_states.js';
import { TaskActions } from './task_actions.js';
import { TranscriptTab } from './transcript_tab.js';
import { foreignText } from './visible_text.js';

/** The detail form is read again at most this often. */
const DETAIL_MS = 1000;
const AGE_MS = 1000;

/** @type {[string, string, new (app: AppContext, record: TaskRecord) => PanelTab, (kind: string) => boolean][]} */
const TABS = [
  ['overview', 'Overview', OverviewTab, () => true],
  ['transcript', 'Transcript', TranscriptTab, (kind) => kind === 'agent'],
  ['output', 'Output', OutputTab, (kind) => kind !== 'agent' && kind !== 'job'],
  ['messages', 'Messages', MessagesTab, () => true],
  ['events', 'Events', EventsTab, () => true],
  ['limits', 'Limits', LimitsTab, () => true],
];

/**
 * @typedef {object} PanelHandlers
 * @property {() => void} onClose
 * @property {(tab: string) => void} onTab
 */

export class TaskPanel {
  /** @type {TaskRecord | null} */
  #record = null;
  /** @type {TaskDetail | null} */
  #detail = null;
  #tabName = 'overview';
  /** @type {PanelTab | null} */
  #tab = null;
  /** @type {TaskActions | null} */
  #actions = null;
  /** @type {PendingCards | null} */
  #pending = null;
  #isDetailScheduled = false;
  #stateAge = el('span', { class: 'state-age' });

  /**
   * @param {AppContext} app
   * @param {PanelHandlers} handlers
   */
  constructor(app, handlers) {
    this.app = app;
    this.handlers = handlers;
    this.element = byId('task-panel');
    this.head = el('header', { class: 'panel-head' });
    this.tabs = el('div', { class: 'tabs', role: 'tablist', 'aria-label': 'Parts of the task' });
    this.body = el('div', {
      class: 'panel-body',
      role: 'tabpanel',
      id: 'panel-body',
      tabindex: '0',
    });
    this.tabs.addEventListener('keydown', (event) => this.#onTabKey(event));
    app.store.subscribe((update) => this.#onUpdate(update));
    app.onChange((change) => this.#onChange(change));
    setInterval(() => this.#renderStateAge(), AGE_MS);
  }

  /** The id of the shown task. */
  get shownId() {
    return this.#record?.id ?? null;
  }

  /**
   * Shows a task.
   * @param {TaskId} id
   * @param {string} tab
   */
  show(id, tab) {
    const record = this.app.store.get(id);
    if (!record) return false;
    if (record !== this.#record) this.#open(record);
    this.#showTab(tab);
    return true;
  }

  hide() {
    this.#tab?.close();
    this.#pending?.close();
    this.#pending = null;
    this.#tab = null;
    this.#record = null;
    this.#detail = null;
    this.element.hidden = true;
    this.element.replaceChildren();
    document.body.classList.remove('has-panel');
  }

  /** Performs an action of the shown task: `stop`, `resume` or `message`. @param {string} action */
  act(action) {
    if (action === 'stop') this.#actions?.askStop();
    else if (action === 'resume') this.#actions?.askResume();
    else if (action === 'message' && this.#tab instanceof MessagesTab) this.#tab.focusInput();
  }

  /** Goes to the newest entry of the shown tab. */
  follow() {
    this.#tab?.follow();
  }

  focus() {
    this.title?.focus();
  }

  /** @param {TaskRecord} record */
  #open(record) {
    this.#tab?.close();
    this.#tab = null;
    this.#record = record;
    this.#detail = null;
    this.#actions = new TaskActions(this.app, record);
    this.#pending?.close();
    const cards = el('ul', { class: 'cards panel-cards', 'aria-label': 'Needs you' });
    this.#pending = new PendingCards(this.app, cards, () => [record]);
    this.title = foreignText('h2', record.task.name ?? record.task.address, 'panel-title');
    this.title.tabIndex = -1;
    this.state = el('p', { class: 'panel-state' });
    const close = button('', () => this.handlers.onClose(), {
      class: 'icon-button panel-close',
      'aria-label': 'Close the task',
      title: 'Close (Esc)',
    });
    close.append(icon('i-close'));
    const back = button('', () => this.handlers.onClose(), {
      class: 'icon-button panel-back',
      'aria-label': 'Back to the list',
    });
    back.append(icon('i-back'));
    this.head.replaceChildren(
      el('div', { class: 'panel-title-row' }, back, this.title, close),
      this.state,
      this.#actions.element,
      cards,
    );
    this.#pending.render();
    this.element.replaceChildren(this.head, this.tabs, this.body);
    this.element.hidden = false;
    document.body.classList.add('has-panel');
    this.#renderTabs(record.task.kind);
    this.#renderState();
    this.#loadDetail();
  }

  /** @param {string} kind */
  #renderTabs(kind) {
    this.tabs.replaceChildren();
    for (const [name, label, , applies] of TABS) {
      if (!applies(kind)) continue;
      this.tabs.append(
        button(label, () => this.#pressTab(name), {
          role: 'tab',
          id: `tab-${name}`,
          'aria-controls': 'panel-body',
        }),
      );
    }
  }

  /** @param {string} name */
  #pressTab(name) {
    this.#showTab(name);
    this.handlers.onTab(name);
  }

  /** @param {string} wanted */
  #showTab(wanted) {
    const record = this.#record;
    if (!record) return;
    const found =
      TABS.find(([name, , , applies]) => name === wanted && applies(record.task.kind)) ?? TABS[0];
    const [name, , Tab] = found;
    if (this.#tab && this.#tabName === name) return;
    this.#tab?.close();
    this.#tabName = name;
    this.#tab = new Tab(this.app, record);
    this.#tab.update(this.#detail);
    this.body.replaceChildren(this.#tab.element);
    this.body.setAttribute('aria-labelledby', `tab-${name}`);
    for (const tab of this.tabs.children) {
      const isSelected = tab.id === `tab-${name}`;
      tab.setAttribute('aria-selected', String(isSelected));
      tab.setAttribute('tabindex', isSelected ? '0' : '-1');
      // Only the row of tabs scrolls, never the page.
      if (isSelected) this.tabs.scrollLeft = /** @type {HTMLElement} */ (tab).offsetLeft - 64;
    }
  }

  /** @param {KeyboardEvent} event */
  #onTabKey(event) {
    const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
    if (step === 0) return;
    const tabs = /** @type {HTMLElement[]} */ ([...this.tabs.children]);
    const at = tabs.findIndex((tab) => tab.getAttribute('aria-selected') === 'true');
    const next = tabs[(at + step + tabs.length) % tabs.length];
    next.click();
    next.focus();
    event.preventDefault();
  }

  /** @param {StoreUpdate} update */
  #onUpdate(update) {
    const record = this.#record;
    if (!record) return;
    if (!this.app.store.get(record.id)) {
      this.handlers.onClose();
      return;
    }
    const isWaitedFor = record.task.waits.some((wait) =>
      wait.tasks?.some((id) => update.changed.has(id)),
    );
    if (!update.changed.has(record.id) && !isWaitedFor) return;
    this.#renderState();
    this.#actions?.update();
    this.#pending?.render();
    this.#tab?.update(this.#detail);
    if (update.changed.has(record.id)) this.#scheduleDetail();
  }

  /** @param {Change} change */
  #onChange(change) {
    if (change.task === this.#record?.id) this.#tab?.receive(change);
  }

  #renderState() {
    const record = this.#record;
    if (!record || !this.state) return;
    const { task } = record;
    const symbol = stateSymbol(task.state);
    this.state.className = `panel-state state-${symbol}`;
    this.state.replaceChildren();
    this.#renderStateAge();
    append(
      this.state,
      icon(`i-${symbol}`),
      el('strong', { text: describeState(task) }),
      this.#stateAge,
      el('span', { text: task.address }),
      foreignText('span', shortSession(task.session_name)),
    );
  }

  #renderStateAge() {
    const record = this.#record;
    if (!record) return;
    const since = record.stateSince;
    const age = formatDuration(Math.max(0, serverNow() - since));
    const text = Number.isNaN(since) ? '' : record.task.alive ? `for ${age}` : `${age} ago`;
    this.#stateAge.hidden = text === '';
    if (this.#stateAge.textContent !== text) this.#stateAge.textContent = text;
    const title = text === '' ? '' : `Since ${formatTime(since)}`;
    if (this.#stateAge.title !== title) this.#stateAge.title = title;
  }

  #scheduleDetail() {
    if (this.#isDetailScheduled) return;
    this.#isDetailScheduled = true;
    setTimeout(() => {
      this.#isDetailScheduled = false;
      this.#loadDetail();
    }, DETAIL_MS);
  }

  async #loadDetail() {
    const record = this.#record;
    if (!record) return;
    try {
      const detail = await this.app.api.get(`tasks/${encodeURIComponent(record.id)}`);
      if (this.#record !== record) return;
      this.#detail = detail;
      this.#tab?.update(detail);
    } catch (error) {
      // Retention has removed it. After other errors the row stays, and the next change asks again.
      if (error instanceof Problem && error.code === 'not_found') this.app.store.forget(record.id);
    }
  }
}
