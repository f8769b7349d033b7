// A parser of server-sent events. It reads bytes and knows nothing of connections.

import { AnswerError } from './errors.js';

/** The size from which an event is refused, so that no server fills the memory. */
export const MAX_EVENT_CHARS = 32 * 1024 * 1024;

/** One event of a stream. */
export interface ServerSentEvent {
  name: string;
  data: string;
  id: string;
}

/** Returns the data of an event, which is an object in all events of Brigade. */
export function parseData(event: ServerSentEvent): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(event.data);
  } catch {
    value = undefined;
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw new AnswerError(
      `the event ${event.name} is no JSON object: ${event.data.slice(0, 200)}`,
    );
  return value as Record<string, unknown>;
}

/** Splits bytes into events, wherever chunks end. Lines end with LF, CR or CRLF. */
export class SseParser {
  readonly #decoder = new TextDecoder();
  /** The parts of an unfinished line. */
  #line: string[] = [];
  #isAfterReturn = false;
  #name = '';
  #data: string[] = [];
  #id = '';
  #size = 0;

  /** Returns the events that this chunk completes. */
  push(chunk: Uint8Array): ServerSentEvent[] {
    const events: ServerSentEvent[] = [];
    // The decoder removes a byte order mark.
    const text = this.#decoder.decode(chunk, { stream: true });
    if (text === '') return events;
    // The LF of a CRLF that was split.
    let start = this.#isAfterReturn && text[0] === '\n' ? 1 : 0;
    this.#isAfterReturn = false;
    const lineEnd = /\r\n|\r|\n/g;
    lineEnd.lastIndex = start;
    for (let found = lineEnd.exec(text); found; found = lineEnd.exec(text)) {
      this.#append(text.slice(start, found.index));
      start = lineEnd.lastIndex;
      this.#isAfterReturn = found[0] === '\r' && start === text.length;
      this.#endLine(events);
    }
    this.#append(text.slice(start));
    return events;
  }

  #append(part: string): void {
    if (part === '') return;
    this.#size += part.length;
    if (this.#size > MAX_EVENT_CHARS)
      throw new AnswerError(`an event of the server is above ${MAX_EVENT_CHARS} characters`);
    this.#line.push(part);
  }

  #endLine(events: ServerSentEvent[]): void {
    const line = this.#line.join('');
    this.#line = [];
    if (line === '') {
      this.#endEvent(events);
      return;
    }
    const colon = line.indexOf(':');
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? '' : line.slice(colon + 1).replace(/^ /, '');
    if (name === 'event') this.#name = value;
    else if (name === 'data') this.#data.push(value);
    else if (name === 'id' && !value.includes('\0')) this.#id = value;
    // A comment, `retry`, or a field that is not known. It takes no memory.
    else this.#size -= line.length;
  }

  #endEvent(events: ServerSentEvent[]): void {
    if (this.#data.length > 0)
      events.push({ name: this.#name || 'message', data: this.#data.join('\n'), id: this.#id });
    this.#name = '';
    this.#data = [];
    this.#size = 0;
  }
}
