// Over HTTP/1.1 a browser opens six connections to a server, for all tabs together. A visible tab
// always follows the feed; hidden tabs share a few slots, so that they never take all connections.

const SLOTS = 2;

/** A slot of a hidden tab. */
export class FeedSlot {
  /** @type {(() => void) | null} */
  #giveUp = null;

  /** Takes a slot if one is free. Without locks (plain HTTP to another host) it is always granted. */
  async take() {
    if (this.#giveUp) return true;
    if (!navigator.locks) return true;
    for (let slot = 0; slot < SLOTS; slot += 1) {
      if (await this.#tryTake(`brigade-feed-${slot}`)) return true;
    }
    return false;
  }

  /** Returns the slot. */
  release() {
    this.#giveUp?.();
    this.#giveUp = null;
  }

  /**
   * @param {string} name
   * @returns {Promise<boolean>}
   */
  #tryTake(name) {
    return new Promise((resolve) => {
      navigator.locks.request(name, { ifAvailable: true }, (lock) => {
        resolve(lock !== null);
        if (lock === null) return undefined;
        return new Promise((/** @type {(value?: undefined) => void} */ giveUp) => {
          this.#giveUp = giveUp;
        });
      });
    });
  }
}
