// Server-sent events of one route, across lost connections.

import { type ApiRequest, type Query, describeForeign } from './api_request.js';
import type { Connection, OpenResponse } from './connection.js';
import { AnswerError, type ApiError, UnavailableError, errorOfProblem } from './errors.js';
import { canRepeat, sleep } from './retry.js';
import { type ServerSentEvent, SseParser, parseData } from './sse.js';

/** The server sends a heartbeat every 15 seconds. A connection without any is lost. */
const SILENCE_MS = 45_000;

interface OpenStream {
  open: OpenResponse;
  reader: ReadableStreamDefaultReader<Uint8Array>;
  parser: SseParser;
}

export interface EventRoute {
  path: string;
  query: Query;
  /** The place after which to start. */
  cursor?: string | undefined;
  signal?: AbortSignal | undefined;
}

/** The events of a route, each once, whatever happens to the connection. */
export class EventSource {
  /** The place after the last event that was returned. */
  cursor: string | undefined;
  readonly #connection: Connection;
  readonly #route: EventRoute;
  readonly #pause;
  #stream: OpenStream | undefined;
  #pending: ServerSentEvent[] = [];
  #pauseMs = 0;
  /** Ends the call that waits while the stream is closed. */
  #closer = new AbortController();

  constructor(connection: Connection, route: EventRoute) {
    this.#connection = connection;
    this.#route = route;
    this.#pause = connection.newPause();
    this.cursor = route.cursor;
  }

  /**
   * Waits for the next event that is not one of the connection itself. Returns `undefined` if the
   * stream is closed meanwhile. A later call connects again.
   */
  async nextEvent(): Promise<ServerSentEvent | undefined> {
    const closer = new AbortController();
    this.#closer = closer;
    try {
      return await this.#next();
    } catch (error) {
      if (closer.signal.aborted) return undefined;
      throw error;
    }
  }

  /** Closes the connection. */
  close(): void {
    this.#closer.abort();
    this.#disconnect();
  }

  async #next(): Promise<ServerSentEvent> {
    for (;;) {
      this.#signal().throwIfAborted();
      const event = this.#pending.shift();
      if (!event) {
        await this.#receive();
        continue;
      }
      if (event.id) this.cursor = event.id;
      switch (event.name) {
        case 'cursor':
        case 'heartbeat':
          break;
        case 'bye':
        case 'too_slow':
          this.#lose(new UnavailableError(`the server ended the stream: ${event.name}`));
          break;
        case 'error':
          this.#lose(errorOfProblem(parseData(event)));
          break;
        default:
          return event;
      }
    }
  }

  #disconnect(): void {
    this.#stream?.open.close();
    this.#stream = undefined;
    this.#pending = [];
  }

  #signal(): AbortSignal {
    const { signal } = this.#route;
    return signal ? AbortSignal.any([signal, this.#closer.signal]) : this.#closer.signal;
  }

  async #receive(): Promise<void> {
    try {
      const stream = (this.#stream ??= await this.#connect());
      const read = await stream.open.within(SILENCE_MS, stream.reader.read());
      if (read.done) throw new UnavailableError('the server closed the stream');
      this.#pending = stream.parser.push(read.value);
      this.#pause.reset();
    } catch (error) {
      this.#lose(error);
    }
  }

  async #connect(): Promise<OpenStream> {
    await sleep(this.#pauseMs, this.#signal());
    const { path, query } = this.#route;
    const headers: Record<string, string> = { accept: 'text/event-stream' };
    if (this.cursor !== undefined) headers['last-event-id'] = this.cursor;
    const request: ApiRequest = { method: 'GET', path, query, headers, signal: this.#route.signal };
    const open = await this.#connection.open(request);
    const { response } = open;
    const isStream = response.headers.get('content-type')?.startsWith('text/event-stream');
    if (response.status !== 200 || !isStream || !response.body) {
      const { body } = await this.#connection.read(request, open);
      throw new AnswerError(`${path}: ${describeForeign(response, body)}`);
    }
    this.#connection.hasAnswered = true;
    this.#pauseMs = 0;
    return { open, reader: response.body.getReader(), parser: new SseParser() };
  }

  /** Closes the connection, so that the next one follows after a pause. Throws a final error. */
  #lose(error: unknown): void {
    this.#disconnect();
    // Only a new call connects again.
    this.#closer.signal.throwIfAborted();
    if (!canRepeat(error, true)) throw error;
    this.#pauseMs = this.#pause.next(error satisfies ApiError, this.#connection.retryForMs());
  }
}
