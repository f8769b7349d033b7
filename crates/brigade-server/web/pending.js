// "Needs you": the pending approvals and questions of all visible tasks, first on the page.

/** @import {AppContext} from './app_context.js' */

import { byId } from './dom.js';
import { PendingCards } from './pending_cards.js';

export class PendingList {
  /** @param {AppContext} app */
  constructor(app) {
    this.section = byId('needs-you');
    this.list = byId('needs-you-list');
    this.count = byId('needs-you-count');
    this.toggle = byId('needs-you-toggle');
    this.cards = new PendingCards(app, this.list, () => app.store.needing.values());
    this.toggle.addEventListener('click', () => this.#setOpen(this.list.hidden !== false));
    this.cards.onSweep = () => this.#render();
    app.store.subscribe((update) => {
      if (update.changed.size > 0) this.#render();
    });
  }

  /** Moves the focus to the first card. */
  focusFirst() {
    this.#setOpen(true);
    this.cards.focusFirst();
  }

  #render() {
    const count = this.cards.render();
    this.count.textContent = String(count);
    this.section.hidden = count === 0 && this.cards.size === 0;
  }

  /** @param {boolean} isOpen */
  #setOpen(isOpen) {
    this.list.hidden = !isOpen;
    this.toggle.setAttribute('aria-expanded', String(isOpen));
  }
}
