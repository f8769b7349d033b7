// Messages to and from a task, each with its receipt, and a form that sends one.

/** @import {Change, Message} from './api_types.d.ts' */
/** @import {AppContext} from './app_context.js' */
/** @import {TaskRecord} from './task_store.js' */

import { describeError, newKey } from './api.js';
import { nameOf } from './app_context.js';
import { el, field } from './dom.js';
import { formatJson, formatName, formatTime } from './format.js';
import { PanelTab } from './panel_tab.js';
import { TailScroller } from './tail_scroller.js';
import { canReceiveMessages } from './task_states.js';
import { foreignText } from './visible_text.js';

const RELOAD_MS = 150;

export class MessagesTab extends PanelTab {
  /** @type {Map<number, {element: HTMLElement, receipt: HTMLElement}>} */
  #shown = new Map();
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
    this.form = this.#form();
    if (app.canChange) this.element.append(this.form);
    this.#load();
  }

  /** @override */
  update() {
    this.form.hidden = !canReceiveMessages(this.record.task);
  }

  /** @override @param {Change} change */
  receive(change) {
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
      this.#show(answer.items);
    } catch (error) {
      this.showError(error);
    }
  }

  /** @param {Message[]} messages */
  #show(messages) {
    if (messages.length === 0 && this.#shown.size === 0) {
      this.list.replaceChildren(el('li', { class: 'hint', text: 'No messages yet.' }));
      return;
    }
    if (this.#shown.size === 0) this.list.replaceChildren();
    let added = 0;
    for (const message of messages) {
      const known = this.#shown.get(message.number);
      if (known) {
        renderReceipt(known.receipt, message);
        continue;
      }
      const receipt = el('span', { class: 'receipt' });
      renderReceipt(receipt, message);
      const isSent = message.from.task === this.record.id;
      const other = isSent ? message.to : message.from.task;
      const otherName = other
        ? nameOf(this.app, other)
        : isSent
          ? 'the session'
          : message.from.type;
      const element = el(
        'li',
        { class: isSent ? 'message is-sent' : 'message' },
        el(
          'div',
          { class: 'entry-head' },
          el(
            'span',
            { class: 'entry-role' },
            isSent ? 'to ' : 'from ',
            foreignText('span', otherName),
          ),
          el('time', { text: formatTime(message.sent_at) }),
          receipt,
        ),
        foreignText('div', formatJson(message.body), 'prose'),
      );
      this.#shown.set(message.number, { element, receipt });
      this.list.append(element);
      added += 1;
    }
    this.scroller.grow(added);
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
        el('button', { type: 'submit', class: 'primary', text: 'Send' }),
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
