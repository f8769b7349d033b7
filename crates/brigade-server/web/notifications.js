// Opt-in browser notifications: somebody is needed, or a top-level task failed.

/** @import {TaskRecord, TaskStore} from './task_store.js' */

import { byId } from './dom.js';
import { visibleLine } from './visible_text.js';

const OPT_IN_KEY = 'brigade_notify';
const MAX_TEXT = 120;

export class Notifier {
  /** @type {Set<string>} */
  #known = new Set();
  #isPrimed = false;
  /** Asking the browser for the permission is slow, so the answer is kept. */
  #isOn = false;

  /**
   * @param {TaskStore} store
   * @param {(id: string) => void} open
   */
  constructor(store, open) {
    this.store = store;
    this.open = open;
    this.toggle = byId('notify-toggle');
    if (!('Notification' in window)) {
      this.toggle.hidden = true;
      return;
    }
    this.toggle.addEventListener('click', () => this.#press());
    this.#render();
    store.subscribe((update) => this.#onUpdate(update.changed));
  }

  /** Everything so far is known. Only what comes later is worth a notification. */
  prime() {
    for (const record of this.store.records.values()) this.#note(record, false);
    this.#isPrimed = true;
  }

  async #press() {
    if (this.#isOn) localStorage.removeItem(OPT_IN_KEY);
    else if ((await Notification.requestPermission()) === 'granted')
      localStorage.setItem(OPT_IN_KEY, 'on');
    this.#render();
  }

  #render() {
    this.#isOn = Notification.permission === 'granted' && localStorage.getItem(OPT_IN_KEY) === 'on';
    const isDenied = Notification.permission === 'denied';
    this.toggle.setAttribute('aria-pressed', String(this.#isOn));
    this.toggle.title = isDenied
      ? 'The browser blocks notifications of this page'
      : this.#isOn
        ? 'Notifications are on'
        : 'Notify me when somebody is needed';
  }

  /** @param {Set<string>} changed */
  #onUpdate(changed) {
    if (!this.#isPrimed) return;
    for (const id of changed) {
      const record = this.store.get(id);
      if (record) this.#note(record, this.#isOn && document.hidden);
    }
  }

  /**
   * @param {TaskRecord} record
   * @param {boolean} isShown
   */
  #note(record, isShown) {
    const { task } = record;
    for (const approval of task.approvals) {
      this.#notify(
        record,
        `approval ${approval.call}`,
        `${record.label} asks for approval`,
        visibleLine(approval.text),
        isShown,
      );
    }
    for (const question of task.questions) {
      this.#notify(
        record,
        `question ${question.call}`,
        `${record.label} asks`,
        visibleLine(question.text),
        isShown,
      );
    }
    if (task.state === 'failed' && !record.parent) {
      this.#notify(
        record,
        `failed ${task.run}`,
        `${record.label} failed`,
        visibleLine(task.reason ?? ''),
        isShown,
      );
    }
  }

  /**
   * @param {TaskRecord} record
   * @param {string} fact
   * @param {string} title
   * @param {string} body
   * @param {boolean} isShown
   */
  #notify(record, fact, title, body, isShown) {
    const key = `${record.id} ${fact}`;
    if (this.#known.has(key)) return;
    this.#known.add(key);
    if (!isShown) return;
    const notification = new Notification(title, { body: body.slice(0, MAX_TEXT), tag: key });
    notification.addEventListener('click', () => {
      window.focus();
      this.open(record.id);
      notification.close();
    });
  }
}
