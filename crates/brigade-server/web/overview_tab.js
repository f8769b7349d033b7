// The overview of a task: why it ended or waits, its facts, result, runs and crashes.

/** @import {TaskDetail, Wait, Worktree} from './api_types.d.ts' */

import { AnsiWriter } from './ansi.js';
import { nameOf } from './app_context.js';
import { append, button, el, icon } from './dom.js';
import {
  formatCount,
  formatDuration,
  formatJson,
  formatName,
  formatNumber,
  formatTime,
  formatUsage,
} from './format.js';
import { PanelTab } from './panel_tab.js';
import { stateSymbol } from './task_states.js';
import { foreignText, scrollableText } from './visible_text.js';

const RESULT_LABELS = { result: 'Result', partial: 'Partial result', progress: 'Progress' };

export class OverviewTab extends PanelTab {
  #shown = '';

  /** @override @param {TaskDetail | null} detail */
  update(detail) {
    const task = { ...detail, ...this.record.task };
    if (detail) task.description = detail.description;
    const shown = JSON.stringify([task, detail?.outcome, detail?.result]);
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.element.classList.add('overview');
    this.element.replaceChildren();
    append(
      this.element,
      this.#ending(detail),
      this.#waits(),
      section('Task', scrollableText('pre', task.description, 'prose', 'Task')),
      this.#value('result', task.alive ? undefined : detail?.result),
      this.#value('partial', task.alive ? undefined : detail?.partial),
      this.#value('progress', task.progress),
      this.#facts(detail),
      this.#attempts(detail),
    );
  }

  /** Why the task ended, is queued or is retrying. @param {TaskDetail | null} detail */
  #ending(detail) {
    const { task } = this.record;
    const outcome = task.alive ? undefined : detail?.outcome;
    const text = outcome?.text ?? task.reason;
    if (!text && task.alive) return null;
    const title = task.alive ? `Why it is ${task.state}` : 'Why it ended';
    const facts = el('p', { class: 'ending-facts' });
    const parts = [];
    if (outcome?.code)
      parts.push(
        outcome.type === 'cancelled' ? `by ${formatName(outcome.code)}` : formatName(outcome.code),
      );
    if (task.exit_code !== undefined && outcome?.code !== 'exit_code')
      parts.push(`exit code ${task.exit_code}`);
    if (task.signal !== undefined) parts.push(`signal ${task.signal}`);
    if (!task.alive) parts.push(task.collected ? 'result collected' : 'result not collected yet');
    facts.textContent = parts.join(' · ');
    return el(
      'section',
      { class: `ending ending-${task.alive ? 'alive' : task.state}` },
      el('h3', { text: title }),
      scrollableText('pre', text ?? task.state, 'prose ending-text', title),
      facts,
    );
  }

  /** What the task waits for. */
  #waits() {
    const { waits } = this.record.task;
    if (waits.length === 0) return null;
    const list = el('ul', { class: 'waits' });
    for (const wait of waits) list.append(el('li', {}, ...this.#wait(wait)));
    return section('Waits for', list);
  }

  /** @param {Wait} wait */
  #wait(wait) {
    /** @type {(Node | string)[]} */
    const parts = [];
    if ((wait.type === 'tasks' || wait.type === 'readiness') && wait.tasks) {
      const count = wait.tasks.length;
      parts.push(
        count > 1
          ? `${wait.mode === 'any' ? 'Any' : 'All'} of ${formatCount(count, 'task')}`
          : 'A task',
      );
      if (wait.type === 'readiness') parts.push(' to be ready');
      parts.push(el('ul', {}, ...wait.tasks.map((id) => this.#waitedTask(id))));
    } else {
      parts.push(`${/^[aeiou]/.test(wait.type) ? 'An' : 'A'} ${formatName(wait.type)}`);
      const text = this.#pendingText(wait);
      if (text) parts.push(': ', foreignText('span', text));
    }
    if (wait.name) parts.push(' ', foreignText('span', wait.name));
    if (wait.until) parts.push(` until ${formatTime(wait.until)}`);
    return parts;
  }

  /** Returns the text of the approval or question that is waited for. @param {Wait} wait */
  #pendingText(wait) {
    const { approvals, questions } = this.record.task;
    return [...approvals, ...questions].find((pending) => pending.call === wait.call)?.text;
  }

  /** @param {string} id */
  #waitedTask(id) {
    const state = this.app.store.get(id)?.task.state ?? 'unknown';
    const symbol = stateSymbol(state);
    const link = button(nameOf(this.app, id), () => this.app.openTask(id), { class: 'link' });
    return el(
      'li',
      { class: `waited-task state-${symbol}` },
      icon(`i-${symbol}`),
      link,
      el('span', { class: 'waited-state', text: state }),
    );
  }

  /**
   * @param {'result' | 'partial' | 'progress'} name
   * @param {unknown} value
   */
  #value(name, value) {
    if (value === undefined || value === null) return null;
    const isProcess = this.record.task.kind === 'process';
    const label = isProcess && name === 'partial' ? RESULT_LABELS.result : RESULT_LABELS[name];
    if (isProcess && typeof value === 'object' && !Array.isArray(value)) {
      const { tail, ...fields } = /** @type {{tail?: unknown}} */ (value);
      const output = typeof tail === 'string' && tail !== '' ? renderOutput(tail) : null;
      return section(label, renderFields(formatFields(fields)), output);
    }
    const isPlain = typeof value === 'object' && !Array.isArray(value) && !hasNested(value);
    if (isPlain) return section(label, renderFields(formatFields(value)));
    return section(label, scrollableText('pre', formatJson(value), 'long-value', label));
  }

  /** @param {TaskDetail | null} detail */
  #facts(detail) {
    const { task, parent } = this.record;
    const facts = el('dl', { class: 'facts' });
    const add = (
      /** @type {string} */ name,
      /** @type {string | Node | undefined | null} */ value,
    ) => {
      if (value === undefined || value === null || value === '') return;
      facts.append(
        el('dt', { text: name }),
        el('dd', {}, typeof value === 'string' ? foreignText('span', value) : value),
      );
    };
    add('Address', `${task.session_name}/${task.address}`);
    add(
      'Parent',
      parent
        ? button(nameOf(this.app, parent.id), () => this.app.openTask(parent.id), { class: 'link' })
        : null,
    );
    const children = this.record.children.length;
    add(
      'Children',
      children > 0
        ? `${children}, with ${formatCount(this.app.store.countAliveDescendants(this.record), 'alive descendant')}`
        : null,
    );
    add('Client', task.client);
    add('Spawned', formatTime(task.spawned_at));
    if (task.started_at && task.started_at !== task.spawned_at)
      add(task.run > 1 ? `Run ${task.run} started` : 'Started', formatTime(task.started_at));
    if (task.alive && task.state_since)
      add(`${capitalize(task.state)} since`, formatTime(task.state_since));
    if (!task.alive && task.ended_at) add('Ended', formatTime(task.ended_at));
    const end = task.alive ? Date.parse(task.last_activity_at) : this.record.endedAt;
    add(
      task.alive ? 'Last activity' : 'Took',
      task.alive ? formatTime(end) : formatDuration(end - Date.parse(task.started_at ?? task.spawned_at)),
    );
    add('Directory', detail?.cwd);
    add('Worktree', detail?.worktree && describeWorktree(detail.worktree));
    add('Definition', detail?.definition);
    add('Model', detail?.model);
    add('Cost, own', formatUsage(task.own_usage));
    add('Cost, subtree', formatUsage(task.usage));
    return section('Facts', facts);
  }

  /** @param {TaskDetail | null} detail */
  #attempts(detail) {
    const { task } = this.record;
    const list = el('ul', { class: 'attempts' });
    const crashes = task.crashes === 1 ? '1 crash' : `${task.crashes} crashes`;
    const sinceProgress = task.crashes > 0 ? `, ${crashes} since the last progress` : '';
    list.append(el('li', { text: `Run ${task.run}, attempt ${task.attempt}${sinceProgress}` }));
    for (const retry of detail?.retries ?? []) {
      list.append(
        el(
          'li',
          {},
          `Attempt ${retry.attempt} of `,
          foreignText('span', retry.call),
          ' failed: ',
          foreignText('span', retry.error),
          ` Retries at ${formatTime(retry.retry_at)}.`,
        ),
      );
    }
    for (const run of detail?.earlier_runs ?? []) {
      list.append(
        el(
          'li',
          {},
          `Run ${run.run} ${run.outcome.type} at ${formatTime(run.ended_at)}: `,
          foreignText('span', run.outcome.text),
        ),
      );
    }
    return section('Runs and attempts', list);
  }
}

/**
 * @param {Worktree} worktree
 * @returns {string}
 */
function describeWorktree({ path, branch, kept }) {
  if (kept === false) return `Removed, without work on ${branch}`;
  return kept ? `${path}, branch ${branch}, kept` : `${path}, branch ${branch}`;
}

/** @param {string} text */
function capitalize(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/**
 * @param {string} title
 * @param {...(Node | null)} children
 */
function section(title, ...children) {
  return el('section', {}, el('h3', { text: title }), ...children);
}

/** @param {object} value */
function hasNested(value) {
  return Object.values(value).some((field) => typeof field === 'object' && field !== null);
}

/** @param {object} value @returns {[string, string][]} */
function formatFields(value) {
  /** @type {[string, string][]} */
  const fields = Object.entries(value).map(([name, field]) => [name, formatField(name, field)]);
  return fields.filter(([, text]) => text !== '');
}

/** Shows the end of a process's output as the tab of the output does. @param {string} text */
function renderOutput(text) {
  const lines = el('div', { class: 'output result-output' });
  lines.tabIndex = 0;
  lines.setAttribute('role', 'group');
  lines.setAttribute('aria-label', 'The end of the output');
  new AnsiWriter(lines).write(text);
  return lines;
}

/** @param {[string, string][]} fields */
function renderFields(fields) {
  const list = el('dl', { class: 'facts' });
  for (const [name, text] of fields)
    list.append(
      foreignText('dt', formatName(name.replace(/_ms$/, ''))),
      el('dd', {}, foreignText('span', text)),
    );
  return list;
}

/**
 * @param {string} name
 * @param {unknown} value
 */
function formatField(name, value) {
  if (typeof value === 'object' && value !== null) return JSON.stringify(value);
  if (typeof value !== 'number' || name === 'exit_code') return String(value);
  return name.endsWith('_ms') ? formatDuration(value) : formatNumber(value);
}
