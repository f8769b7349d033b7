// The limits of a task with what remains, its cost, and the sandbox and permissions in force.

/** @import {Limits, Remaining, Sandbox, TaskDetail, TaskLimits} from './api_types.d.ts' */
/** @import {AppContext} from './app_context.js' */
/** @import {TaskRecord} from './task_store.js' */

import { nameOf } from './app_context.js';
import { append, el } from './dom.js';
import {
  formatCount,
  formatDuration,
  formatJson,
  formatMoney,
  formatName,
  formatNumber,
  formatUsage,
} from './format.js';
import { PanelTab } from './panel_tab.js';
import { foreignText } from './visible_text.js';

const RELOAD_MS = 5000;

export class LimitsTab extends PanelTab {
  #shown = '';
  /** @type {TaskDetail | null} */
  #detail = null;
  /** @type {TaskLimits | null} */
  #limits = null;

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
      this.#limits = await this.app.api.get(`${this.path}/limits`, { signal: this.abort.signal });
      this.#render();
    } catch (error) {
      this.showError(error);
    }
  }

  #render() {
    const { task } = this.record;
    const detail = this.#detail;
    const shown = JSON.stringify([
      this.#limits,
      task.usage,
      task.own_usage,
      detail?.sandbox,
      detail?.sandbox_parts,
      detail?.permissions,
    ]);
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.element.replaceChildren();
    append(this.element, this.#cost(), ...this.#holders(), this.#sandbox(), this.#permissions());
  }

  #cost() {
    const { task } = this.record;
    const facts = el('dl', { class: 'facts' });
    facts.append(el('dt', { text: 'Own' }), el('dd', { text: formatUsage(task.own_usage) }));
    facts.append(
      el('dt', { text: 'With descendants' }),
      el('dd', { text: formatUsage(task.usage) }),
    );
    return el('section', {}, el('h3', { text: 'Cost' }), facts);
  }

  /** The limits of the task, of its ancestors and of the session. */
  #holders() {
    const limits = this.#limits;
    if (!limits) return [];
    const tables = [
      renderHolder('Limits of this task and its descendants', limits.limits, limits.remaining),
    ];
    for (const { holder, limits: inherited, remaining } of limits.inherited) {
      const title = holder ? `Limits of ${nameOf(this.app, holder)}` : 'Limits of the session';
      tables.push(renderHolder(title, inherited, remaining));
    }
    if (tables.some((table) => table !== null)) return tables;
    return [
      el(
        'section',
        {},
        el('h3', { text: 'Limits' }),
        el('p', { class: 'hint', text: 'No limits apply.' }),
      ),
    ];
  }

  #sandbox() {
    const detail = this.#detail;
    if (!detail) return null;
    const parts = detail.sandbox_parts.map(formatName).join(', ');
    const force =
      parts !== ''
        ? `In force: ${parts}.`
        : detail.sandbox
          ? 'For its processes.'
          : 'None: its processes can do what the server’s user can.';
    const list = el('ul', { class: 'sandbox-layers' });
    for (const layer of detail.sandbox?.layers ?? []) list.append(renderLayer(layer));
    return el('section', {}, el('h3', { text: 'Sandbox' }), el('p', { text: force }), list);
  }

  #permissions() {
    const sources = this.#detail?.permissions ?? [];
    if (sources.length === 0) return null;
    const section = el('section', {}, el('h3', { text: 'Permissions' }));
    if (sources.length > 1)
      section.append(el('p', { class: 'hint', text: 'A call must be allowed by every source.' }));
    for (const { by, rules } of sources) {
      const list = el('dl', { class: 'facts permission-source' });
      list.append(el('dt', { text: 'source' }), el('dd', {}, foreignText('span', by)));
      for (const effect of /** @type {const} */ (['deny', 'ask', 'allow'])) {
        const listed = rules[effect] ?? (effect === 'allow' ? ['everything else'] : []);
        if (listed.length === 0) continue;
        const values = el('dd');
        for (const rule of listed)
          values.append(foreignText(rules[effect] ? 'code' : 'span', rule, 'rule'));
        list.append(el('dt', { text: effect }), values);
      }
      section.append(list);
    }
    return section;
  }
}

/** @param {Sandbox} layer */
function renderLayer(layer) {
  const item = el('li');
  const facts = el('dl', { class: 'facts' });
  for (const access of /** @type {const} */ (['write', 'read'])) {
    const paths = layer[access] ?? [];
    if (paths.length === 0) continue;
    const values = el('dd');
    for (const path of paths) values.append(foreignText('code', path, 'rule'));
    facts.append(el('dt', { text: access }), values);
  }
  const network = layer.deny_network ? 'denied' : layer.deny_tcp ? 'no TCP' : 'allowed';
  facts.append(el('dt', { text: 'network' }), el('dd', { text: network }));
  item.append(facts);
  return item;
}

/**
 * Returns a table of limits, or nothing if there are none.
 * @param {string} title
 * @param {Limits} limits
 * @param {Remaining} remainingLimits
 */
function renderHolder(title, limits, remainingLimits) {
  const remaining = new Map(Object.entries(remainingLimits));
  const head = el('tr');
  for (const name of ['Limit', 'Used', 'Of', 'Remains'])
    head.append(el('th', { text: name, scope: 'col' }));
  const body = el('tbody');
  for (const [name, limit] of Object.entries(limits)) {
    if (limit === null || limit === undefined) continue;
    const used = usedPart(limit, remaining.get(name));
    const row = el(
      'tr',
      {},
      el('th', { scope: 'row', text: formatName(name.replace(/_ms$/, '')) }),
    );
    row.append(el('td', {}, meter(name, used, limit), formatLimit(name, used)));
    row.append(
      el('td', { text: formatLimit(name, limit) }),
      el('td', { text: formatLimit(name, remaining.get(name)) }),
    );
    body.append(row);
  }
  if (body.childElementCount === 0) return null;
  return el(
    'section',
    {},
    el('h3', { text: title }),
    el('table', { class: 'limits' }, el('thead', {}, head), body),
  );
}

/**
 * @param {unknown} limit
 * @param {unknown} remaining
 */
function usedPart(limit, remaining) {
  if (remaining === undefined || remaining === null) return undefined;
  const used = Number(limit) - Number(remaining);
  return Number.isFinite(used) ? used : undefined;
}

/**
 * @param {string} name
 * @param {number | undefined} used
 * @param {unknown} limit
 */
function meter(name, used, limit) {
  const most = Number(limit);
  if (used === undefined || !(most > 0)) return null;
  const bar = el('meter', {
    min: '0',
    max: String(most),
    high: String(most * 0.8),
    optimum: '0',
    'aria-label': `${formatName(name)} used`,
  });
  bar.value = used;
  return bar;
}

/**
 * @param {string} name
 * @param {unknown} value
 */
function formatLimit(name, value) {
  if (value === undefined || value === null) return '–';
  if (name === 'money') return formatMoney(String(value));
  if (name.endsWith('_ms') && typeof value === 'number') return formatDuration(value);
  if (name === 'stall' && typeof value === 'object') return formatStall(value);
  return typeof value === 'number' ? formatNumber(value) : formatJson(value);
}

/** @param {{after_ms?: number, nudges?: number, then_stop?: boolean}} stall */
function formatStall(stall) {
  if (!stall.after_ms) return 'any silence';
  const nudges = stall.nudges ? `, ${formatCount(stall.nudges, 'reminder')}` : '';
  return `silent for ${formatDuration(stall.after_ms)}${nudges}${stall.then_stop ? ', then stop' : ''}`;
}
