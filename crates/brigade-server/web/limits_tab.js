// The limits of a task with what remains, its cost, and the sandbox and permissions in force.

/** @import {Json, LimitHolder, Limits, TaskDetail, TaskLimits} from './api_types.d.ts' */
/** @import {AppContext} from './app_context.js' */
/** @import {TaskRecord} from './task_store.js' */

import { append, el } from './dom.js';
import { formatDuration, formatJson, formatMoney, formatName, formatNumber, formatUsage } from './format.js';
import { PanelTab } from './panel_tab.js';
import { foreignText } from './visible_text.js';

const RELOAD_MS = 5000;

export class LimitsTab extends PanelTab {
  #shown = '';
  /** @type {TaskDetail | null} */
  #detail = null;
  /** @type {LimitHolder[] | null} */
  #holders = null;

  /**
   * @param {AppContext} app
   * @param {TaskRecord} record
   */
  constructor(app, record) {
    super(app, record);
    this.element.classList.add('overview');
    this.#load();
    const timer = setInterval(() => {
      if (record.task.alive && !document.hidden) this.#load();
    }, RELOAD_MS);
    this.abort.signal.addEventListener('abort', () => clearInterval(timer));
  }

  /** @override @param {TaskDetail | null} detail */
  update(detail) {
    this.#detail = detail;
    this.#render();
  }

  async #load() {
    try {
      /** @type {TaskLimits} */
      const answer = await this.app.api.get(`${this.path}/limits`, { signal: this.abort.signal });
      this.#holders = answer.holders ?? null;
      this.#render();
    } catch (error) {
      this.showError(error);
    }
  }

  #render() {
    const { task } = this.record;
    const holders = this.#holders ?? holdersOf(this.#detail);
    const shown = JSON.stringify([holders, task.usage, task.own_usage, this.#detail?.sandbox, this.#detail?.permissions]);
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.element.replaceChildren(
      el('section', {}, el('h3', { text: 'Cost' }), el('dl', { class: 'facts' }, el('dt', { text: 'Own' }), el('dd', { text: formatUsage(task.own_usage) }), el('dt', { text: 'With descendants' }), el('dd', { text: formatUsage(task.usage) }))),
    );
    for (const holder of holders) append(this.element, renderHolder(holder));
    if (holders.length === 0) append(this.element, el('section', {}, el('h3', { text: 'Limits' }), el('p', { class: 'hint', text: 'No limits apply.' })));
    append(this.element, this.#sandbox(), this.#permissions());
  }

  #sandbox() {
    const detail = this.#detail;
    if (!detail) return null;
    const parts = detail.sandbox_parts ?? [];
    const force = parts.length > 0 ? `In force: ${parts.map(formatName).join(', ')}` : detail.sandbox ? 'No part is in force yet.' : 'None: it can do what the daemon’s user can.';
    return el('section', {}, el('h3', { text: 'Sandbox' }), el('p', { text: force }), detail.sandbox ? longValue(formatJson(detail.sandbox), 'Sandbox') : null);
  }

  #permissions() {
    const permissions = this.#detail?.permissions;
    if (!permissions) return null;
    const list = el('dl', { class: 'facts' });
    for (const effect of /** @type {const} */ (['deny', 'ask', 'allow'])) {
      const rules = permissions[effect] ?? [];
      if (rules.length === 0) continue;
      const values = el('dd', {});
      for (const rule of rules) values.append(foreignText('code', rule, 'rule'));
      list.append(el('dt', { text: effect }), values);
    }
    return el('section', {}, el('h3', { text: 'Permissions' }), list);
  }
}

/** The limits that the detail form carries, for a server without what remains. @param {TaskDetail | null} detail */
function holdersOf(detail) {
  /** @type {LimitHolder[]} */
  const holders = [];
  if (detail?.limits) holders.push({ holder: detail.id, address: detail.address, limits: detail.limits });
  for (const inherited of detail?.inherited_limits ?? []) holders.push({ address: inherited.holder, limits: inherited.limits });
  return holders;
}

/** @param {LimitHolder} holder */
function renderHolder(holder) {
  const title = holder.address ? `Limits of ${holder.address} and its descendants` : 'Limits of the session';
  const table = el('table', { class: 'limits' }, el('thead', {}, el('tr', {}, el('th', { text: 'Limit', scope: 'col' }), el('th', { text: 'Used', scope: 'col' }), el('th', { text: 'Of', scope: 'col' }), el('th', { text: 'Remains', scope: 'col' }))));
  const body = el('tbody');
  for (const [name, limit] of Object.entries(holder.limits)) {
    if (limit === null || limit === undefined) continue;
    body.append(el('tr', {}, el('th', { scope: 'row', text: formatName(name.replace(/_ms$/, '')) }), el('td', {}, meter(name, holder.used, limit), formatLimit(name, holder.used?.[name])), el('td', { text: formatLimit(name, limit) }), el('td', { text: formatLimit(name, holder.remaining?.[name]) })));
  }
  if (body.childElementCount === 0) return null;
  table.append(body);
  return el('section', {}, el('h3', { text: title }), table);
}

/**
 * @param {string} name
 * @param {Limits | undefined} used
 * @param {Json} limit
 */
function meter(name, used, limit) {
  const value = Number(used?.[name]);
  const most = Number(limit);
  if (!(value >= 0) || !(most > 0)) return null;
  const bar = el('meter', { min: '0', max: String(most), high: String(most * 0.8), optimum: '0', 'aria-label': `${formatName(name)} used` });
  bar.value = value;
  return bar;
}

/**
 * @param {string} name
 * @param {Json} value
 */
function formatLimit(name, value) {
  if (value === undefined || value === null) return '–';
  if (name === 'money') return formatMoney(String(value));
  if (name.endsWith('_ms') && typeof value === 'number') return formatDuration(value);
  return typeof value === 'number' ? formatNumber(value) : formatJson(value);
}

/**
 * @param {string} text
 * @param {string} label
 */
function longValue(text, label) {
  const box = foreignText('pre', text, 'long-value');
  box.tabIndex = 0;
  box.setAttribute('role', 'group');
  box.setAttribute('aria-label', label);
  return box;
}
