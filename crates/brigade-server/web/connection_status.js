// The state of the connection, always visible in the header.

/** @import {StreamState} from './event_stream.js' */

import { byId } from './dom.js';

export class ConnectionStatus {
  /** @type {StreamState} */
  #state = { name: 'connecting' };
  #isLoading = true;
  #shown = '';

  /** @param {() => void} reconnect */
  constructor(reconnect) {
    this.element = byId('connection');
    this.text = byId('connection-text');
    this.retry = byId('connection-retry');
    this.retry.addEventListener('click', reconnect);
    setInterval(() => this.#render(), 1000);
    this.#render();
  }

  /** @param {StreamState} state */
  setState(state) {
    this.#state = state;
    this.#render();
  }

  /** @param {boolean} isLoading */
  setLoading(isLoading) {
    this.#isLoading = isLoading;
    this.#render();
  }

  #render() {
    const { name } = this.#state;
    const shown = name === 'live' && this.#isLoading ? 'loading' : name;
    const countdown = byId('connection-countdown');
    const seconds =
      this.#state.name === 'reconnecting'
        ? Math.max(0, Math.ceil((this.#state.retryAt - Date.now()) / 1000))
        : 0;
    // The countdown is outside of the live region, so that a screen reader does not read it every second.
    const wait = name === 'reconnecting' && seconds > 0 ? `in ${seconds} s` : '';
    if (countdown.textContent !== wait) countdown.textContent = wait;
    if (shown === this.#shown) return;
    this.#shown = shown;
    this.element.className = `connection connection-${shown}`;
    this.text.textContent = {
      loading: 'Loading…',
      connecting: 'Connecting…',
      live: 'Live',
      paused: 'Paused while hidden',
      reconnecting: 'Connection lost. Reconnecting',
      stopped: 'Not connected',
    }[shown];
    this.retry.hidden = name !== 'reconnecting';
  }
}
