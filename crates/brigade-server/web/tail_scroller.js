// A list that grows at its end. At the end it follows; scrolled up it stays where the reader is and
// counts what is new.

import { button, el } from './dom.js';
import { formatNumber } from './format.js';

const NEAR_END_PX = 24;

export class TailScroller {
  #newCount = 0;
  #isFollowing = true;
  #isScheduled = false;
  #lastTop = 0;

  /** @param {string} label The name of the list for a screen reader. */
  constructor(label) {
    this.list = el('div', {
      class: 'tail-list',
      tabindex: '0',
      role: 'region',
      'aria-label': label,
    });
    this.jump = button('', () => this.follow(), { class: 'new-button tail-new', hidden: true });
    this.element = el('div', { class: 'tail' }, this.list, this.jump);
    this.list.addEventListener('scroll', () => this.#onScroll(), { passive: true });
  }

  /** Goes to the end and stays there. */
  follow() {
    this.#isFollowing = true;
    this.#newCount = 0;
    this.#schedule();
  }

  /**
   * Notes that the list has grown.
   * @param {number} count
   */
  grow(count) {
    if (!this.#isFollowing) this.#newCount += count;
    this.#schedule();
  }

  #schedule() {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    requestAnimationFrame(() => {
      this.#isScheduled = false;
      this.#scrollToEnd();
      this.#renderCount();
      // Lines that come into view get their true height only now.
      requestAnimationFrame(() => this.#scrollToEnd());
    });
  }

  #scrollToEnd() {
    if (!this.#isFollowing) return;
    this.list.scrollTop = this.list.scrollHeight;
    this.#lastTop = this.list.scrollTop;
  }

  #onScroll() {
    const { scrollHeight, scrollTop, clientHeight } = this.list;
    const isNearEnd = scrollHeight - scrollTop - clientHeight < NEAR_END_PX;
    // Only a reader scrolls up. The end of the list may also move away by itself.
    if (isNearEnd) this.#isFollowing = true;
    else if (scrollTop < this.#lastTop) this.#isFollowing = false;
    this.#lastTop = scrollTop;
    if (this.#isFollowing) this.#newCount = 0;
    this.#renderCount();
  }

  #renderCount() {
    this.jump.hidden = this.#newCount === 0;
    if (this.#newCount > 0) this.jump.textContent = `↓ ${formatNumber(this.#newCount)} new`;
  }
}
