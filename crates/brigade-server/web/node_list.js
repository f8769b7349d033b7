// "Nodes": the servers that share the store, the sessions that each owns, and their drains. The button
// that opens the section is hidden if this server is no node of a fleet.

/** @import {NodeList as NodeListBody, SessionList} from './api_types.d.ts' */
/** @import {AppContext} from './app_context.js' */

import { describeError, Problem } from './api.js';
import { byId, el } from './dom.js';
import { NodeItem, nodeKey } from './node_item.js';

/** No change of the feed tells of a lease, so that the open section asks again. */
const POLL_MS = 2000;

export class NodeList {
  /** @type {Map<string, NodeItem>} */
  #items = new Map();
  #isFleetKnown = false;
  #isLoading = false;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;

  /** @param {AppContext} app */
  constructor(app) {
    this.app = app;
    this.element = byId('nodes');
    this.toggle = byId('nodes-toggle');
    this.list = el('ul', { class: 'nodes' });
    this.status = el('p', { class: 'form-status', role: 'status' });
    this.element.append(
      el('h2', { text: 'Nodes' }),
      el('p', {
        class: 'hint',
        text: 'The servers that share this store. Each session is owned by one of them, or by none while it is at rest.',
      }),
      this.list,
      this.status,
    );
    this.toggle.addEventListener('click', () => this.setOpen(!this.isOpen));
    // A server that could not be reached is asked again as soon as the feed is there.
    app.onChange(() => this.#findFleet());
    this.#findFleet();
  }

  get isOpen() {
    return !this.element.hidden;
  }

  /** @param {boolean} isOpen */
  setOpen(isOpen) {
    this.element.hidden = !isOpen;
    this.toggle.setAttribute('aria-expanded', String(isOpen));
    if (isOpen) {
      this.load();
    } else {
      clearTimeout(this.#timer);
      this.toggle.focus();
    }
  }

  /** Shows the button if there is a fleet. */
  async #findFleet() {
    if (this.#isFleetKnown) return;
    this.#isFleetKnown = true;
    try {
      /** @type {NodeListBody} */
      const answer = await this.app.api.get('nodes');
      this.toggle.hidden = !answer.fleet;
    } catch (error) {
      // A client's token sees no nodes.
      this.#isFleetKnown = error instanceof Problem && error.code !== 'unreachable';
    }
  }

  /** Loads the nodes, and again after a while as long as the section is open. */
  async load() {
    if (!this.isOpen || this.#isLoading) return;
    clearTimeout(this.#timer);
    this.#isLoading = true;
    try {
      /** @type {NodeListBody} */
      const answer = await this.app.api.get('nodes');
      this.#show(answer);
      await this.#loadSessions();
      if (this.status.classList.contains('error')) this.say('', false);
    } catch (error) {
      this.say(describeError(error), true);
    }
    this.#isLoading = false;
    if (this.isOpen) this.#timer = setTimeout(() => this.load(), POLL_MS);
  }

  /** Loads the sessions, if those of a node are shown. */
  async #loadSessions() {
    const open = [...this.#items.values()].filter((item) => item.isExpanded);
    if (open.length === 0) return;
    /** @type {SessionList} */
    const answer = await this.app.api.get('sessions');
    for (const item of open) item.showSessions(answer.items);
  }

  /** @param {NodeListBody} answer */
  #show(answer) {
    const shown = new Set(answer.items.map(nodeKey));
    for (const [key, item] of this.#items) {
      if (shown.has(key)) continue;
      item.element.remove();
      this.#items.delete(key);
    }
    for (const [place, node] of answer.items.entries()) {
      const item = this.#items.get(nodeKey(node)) ?? new NodeItem(this, node);
      this.#items.set(nodeKey(node), item);
      item.update(node);
      // A moved element loses the focus, so only those move whose place has changed.
      const before = this.list.children[place] ?? null;
      if (before !== item.element) this.list.insertBefore(item.element, before);
    }
  }

  /**
   * @param {string} text
   * @param {boolean} isError
   */
  say(text, isError) {
    this.status.className = isError ? 'form-status error' : 'form-status';
    this.status.textContent = text;
  }
}
