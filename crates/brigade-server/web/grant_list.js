// "Always allowed": the calls that need no approval any more, by session. A reader may revoke each.

/** @import {Grant} from './api_types.d.ts' */
/** @import {AppContext} from './app_context.js' */

import { describeError } from './api.js';
import { button, byId, el } from './dom.js';
import { formatTime, shortSession } from './format.js';
import { foreignText, visibleText } from './visible_text.js';

export class GrantList {
  #isLoading = false;
  #isStale = false;

  /** @param {AppContext} app */
  constructor(app) {
    this.app = app;
    this.element = byId('grants');
    this.toggle = byId('grants-toggle');
    this.list = el('ul', { class: 'grants' });
    this.status = el('p', { class: 'form-status', role: 'status' });
    this.element.append(
      el('h2', { text: 'Always allowed' }),
      el('p', {
        class: 'hint',
        text: 'Calls that match these rules run without an approval. After a revocation they need one again.',
      }),
      this.list,
      this.status,
    );
    this.toggle.addEventListener('click', () => this.setOpen(!this.isOpen));
    app.onChange((change) => {
      if (change.type === 'grant_added' || change.type === 'grant_revoked') this.#load();
    });
  }

  get isOpen() {
    return !this.element.hidden;
  }

  /** @param {boolean} isOpen */
  setOpen(isOpen) {
    this.element.hidden = !isOpen;
    this.toggle.setAttribute('aria-expanded', String(isOpen));
    if (isOpen) this.#load();
    else this.toggle.focus();
  }

  /** Loads the list, and again if it changed meanwhile. */
  async #load() {
    if (!this.isOpen) return;
    this.#isStale = true;
    if (this.#isLoading) return;
    this.#isLoading = true;
    try {
      while (this.#isStale) {
        this.#isStale = false;
        const answer = await this.app.api.get('grants');
        this.#show(answer.items);
      }
    } catch (error) {
      this.#say(describeError(error), true);
    }
    this.#isLoading = false;
  }

  /** @param {Grant[]} grants */
  #show(grants) {
    this.list.replaceChildren(
      ...grants.map((grant) => this.#item(grant)),
      ...(grants.length === 0 ? [el('li', { class: 'hint', text: 'There are none.' })] : []),
    );
  }

  /** @param {Grant} grant */
  #item(grant) {
    const facts = [
      `In ${shortSession(grant.session_name)}`,
      grant.client ? `tasks of ${grant.client}` : 'all tasks',
      grant.directory ? `directory ${grant.directory}` : '',
      `since ${formatTime(grant.granted_at)}`,
    ];
    const revoke = button('Revoke', () => this.#revoke(grant, revoke), {
      class: 'danger-quiet',
      'aria-label': `Revoke ${visibleText(grant.rule)}`,
    });
    return el(
      'li',
      { class: 'grant' },
      el(
        'div',
        { class: 'grant-text' },
        foreignText('code', grant.rule, 'grant-rule'),
        foreignText('span', facts.filter((fact) => fact !== '').join(' · '), 'hint'),
      ),
      this.app.canChange ? revoke : null,
    );
  }

  /**
   * @param {Grant} grant
   * @param {HTMLButtonElement} press
   */
  async #revoke(grant, press) {
    press.disabled = true;
    const path = `sessions/${encodeURIComponent(grant.session)}/grants/${grant.number}`;
    try {
      await this.app.api.request(path, { method: 'DELETE' });
      this.#say(`Revoked: ${visibleText(grant.rule)}`, false);
      await this.#load();
      this.toggle.focus();
    } catch (error) {
      press.disabled = false;
      this.#say(describeError(error), true);
    }
  }

  /**
   * @param {string} text
   * @param {boolean} isError
   */
  #say(text, isError) {
    this.status.className = isError ? 'form-status error' : 'form-status';
    this.status.textContent = text;
  }
}
