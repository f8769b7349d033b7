// Changes of the feed and output of processes, as iterators.

import { apiPath } from './api_request.js';
import type { WhoAmI } from './api_types.js';
import type { Connection } from './connection.js';
import { type EventRoute, EventSource } from './event_source.js';
import { type FeedItem, type OutputItem, feedItem, outputItem } from './items.js';

/**
 * The changes after a cursor, each once, across restarts of the server.
 *
 * Without a cursor it starts now: with `start`, or with the first item. A loop that ends closes the
 * connection. After it, and after an error, `cursor` has the place to go on, and so does the next loop.
 */
export class EventStream implements AsyncIterableIterator<FeedItem> {
  readonly #connection: Connection;
  readonly #source: EventSource;
  readonly #signal: AbortSignal | undefined;

  constructor(connection: Connection, route: EventRoute) {
    this.#connection = connection;
    this.#source = new EventSource(connection, route);
    this.#signal = route.signal;
  }

  /** The place after the last item. */
  get cursor(): string | undefined {
    return this.#source.cursor;
  }

  /** Fixes the place at which the stream starts, if it has none yet. */
  async start(): Promise<this> {
    if (this.#source.cursor === undefined) {
      const request = { method: 'GET', path: apiPath('whoami'), signal: this.#signal };
      const { cursor } = await this.#connection.call<WhoAmI>({ ...request, isRepeatable: true });
      this.#source.cursor = cursor;
    }
    return this;
  }

  async next(): Promise<IteratorResult<FeedItem, undefined>> {
    await this.start();
    for (;;) {
      const event = await this.#source.nextEvent();
      if (!event) return { done: true, value: undefined };
      const value = feedItem(event);
      if (value) return { done: false, value };
    }
  }

  async return(): Promise<IteratorResult<FeedItem, undefined>> {
    this.close();
    return { done: true, value: undefined };
  }

  /** Closes the connection. */
  close(): void {
    this.#source.close();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}

/** The output of a process until its end, each byte once, across restarts of the server. */
export class OutputStream implements AsyncIterableIterator<OutputItem> {
  readonly #source: EventSource;
  #hasEnded = false;

  constructor(connection: Connection, route: EventRoute) {
    this.#source = new EventSource(connection, route);
  }

  async next(): Promise<IteratorResult<OutputItem, undefined>> {
    while (!this.#hasEnded) {
      const event = await this.#source.nextEvent();
      if (!event) return { done: true, value: undefined };
      if (event.name === 'end') this.#hasEnded = true;
      const value = outputItem(event);
      if (value) return { done: false, value };
    }
    return this.return();
  }

  async return(): Promise<IteratorResult<OutputItem, undefined>> {
    this.close();
    return { done: true, value: undefined };
  }

  /** Closes the connection. */
  close(): void {
    this.#source.close();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}
