// The actions of a task: stop, resume, message. A destructive action asks once, in place, and says how
// many tasks it ends.

/** @import {AppContext} from './app_context.js' */
/** @import {TaskRecord} from './task_store.js' */

import { describeError } from './api.js';
import { button, el, field } from './dom.js';
import { formatCount } from './format.js';

/**
 * @typedef {object} ActionQuestion
 * @property {string} question
 * @property {HTMLElement[]} fields
 * @property {HTMLButtonElement} submit
 * @property {string[]} states The kinds of state in which the note about the action is true.
 */

export class TaskActions {
  #shown = '';
  /** The kinds of state in which the note is true. @type {string[]} */
  #noteStates = [];

  /**
   * @param {AppContext} app
   * @param {TaskRecord} record
   */
  constructor(app, record) {
    this.app = app;
    this.record = record;
    this.bar = el('div', { class: 'buttons' });
    this.strip = el('div', { class: 'action-strip', hidden: true });
    this.status = el('p', { class: 'form-status', role: 'status', hidden: true });
    this.element = el('div', { class: 'task-actions' }, this.bar, this.strip, this.status);
    this.update();
  }

  /** Shows the actions that the task's state allows. */
  update() {
    const { task } = this.record;
    const shown = this.app.canChange ? this.#stateKind : 'none';
    if (!this.#noteStates.includes(this.#stateKind)) this.status.hidden = true;
    const key = `${shown} ${task.takes_messages}`;
    if (key === this.#shown) return;
    if (!this.#shown.startsWith(`${shown} `)) this.#closeStrip();
    this.#shown = key;
    this.bar.replaceChildren();
    if (shown === 'none') return;
    if (shown === 'alive')
      this.bar.append(button('Stop…', () => this.askStop(), { class: 'danger-quiet' }));
    if (shown === 'stopping')
      this.bar.append(button('Stop at once…', () => this.askStop(), { class: 'danger-quiet' }));
    if (shown === 'ended') this.bar.append(button('Resume…', () => this.askResume()));
    if (!task.takes_messages) return;
    this.bar.append(
      button('Message', () =>
        this.app.openTask(this.record.id, { tab: 'messages', action: 'message' }),
      ),
    );
  }

  get #stateKind() {
    const { task } = this.record;
    if (!task.alive) return 'ended';
    return task.state === 'stopping' ? 'stopping' : 'alive';
  }

  /** Asks whether to stop the task and its descendants. */
  askStop() {
    if (!this.app.canChange || !this.record.task.alive) return;
    const descendants = this.app.store.countAliveDescendants(this.record);
    const isForced = this.record.task.state === 'stopping';
    const reason = el('input', { type: 'text', autocomplete: 'off', placeholder: 'Optional' });
    const subject =
      descendants > 0
        ? `${this.record.label} and its ${formatCount(descendants, 'alive descendant')}`
        : this.record.label;
    const question = isForced
      ? `Kill ${subject} now, without the grace period?`
      : `Stop ${subject}?`;
    const submit = el('button', {
      type: 'submit',
      class: 'danger',
      text: descendants > 0 ? `Stop ${formatCount(descendants + 1, 'task')}` : 'Stop the task',
    });
    const states = ['alive', 'stopping'];
    this.#openStrip({ question, fields: [field('Reason', reason)], submit, states }, async () => {
      const body = {
        ...(reason.value ? { reason: reason.value } : {}),
        ...(isForced ? { grace_ms: 0 } : {}),
      };
      const answer = await this.#post('stop', body);
      return answer.already && !isForced
        ? 'It was stopping before, or has ended.'
        : `Stopping ${formatCount(answer.task_count ?? descendants + 1, 'task')}.`;
    });
    submit.focus();
  }

  /** Asks for the limits of the next run. */
  askResume() {
    if (!this.app.canChange || this.record.task.alive) return;
    const money = el('input', {
      type: 'text',
      inputmode: 'decimal',
      placeholder: 'As before',
      pattern: '[0-9]*\\.?[0-9]*',
    });
    const tokens = el('input', { type: 'number', min: '1', placeholder: 'As before' });
    const submit = el('button', { type: 'submit', class: 'primary', text: 'Resume' });
    const question = `Start run ${this.record.task.run + 1} of ${this.record.label}?`;
    // A process uses no model.
    const isProcess = this.record.task.kind === 'process';
    const fields = isProcess ? [] : [field('Budget in dollars', money), field('Tokens', tokens)];
    this.#openStrip({ question, fields, submit, states: ['ended'] }, async () => {
      /** @type {{money?: string, tokens?: number}} */
      const limits = {};
      if (money.value) limits.money = money.value;
      if (tokens.value) limits.tokens = Number(tokens.value);
      await this.#post('resume', Object.keys(limits).length > 0 ? { limits } : {});
      return 'Resumed.';
    });
    submit.focus();
  }

  /**
   * @param {string} action
   * @param {object} body
   */
  #post(action, body) {
    return this.app.api.post(`tasks/${encodeURIComponent(this.record.id)}/${action}`, body);
  }

  /**
   * @param {ActionQuestion} asked
   * @param {() => Promise<string>} perform Returns a text for the reader.
   */
  #openStrip({ question, fields, submit, states }, perform) {
    const form = el(
      'form',
      { class: 'inline-form' },
      el('p', { class: 'question', text: question }),
      fields.length > 0 ? el('div', { class: 'field-row' }, ...fields) : null,
      el(
        'div',
        { class: 'buttons' },
        submit,
        button('Cancel', () => this.#cancel()),
      ),
    );
    form.addEventListener('submit', async (event) => {
      event.preventDefault();
      submit.disabled = true;
      try {
        this.#say(await perform(), { states, isError: false });
        this.#closeStrip();
      } catch (error) {
        submit.disabled = false;
        this.#say(describeError(error), { states: [this.#stateKind], isError: true });
      }
    });
    form.addEventListener('keydown', (event) => {
      if (event.key !== 'Escape') return;
      event.stopPropagation();
      this.#cancel();
    });
    this.status.hidden = true;
    this.strip.replaceChildren(form);
    this.strip.hidden = false;
  }

  #cancel() {
    this.#closeStrip();
    /** @type {HTMLElement | null} */ (this.bar.firstElementChild)?.focus();
  }

  #closeStrip() {
    this.strip.hidden = true;
    this.strip.replaceChildren();
  }

  /**
   * Shows a note until the state of the task makes it untrue.
   * @param {string} text
   * @param {{states: string[], isError: boolean}} options
   */
  #say(text, { states, isError }) {
    this.#noteStates = states;
    this.status.hidden = !states.includes(this.#stateKind);
    this.status.className = isError ? 'form-status error' : 'form-status';
    this.status.textContent = text;
  }
}
