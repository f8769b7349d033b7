// Pending approvals and questions as cards, answered in place. A card that was decided elsewhere stays
// where it is while the reader is at the cards, so that no click hits another card.

/** @import {Approval, Pending, Question, TaskId} from './api_types.d.ts' */
/** @import {AppContext} from './app_context.js' */
/** @import {TaskRecord} from './task_store.js' */

import { describeError } from './api.js';
import { renderCall } from './call_card.js';
import { button, el, field, icon } from './dom.js';
import { formatDuration, formatJson, shortSession } from './format.js';
import { serverNow } from './server_clock.js';
import { foreignText, scrollableText, visibleText } from './visible_text.js';

/** More cards than this would be slow and would not help. */
const MAX_CARDS = 50;

/**
 * @typedef {object} PendingItem
 * @property {string} key
 * @property {TaskRecord} record
 * @property {Approval | null} approval
 * @property {Question | null} question
 * @property {number} since
 *
 * @typedef {object} Card
 * @property {string} key
 * @property {HTMLElement} element
 * @property {HTMLElement} status
 * @property {boolean} isDecided
 * @property {boolean} isDecidable The caller may decide it, as far as is known.
 * @property {number} since
 * @property {HTMLElement} age
 */

export class PendingCards {
  /** @type {Map<string, Card>} */
  #cards = new Map();
  #isReading = false;
  /** Whole calls that a list row carries without their arguments. @type {Map<string, Approval>} */
  #whole = new Map();
  #timer = 0;

  /**
   * @param {AppContext} app
   * @param {HTMLElement} list
   * @param {() => Iterable<TaskRecord>} tasks Returns the tasks whose cards are shown.
   */
  constructor(app, list, tasks) {
    this.app = app;
    this.list = list;
    this.tasks = tasks;
    /** Runs when the reader has left the cards. */
    this.onSweep = () => {};
    list.addEventListener('pointerenter', () => this.#setReading(true));
    list.addEventListener('pointerleave', () => this.#setReading(false));
    list.addEventListener('focusin', () => this.#setReading(true));
    list.addEventListener('focusout', () => {
      setTimeout(() => this.#setReading(list.matches(':hover, :focus-within')));
    });
    this.#timer = window.setInterval(() => this.#renderAges(), 1000);
  }

  /** The number of cards, with decided ones that are still shown. */
  get size() {
    return this.#cards.size;
  }

  /** Moves the focus to the first card. */
  focusFirst() {
    const first = [...this.#cards.values()].find((card) => !card.isDecided);
    first?.element.focus();
    first?.element.scrollIntoView({ block: 'nearest' });
  }

  /** Returns the number of pending approvals and questions. */
  render() {
    const wanted = this.#wanted();
    for (const item of wanted.slice(0, MAX_CARDS)) {
      if (!this.#cards.has(item.key)) this.#add(item);
    }
    const keys = new Set(wanted.map((item) => item.key));
    for (const card of this.#cards.values()) {
      if (!keys.has(card.key) && !card.isDecided) markDecided(card, 'Decided');
    }
    this.#sweep();
    return wanted.length;
  }

  close() {
    clearInterval(this.#timer);
  }

  /** Approvals and questions, the oldest first. */
  #wanted() {
    /** @type {PendingItem[]} */
    const wanted = [];
    for (const record of this.tasks()) {
      for (const approval of record.task.approvals) {
        wanted.push({
          key: `${record.id} approval ${approval.call}`,
          record,
          approval,
          question: null,
          since: Date.parse(approval.requested_at),
        });
      }
      for (const question of record.task.questions) {
        const { state, state_since: stateSince, last_activity_at: activeAt } = record.task;
        const since = Date.parse((state === 'waiting' && stateSince) || activeAt);
        wanted.push({
          key: `${record.id} question ${question.call}`,
          record,
          approval: null,
          question,
          since,
        });
      }
    }
    return wanted.sort((a, b) => a.since - b.since);
  }

  /** @param {PendingItem} item */
  #add(item) {
    const status = el('p', { class: 'card-status', role: 'status' });
    const age = el('span', { class: 'card-age' });
    const element = el('li', { class: 'card', tabindex: '-1' });
    /** @type {Card} */
    const card = {
      key: item.key,
      element,
      status,
      isDecided: false,
      isDecidable: true,
      since: item.since,
      age,
    };
    const verb = item.approval
      ? 'asks to run'
      : item.question?.client_call
        ? 'waits for its client'
        : 'asks';
    element.append(
      el(
        'header',
        { class: 'card-head' },
        icon(item.approval ? 'i-approval' : 'i-question'),
        this.#asker(item.record),
        el('span', { class: 'card-verb', text: verb }),
        age,
      ),
    );
    if (item.approval) this.#fillApproval(card, item.record, item.approval);
    else if (item.question) this.#fillQuestion(card, item.record, item.question);
    element.append(status);
    this.#cards.set(item.key, card);
    this.list.append(element);
    this.#renderAges();
  }

  /** The task that asks, with its ancestors. @param {TaskRecord} record */
  #asker(record) {
    const path = el('span', { class: 'card-asker' });
    /** @type {TaskRecord[]} */
    const line = [];
    for (let next = /** @type {TaskRecord | null} */ (record); next; next = next.parent)
      line.unshift(next);
    path.append(foreignText('span', shortSession(record.task.session_name), 'card-session'), ' › ');
    line.forEach((step, index) => {
      if (index > 0) path.append(' › ');
      const link = button('', () => this.app.openTask(step.id), { class: 'link' });
      link.append(foreignText('span', step.task.name ?? step.task.address));
      path.append(link);
    });
    path.append(el('span', { class: 'card-address', text: ` ${record.task.address}` }));
    return path;
  }

  /**
   * @param {Card} card
   * @param {TaskRecord} record
   * @param {Approval} listed
   */
  #fillApproval(card, record, listed) {
    const body = el('div', { class: 'card-body' });
    card.element.append(body);
    const show = (/** @type {Approval} */ approval) => {
      body.replaceChildren(renderCall(approval));
      if (!this.app.canChange) return;
      if (!card.isDecidable) {
        const text = 'An operator decides this call, or the client that started the task.';
        body.append(el('p', { class: 'hint', text }));
        return;
      }
      if (approval.digest) body.append(this.#verdictForm(card, record, approval));
      else
        body.append(
          el('p', {
            class: 'hint',
            text: 'This call is too large to be shown whole. It can only be denied.',
          }),
          this.#verdictForm(card, record, approval),
        );
    };
    const known = listed.digest ? listed : this.#whole.get(card.key);
    const isClient = this.app.caller.token.scope === 'client';
    if (known && !isClient) {
      show(known);
      return;
    }
    body.append(el('p', { class: 'hint', text: 'Loading the whole call…' }));
    const whole = known ? Promise.resolve(known) : this.#loadWhole(card, record.id, listed);
    const checked = isClient ? this.#checkDecidable(card, record.id, listed) : Promise.resolve();
    Promise.all([whole, checked]).then(([approval]) => show(approval), (error) => {
      body.replaceChildren(el('p', { class: 'error', text: describeError(error) }));
    });
  }

  /**
   * @param {Card} card
   * @param {TaskId} id
   * @param {Approval} listed
   * @returns {Promise<Approval>}
   */
  async #loadWhole(card, id, listed) {
    const detail = await this.app.api.get(`tasks/${encodeURIComponent(id)}`);
    const whole = detail.approvals.find(
      (/** @type {Approval} */ approval) => approval.call === listed.call,
    );
    if (!whole) throw new Error('The call is no longer pending.');
    this.#whole.set(card.key, whole);
    return whole;
  }

  /**
   * The list of pending approvals has those that the client may decide, and no others.
   * @param {Card} card
   * @param {TaskId} id
   * @param {Approval} listed
   */
  async #checkDecidable(card, id, listed) {
    /** @type {Pending} */
    const { approvals } = await this.app.api.get('pending');
    card.isDecidable = approvals.some(
      ({ task, approval }) => task === id && approval.call === listed.call,
    );
  }

  /**
   * @param {Card} card
   * @param {TaskRecord} record
   * @param {Approval} approval
   */
  #verdictForm(card, record, approval) {
    const reason = el('input', {
      type: 'text',
      placeholder: 'Optional: the agent reads it',
      autocomplete: 'off',
    });
    const rule = el('input', {
      type: 'text',
      placeholder: 'Empty: exactly this call',
      autocomplete: 'off',
      spellcheck: 'false',
    });
    const send = (/** @type {string} */ verdict, /** @type {object} */ more) =>
      this.#send(
        card,
        verdict === 'deny' ? 'Denied' : 'Allowed',
        `tasks/${encodeURIComponent(record.id)}/approvals/${approval.call}`,
        { verdict, digest: approval.digest, ...more },
      );
    const always = el(
      'form',
      { class: 'inline-form', hidden: true },
      field(
        'Calls that are always allowed in this session',
        rule,
        `A rule such as ${visibleText(approval.rule)} allows every call that it matches.`,
      ),
      el(
        'div',
        { class: 'buttons' },
        el('button', { type: 'submit', class: 'primary', text: 'Always allow' }),
        button('Cancel', () => close()),
      ),
    );
    const deny = el(
      'form',
      { class: 'inline-form', hidden: true },
      field('Reason', reason),
      el(
        'div',
        { class: 'buttons' },
        el('button', { type: 'submit', class: 'danger', text: 'Deny' }),
        button('Cancel', () => close()),
      ),
    );
    const buttons = el('div', { class: 'buttons' });
    const close = () => {
      always.hidden = true;
      deny.hidden = true;
      buttons.hidden = false;
      /** @type {HTMLElement} */ (buttons.firstElementChild).focus();
    };
    const open = (/** @type {HTMLElement} */ form, /** @type {HTMLInputElement} */ input) => {
      buttons.hidden = true;
      form.hidden = false;
      input.focus();
      form.scrollIntoView({ block: 'nearest' });
    };
    if (approval.digest) {
      buttons.append(
        button('Allow once', () => send('allow_once', {}), { class: 'primary' }),
        button('Always allow…', () => open(always, rule)),
      );
    }
    buttons.append(button('Deny…', () => open(deny, reason)));
    always.addEventListener('submit', (event) => {
      event.preventDefault();
      send('allow_always', rule.value === '' ? {} : { rule: rule.value });
    });
    deny.addEventListener('submit', (event) => {
      event.preventDefault();
      send('deny', reason.value === '' ? {} : { reason: reason.value });
    });
    for (const form of [always, deny])
      form.addEventListener('keydown', (event) => closeOnEscape(event, close));
    return el('div', { class: 'verdict' }, buttons, always, deny);
  }

  /**
   * @param {Card} card
   * @param {TaskRecord} record
   * @param {Question} question
   */
  #fillQuestion(card, record, question) {
    card.element.append(
      el(
        'div',
        { class: 'card-body' },
        foreignText('p', question.text, 'question-text'),
        question.client_call
          ? scrollableText('pre', formatJson(question.client_call), 'long-value', 'Call')
          : null,
      ),
    );
    if (!this.app.canChange) return;
    const answer = el('textarea', { rows: '2' });
    const form = el(
      'form',
      { class: 'answer-form' },
      field('Answer', answer),
      el(
        'div',
        { class: 'buttons' },
        el('button', { type: 'submit', class: 'primary', text: 'Answer' }),
        el('span', { class: 'hint', text: 'Ctrl+Enter' }),
      ),
    );
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      this.#send(card, 'Answered', `tasks/${encodeURIComponent(record.id)}/answer`, {
        call: question.call,
        answer: answer.value,
      });
    });
    answer.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    });
    card.element.append(form);
  }

  /**
   * @param {Card} card
   * @param {string} done
   * @param {string} path
   * @param {object} body
   */
  async #send(card, done, path, body) {
    card.status.className = 'card-status';
    card.status.textContent = 'Sending…';
    setDisabled(card.element, true);
    try {
      await this.app.api.post(path, body);
      markDecided(card, done);
      card.element.focus();
    } catch (error) {
      setDisabled(card.element, false);
      card.status.className = 'card-status error';
      card.status.textContent = describeError(error);
    }
  }

  /** @param {boolean} isReading */
  #setReading(isReading) {
    this.#isReading = isReading;
    if (isReading) return;
    this.render();
    this.onSweep();
  }

  /** Removes decided cards while nobody is at the cards. */
  #sweep() {
    if (this.#isReading) return;
    for (const card of this.#cards.values()) {
      if (!card.isDecided) continue;
      card.element.remove();
      this.#cards.delete(card.key);
      this.#whole.delete(card.key);
    }
  }

  #renderAges() {
    const now = serverNow();
    for (const card of this.#cards.values()) {
      const text = card.since > 0 ? `${formatDuration(now - card.since)} ago` : '';
      if (!card.isDecided && card.age.textContent !== text) card.age.textContent = text;
    }
  }
}

/**
 * @param {Card} card
 * @param {string} text
 */
function markDecided(card, text) {
  card.isDecided = true;
  card.element.classList.add('is-decided');
  card.status.className = 'card-status';
  card.status.textContent = text;
  setDisabled(card.element, true);
}

/**
 * @param {HTMLElement} element
 * @param {boolean} isDisabled
 */
function setDisabled(element, isDisabled) {
  for (const control of element.querySelectorAll('button:not(.link), input, textarea')) {
    /** @type {HTMLButtonElement} */ (control).disabled = isDisabled;
  }
}

/**
 * @param {KeyboardEvent} event
 * @param {() => void} close
 */
function closeOnEscape(event, close) {
  if (event.key !== 'Escape') return;
  event.stopPropagation();
  close();
}
