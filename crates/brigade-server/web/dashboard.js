// The parts of the page and how they work together: list, panel, "Needs you", filters, keys, URL.

/** @import {TaskId} from './api_types.d.ts' */
/** @import {AppContext} from './app_context.js' */
/** @import {UrlState} from './url_state.js' */

import { byId, el } from './dom.js';
import { FilterBar } from './filter_bar.js';
import { GrantList } from './grant_list.js';
import { KEY_HELP, listenToKeys } from './keyboard.js';
import { NodeList } from './node_list.js';
import { Notifier } from './notifications.js';
import { PendingList } from './pending.js';
import { StartForm } from './start_form.js';
import { TaskPanel } from './task_panel.js';
import { TaskRows } from './task_rows.js';
import { countedStates } from './task_states.js';
import { PAST, UNSEEN } from './task_timeline.js';
import { TimelineLoader } from './timeline_loader.js';
import { throttle } from './throttle.js';
import { readUrlState, writeUrlState } from './url_state.js';

/** A browser redraws its tabs when a title changes. */
const TITLE_MS = 1000;

/** The looks of bars and what they mean, for the help. @type {[string, string][]} */
const LEGEND = [
  ['running', 'Running'],
  ['waiting', 'Waiting'],
  ['queued', 'Queued'],
  ['succeeded', 'Succeeded'],
  ['failed', 'Failed'],
  ['cancelled', 'Cancelled'],
  [UNSEEN, 'Not watched: open the task to see its states'],
  [PAST, 'Earlier runs, not watched'],
];

export class Dashboard {
  /** An action to perform when the task of the URL is shown. */
  #action = '';

  /** @param {AppContext} app */
  constructor(app) {
    this.app = app;
    /** @type {UrlState} */
    this.url = readUrlState();
    this.pending = new PendingList(app);
    this.start = new StartForm(app);
    this.grants = new GrantList(app);
    this.nodes = new NodeList(app);
    this.filters = new FilterBar(app.store, this.url, () => this.#onFilter());
    this.timelines = new TimelineLoader(app);
    this.rows = new TaskRows(app.store, this.filters.rowOptions, {
      onOpen: (id) => this.openTask(id, {}),
      onShow: (record) => this.timelines.wantEarlierRuns(record),
      onExpandedChange: () => writeUrlState(this.url, { isNewEntry: false }),
    });
    this.panel = new TaskPanel(app, {
      onClose: () => this.closeTask(),
      onTab: (tab) => this.#setTab(tab),
    });
    this.notifier = new Notifier(app.store, (id) => this.openTask(id, {}));
    this.rows.axis.setRange(this.url.range);
    const renderTitle = throttle(TITLE_MS, () => this.#renderTitle());
    app.store.subscribe(() => {
      this.#onStore();
      renderTitle();
    });
    this.filters.input.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter' && event.key !== 'ArrowDown') return;
      event.preventDefault();
      this.rows.focus();
    });
    window.addEventListener('popstate', () => this.#onPopState());
    byId('log-out').addEventListener('click', () => this.#logOut());
    byId('start-first').addEventListener('click', () => this.start.setOpen(true));
    byId('start-first').hidden = !app.canChange;
    this.#listenToKeys();
    this.#renderHelp();
  }

  async #logOut() {
    try {
      await this.app.api.logout();
    } catch {
      // A server that cannot be reached revokes nothing. This tab forgets the token all the same.
      this.app.api.clearToken();
    }
    location.reload();
  }

  /** All tasks are here. */
  onLoaded() {
    this.notifier.prime();
    if (this.url.task && !this.app.store.get(this.url.task)) this.closeTask();
  }

  /**
   * @param {TaskId} id
   * @param {{tab?: string, action?: string}} options
   */
  openTask(id, options) {
    const isOther = this.url.task !== id;
    this.url.task = id;
    this.url.tab = options.tab ?? this.url.tab;
    this.#action = options.action ?? '';
    writeUrlState(this.url, { isNewEntry: isOther });
    this.#showTask({ isOpenedNow: true });
  }

  closeTask() {
    if (this.url.task === '') return;
    this.url.task = '';
    this.url.tab = 'overview';
    writeUrlState(this.url, { isNewEntry: false });
    this.panel.hide();
    this.rows.select(null);
    this.rows.focus();
  }

  /** Shows the task of the URL, as soon as it is known. @param {{isOpenedNow: boolean}} options */
  #showTask(options) {
    const { task, tab } = this.url;
    if (task === '' || !this.panel.show(task, tab)) return;
    const record = this.app.store.get(task);
    if (record) this.timelines.loadStates(record);
    this.rows.select(task);
    this.rows.reveal(task, options);
    if (this.#action) this.panel.act(this.#action);
    else if (matchMedia('(max-width: 720px)').matches) this.panel.focus();
    this.#action = '';
  }

  /** @param {string} tab */
  #setTab(tab) {
    this.url.tab = tab;
    writeUrlState(this.url, { isNewEntry: false });
  }

  #onFilter() {
    writeUrlState(this.url, { isNewEntry: false });
    if (this.rows.axis.range !== this.url.range) this.rows.axis.setRange(this.url.range);
    this.rows.axis.focus = null;
    this.rows.refresh();
  }

  #onStore() {
    if (this.url.task !== '' && this.panel.shownId !== this.url.task)
      this.#showTask({ isOpenedNow: false });
  }

  #onPopState() {
    const state = readUrlState();
    Object.assign(this.url, state);
    this.filters.sync();
    this.rows.axis.setRange(state.range);
    this.rows.refresh();
    if (state.task === '') {
      this.panel.hide();
      this.rows.select(null);
    } else {
      this.#showTask({ isOpenedNow: false });
    }
  }

  /** Counts by state in the title: `2 need you · 3 running · Brigade`. */
  #renderTitle() {
    const { counts, needing } = this.app.store;
    const parts = countedStates(counts)
      .filter((state) => state !== 'succeeded' && state !== 'cancelled')
      .map((state) => `${counts.get(state)} ${state}`);
    let needs = 0;
    for (const { task } of needing.values()) needs += task.approvals.length + task.questions.length;
    if (needs > 0) parts.unshift(needs === 1 ? '1 needs you' : `${needs} need you`);
    const title = [...parts, 'Brigade'].join(' · ');
    if (document.title !== title) document.title = title;
  }

  #listenToKeys() {
    const { rows } = this;
    const onTask = (/** @type {string} */ action, /** @type {string | undefined} */ tab) => {
      const id = document.activeElement?.closest('#task-panel')
        ? this.url.task
        : (rows.activeTask?.id ?? this.url.task);
      if (id) this.openTask(id, { tab, action });
    };
    const down = () => this.#moveRow(1);
    const up = () => this.#moveRow(-1);
    listenToKeys({
      isInGrid: () =>
        document.activeElement === rows.grid || document.activeElement === document.body,
      gridKeys: {
        ArrowDown: down,
        ArrowUp: up,
        ArrowLeft: () => rows.collapseActive(),
        ArrowRight: () => rows.expandActive(),
        PageDown: () => this.#moveRow(rows.pageSize),
        PageUp: () => this.#moveRow(-rows.pageSize),
        Home: () => rows.moveToEdge('first'),
        End: () => rows.moveToEdge('last'),
        Enter: () => rows.openActive(),
      },
      keys: {
        j: down,
        k: up,
        h: () => rows.collapseActive(),
        l: () => rows.expandActive(),
        g: () => rows.moveToEdge('first'),
        G: () => rows.moveToEdge('last'),
        '/': () => this.filters.focus(),
        a: () => this.pending.focusFirst(),
        s: () => onTask('stop', undefined),
        m: () => onTask('message', 'messages'),
        f: () => this.#follow(),
        z: () => this.#fitAxis(),
        n: () => this.start.setOpen(true),
        '?': () => this.#toggleHelp(),
        Escape: () => this.#escape(),
      },
    });
  }

  /** @param {number} by */
  #moveRow(by) {
    this.rows.grid.focus({ preventScroll: true });
    this.rows.moveActive(by);
  }

  #follow() {
    if (this.url.task !== '' && this.url.tab !== 'overview' && this.url.tab !== 'limits')
      this.panel.follow();
    else this.rows.showNew();
  }

  #fitAxis() {
    const { axis, activeTask } = this.rows;
    if (axis.focus) axis.setRange(axis.range);
    else axis.focus = activeTask;
    this.rows.refresh();
  }

  #escape() {
    const help = byId('key-help');
    if (!help.hidden) this.#toggleHelp();
    else if (document.activeElement === this.filters.input) {
      if (!this.filters.clearText()) this.rows.focus();
    } else if (this.start.isOpen) this.start.setOpen(false);
    else if (this.grants.isOpen) this.grants.setOpen(false);
    else if (this.nodes.isOpen) this.nodes.setOpen(false);
    else this.closeTask();
  }

  #toggleHelp() {
    const help = byId('key-help');
    help.hidden = !help.hidden;
    byId('help-toggle').setAttribute('aria-expanded', String(!help.hidden));
  }

  #renderHelp() {
    const list = byId('key-list');
    for (const [keys, meaning] of KEY_HELP) {
      const names = el('dt');
      for (const key of keys.split('  ')) names.append(el('kbd', { text: key }));
      list.append(names, el('dd', { text: meaning }));
    }
    const legend = byId('legend');
    for (const [look, meaning] of LEGEND) {
      const sample = el('span', { class: `segment segment-${look}` });
      legend.append(
        el('dt', { class: 'legend-sample', 'aria-hidden': 'true' }, sample),
        el('dd', { text: meaning }),
      );
    }
    byId('help-toggle').addEventListener('click', () => this.#toggleHelp());
  }
}
