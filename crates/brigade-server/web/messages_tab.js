// Messages to and from a task, each with its receipt, and a form that sends one.

/** @import {Author, Change, ChangeList, Message, Task} from './api_types.d.ts' */
/** @import {AppContext} from './app_context.js' */
/** @import {TaskRecord} from './task_store.js' */

import { describeError, newKey } from './api.js';
import { nameOf } from './app_context.js';
import { el, field } from './dom.js';
import { formatAuthor, formatJson, formatName, formatTime } from './format.js';
import { PanelTab } from './panel_tab.js';
import { TailScroller } from './tail_scroller.js';
import { foreignText } from './visible_text.js';

const RELOAD_MS = 150;
const PAGE_EVENTS = 1000;
/** Beyond that, a message has the kind of its sender instead of the name. */
const MAX_EVENT_PAGES = 20;

export class MessagesTab extends PanelTab {
  /** @type {Map<number, {message: Message, role: HTMLElement, receipt: HTMLElement}>} */
  #shown = new Map();
  /** The senders of messages by number, as far as events name them. @type {Map<number, Author>} */
  #authors = new Map();
  #isStale = false;
  /** A repeated press sends the same message, not a second one. */
  #key = newKey();

  /**
   * @param {AppContext} app
   * @param {TaskRecord} record
   */
  constructor(app, record) {
    super(app, record);
    this.scroller = new TailScroller('Messages');
    this.list = el('ol', { class: 'messages' });
    this.scroller.list.append(this.list);
    this.element.classList.add('tab-fill');
    this.element.append(this.scroller.element);
    this.input = el('textarea', { rows: '2' });
    this.status = el('p', { class: 'form-status', role: 'status' });
    this.submit = el('button', { type: 'submit', class: 'primary', text: 'Send' });
    this.form = this.#form();
    this.refusal = el('p', { class: 'hint composer-refusal', hidden: true });
    if (app.canChange) this.element.append(this.form, this.refusal);
    this.#load();
  }

  /** @override */
  update() {
    const { task } = this.record;
    const label = task.alive ? 'Send' : `Send and start run ${task.run + 1}`;
    if (this.submit.textContent !== label) this.submit.textContent = label;
    this.form.hidden = !task.takes_messages;
    this.refusal.hidden = task.takes_messages;
    this.refusal.textContent = describeRefusal(task);
  }

  /** @override @param {Change} change */
  receive(change) {
    this.#noteAuthor(change);
    if (!change.type.includes('message') && !change.type.includes('dead_letter')) return;
    if (this.#isStale) return;
    this.#isStale = true;
    setTimeout(() => {
      this.#isStale = false;
      if (!this.abort.signal.aborted) this.#load();
    }, RELOAD_MS);
  }

  /** @override */
  follow() {
    this.scroller.follow();
  }

  focusInput() {
    this.input.focus();
  }

  async #load() {
    try {
      const answer = await this.app.api.get(`${this.path}/messages?limit=500`, {
        signal: this.abort.signal,
      });
      const isFirst = this.#shown.size === 0 && answer.items.length > 0;
      this.#show(answer.items);
      if (isFirst) await this.#loadAuthors(answer.items);
    } catch (error) {
      this.showError(error);
    }
  }

  /**
   * Names the senders of these messages. Their events are read from the oldest on.
   * @param {Message[]} messages
   */
  async #loadAuthors(messages) {
    const last = Math.max(...messages.map((message) => message.number));
    let after = '';
    for (let count = 0; count < MAX_EVENT_PAGES; count += 1) {
      const query = new URLSearchParams({ types: 'message_sent', limit: String(PAGE_EVENTS) });
      if (after !== '') query.set('after', after);
      /** @type {ChangeList} */
      const page = await this.app.api.get(`${this.path}/events?${query}`, {
        signal: this.abort.signal,
      });
      for (const change of page.items) this.#noteAuthor(change);
      for (const { role, message } of this.#shown.values()) this.#renderRole(role, message);
      const isComplete = page.items.some((change) => Number(change.data.message) >= last);
      if (isComplete || !page.has_more) return;
      after = page.cursor;
    }
  }

  /** @param {Change} change */
  #noteAuthor(change) {
    const number = change.data.message;
    if (change.type === 'message_sent' && change.by && typeof number === 'number') {
      this.#authors.set(number, change.by);
    }
  }

  /** @param {Message[]} messages */
  #show(messages) {
    if (messages.length === 0 && this.#shown.size === 0) {
      this.list.replaceChildren(el('li', { class: 'hint', text: 'No messages.' }));
      return;
    }
    if (this.#shown.size === 0) this.list.replaceChildren();
    let added = 0;
    for (const message of messages) {
      const known = this.#shown.get(message.number);
      if (known) {
        known.message = message;
        renderReceipt(known.receipt, message);
        this.#renderRole(known.role, message);
        continue;
      }
      const receipt = el('span', { class: 'receipt' });
      renderReceipt(receipt, message);
      const role = el('span', { class: 'entry-role' });
      this.#renderRole(role, message);
      const element = el(
        'li',
        { class: this.#isSent(message) ? 'message is-sent' : 'message' },
        el(
          'div',
          { class: 'entry-head' },
          role,
          el('time', { text: formatTime(message.sent_at) }),
          receipt,
        ),
        foreignText('div', formatJson(message.body), 'prose'),
      );
      this.#shown.set(message.number, { message, role, receipt });
      this.list.append(element);
      added += 1;
    }
    this.scroller.grow(added);
  }

  /** @param {Message} message */
  #isSent(message) {
    return message.from.task === this.record.id;
  }

  /**
   * Names the other side. The event that names a person may arrive after the message.
   * @param {HTMLElement} role
   * @param {Message} message
   */
  #renderRole(role, message) {
    const isSent = this.#isSent(message);
    const other = isSent ? message.to : message.from.task;
    const author = this.#authors.get(message.number);
    const person = isSent ? 'the session' : author ? formatAuthor(author) : message.from.type;
    const name = other ? nameOf(this.app, other) : person;
    role.replaceChildren(isSent ? 'to ' : 'from ', foreignText('span', name));
  }

  #form() {
    const isProcess = this.record.task.kind === 'process';
    const form = el(
      'form',
      { class: 'composer' },
      field(
        isProcess ? 'Send a line to its standard input' : `Message to ${this.record.label}`,
        this.input,
      ),
      el(
        'div',
        { class: 'buttons' },
        this.submit,
        el('span', { class: 'hint', text: 'Ctrl+Enter' }),
      ),
      this.status,
    );
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      this.#send();
    });
    this.input.addEventListener('keydown', (event) => {
      if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) form.requestSubmit();
    });
    return form;
  }

  async #send() {
    const text = this.input.value;
    if (text === '') return;
    this.status.className = 'form-status';
    this.status.textContent = 'Sending…';
    try {
      await this.app.api.post(`${this.path}/messages`, { body: text }, { key: this.#key });
      this.#key = newKey();
      this.input.value = '';
      this.status.textContent = '';
      this.scroller.follow();
      await this.#load();
    } catch (error) {
      this.status.className = 'form-status error';
      this.status.textContent = describeError(error);
    }
  }
}

/** Says why no message can reach a task. @param {Task} task */
function describeRefusal(task) {
  if (!task.alive) return 'It has ended and takes no more messages.';
  if (task.state === 'stopping' || task.state === 'closing')
    return `It is ${task.state} and takes no more messages.`;
  return 'It was started without an input and reads no messages.';
}

const RECEIPT_MARKS = new Map([
  ['accepted', '✓'],
  ['delivered', '✓✓'],
  ['read', '✓✓'],
  ['dead_letter', '✕'],
  ['delivery_unknown', '?'],
]);

/**
 * @param {HTMLElement} element
 * @param {Message} message
 */
function renderReceipt(element, message) {
  const { state, reason } = message.receipt;
  element.className = `receipt receipt-${/^[a-z_]+$/.test(state) ? state : 'other'}`;
  element.textContent =
    `${RECEIPT_MARKS.get(state) ?? ''} ${formatName(state)}${reason ? `: ${reason}` : ''}`.trim();
}
