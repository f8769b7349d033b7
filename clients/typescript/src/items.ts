// The items of streams.

import type { Change } from './api_types.js';
import { AnswerError } from './errors.js';
import { type ServerSentEvent, parseData } from './sse.js';

/** A change, and the place in the feed after it. */
export interface FeedChange {
  type: 'change';
  cursor: string;
  change: Change;
}

/** Changes that retention has removed: list again. `cursor` is the place after them. */
export interface FeedGap {
  type: 'gap';
  cursor: string;
}

export type FeedItem = FeedChange | FeedGap;

/** A piece of the output of a process. */
export interface OutputPart {
  type: 'output';
  /** `stdout` or `stderr`. */
  stream: string;
  /** The offset of the first byte. */
  start: number;
  /** The offset after the last byte. */
  next: number;
  data: Uint8Array;
  /** The data as text. Bytes that are no UTF-8 are replaced. */
  text: string;
}

/** Output that is no longer stored, as offsets. */
export interface OutputGap {
  type: 'gap';
  start: number;
  next: number;
}

export type OutputItem = OutputPart | OutputGap;

/** Returns the item of an event of the feed; `undefined` for one of a newer server. */
export function feedItem(event: ServerSentEvent): FeedItem | undefined {
  switch (event.name) {
    case 'change':
      return { type: 'change', cursor: event.id, change: parseData(event) as unknown as Change };
    case 'gap':
      return { type: 'gap', cursor: event.id };
    default:
      return undefined;
  }
}

/** Returns the item of an event of output; `undefined` for one of a newer server. */
export function outputItem(event: ServerSentEvent): OutputItem | undefined {
  if (event.name !== 'output' && event.name !== 'dropped') return undefined;
  const { stream, from: start, next, text, base64 } = parseData(event);
  const wrong = () => new AnswerError(`this is no output: ${event.data.slice(0, 200)}`);
  if (typeof start !== 'number' || typeof next !== 'number') throw wrong();
  if (event.name === 'dropped') return { type: 'gap', start, next };
  if (typeof stream !== 'string') throw wrong();
  if (typeof text === 'string') {
    const data = new TextEncoder().encode(text);
    return { type: 'output', stream, start, next, data, text };
  }
  if (typeof base64 !== 'string') throw wrong();
  const data = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
  return { type: 'output', stream, start, next, data, text: new TextDecoder().decode(data) };
}
