// Follows the feed of changes. After a lost connection it resumes from the last cursor, so that
// nothing is missed and nothing is seen twice. Its state is always visible to the reader.

/** @import {Change, Problem as ProblemBody} from './api_types.d.ts' */
/** @import {Api} from './api.js' */

import { Problem } from './api.js';
import { FeedSlot } from './feed_slot.js';
import { readServerSentEvents } from './sse_reader.js';

const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;
/** The server sends a heartbeat every 15 seconds. */
const SILENCE_MS = 40_000;
const WATCH_MS = 5_000;

/**
 * @typedef {{name: 'connecting' | 'live' | 'paused' | 'stopped'}} SimpleState
 * @typedef {SimpleState | {name: 'reconnecting', retryAt: number}} StreamState
 *
 * @typedef {object} StreamHandlers
 * @property {(change: Change) => void} onChange
 * @property {(state: StreamState) => void} onState
 * @property {() => void} onGap Retention has removed changes that this client has not seen.
 * @property {() => void} onUnknownCursor The server has another store, or an older state of it.
 */

export class EventStream {
  /** @type {AbortController | null} */
  #connection = null;
  /** @type {(() => void) | null} */
  #endPause = null;
  #isStopped = false;
  /** The tab is hidden, and others need its connection. */
  #isPaused = false;
  #slot = new FeedSlot();
  #lastBytesAt = 0;
  #pauseMs = FIRST_PAUSE_MS;

  /**
   * @param {Api} api
   * @param {string} cursor
   * @param {StreamHandlers} handlers
   */
  constructor(api, cursor, handlers) {
    this.api = api;
    this.cursor = cursor;
    this.handlers = handlers;
  }

  /** Follows the feed until `stop`. */
  async run() {
    const watchdog = setInterval(() => this.#endSilentConnection(), WATCH_MS);
    const wake = () => this.#wake();
    document.addEventListener('visibilitychange', wake);
    this.#wake();
    window.addEventListener('online', wake);
    try {
      while (!this.#isStopped) {
        if (!this.#isPaused) await this.#follow();
        if (!this.#isStopped) await this.#pause();
      }
    } finally {
      clearInterval(watchdog);
      document.removeEventListener('visibilitychange', wake);
      window.removeEventListener('online', wake);
      this.handlers.onState({ name: 'stopped' });
    }
  }

  stop() {
    this.#isStopped = true;
    this.#connection?.abort();
    this.#endPause?.();
  }

  /** Ends the pause before the next attempt. */
  reconnectNow() {
    this.#endPause?.();
  }

  async #follow() {
    const connection = new AbortController();
    this.#connection = connection;
    this.#lastBytesAt = Date.now();
    try {
      const query = new URLSearchParams({ after: this.cursor, rows: 'true' });
      const response = await this.api.request(`events?${query}`, {
        headers: { accept: 'text/event-stream' },
        signal: connection.signal,
      });
      this.handlers.onState({ name: 'live' });
      const noteBytes = () => {
        this.#lastBytesAt = Date.now();
      };
      for await (const event of readServerSentEvents(response, noteBytes)) {
        this.#pauseMs = FIRST_PAUSE_MS;
        this.#receive(event.event, event.id, event.data);
      }
    } catch (error) {
      if (error instanceof Problem && error.code === 'unauthenticated') this.stop();
      if (error instanceof Problem && error.code === 'invalid') this.handlers.onUnknownCursor();
    } finally {
      connection.abort();
    }
  }

  /**
   * @param {string} event
   * @param {string} id
   * @param {string} data
   */
  #receive(event, id, data) {
    switch (event) {
      case 'change':
        this.handlers.onChange(JSON.parse(data));
        break;
      case 'gap':
        this.cursor = JSON.parse(data).cursor ?? this.cursor;
        this.handlers.onGap();
        break;
      case 'error':
        this.#fail(JSON.parse(data));
        break;
      case 'too_slow':
      case 'bye':
        this.#connection?.abort();
        break;
    }
    if (id) this.cursor = id;
  }

  /** The server ends a stream with an error. A new connection follows, unless the token was revoked. */
  #fail(/** @type {ProblemBody} */ problem) {
    this.#connection?.abort();
    if (problem.code !== 'unauthenticated') return;
    this.stop();
    this.api.onUnauthenticated();
  }

  async #pause() {
    if (this.#isPaused) {
      this.handlers.onState({ name: 'paused' });
      await this.#waitFor(null);
      return;
    }
    // Jitter spreads the clients of a restarted server.
    const pause = this.#pauseMs * (0.75 + Math.random() * 0.5);
    this.#pauseMs = Math.min(this.#pauseMs * 2, LONGEST_PAUSE_MS);
    this.handlers.onState({ name: 'reconnecting', retryAt: Date.now() + pause });
    await this.#waitFor(pause);
    if (!this.#isStopped && !this.#isPaused) this.handlers.onState({ name: 'connecting' });
  }

  /** Waits for a time, or without one until the pause is ended. @param {number | null} ms */
  async #waitFor(ms) {
    await new Promise((/** @type {(value?: undefined) => void} */ resolve) => {
      const timer = ms === null ? 0 : setTimeout(resolve, ms);
      this.#endPause = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    this.#endPause = null;
  }

  #endSilentConnection() {
    if (Date.now() - this.#lastBytesAt > SILENCE_MS) this.#connection?.abort();
  }

  /** A page that was asleep or hidden checks its connection at once. */
  async #wake() {
    if (document.hidden) {
      const isGranted = await this.#slot.take();
      if (isGranted || !document.hidden) return;
      this.#isPaused = true;
      this.#connection?.abort();
      return;
    }
    this.#slot.release();
    this.#isPaused = false;
    this.#endSilentConnection();
    this.#endPause?.();
  }
}
