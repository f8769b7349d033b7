// Reads server-sent events from a response. `EventSource` cannot send an `Authorization` header.

/**
 * @typedef {object} ServerSentEvent
 * @property {string} event
 * @property {string} id
 * @property {string} data
 */

/**
 * Yields the events of a response until it ends.
 * @param {Response} response
 * @param {() => void} [onBytes] Runs for every chunk, also for a comment.
 * @returns {AsyncGenerator<ServerSentEvent, void, void>}
 */
export async function* readServerSentEvents(response, onBytes) {
  if (!response.body) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new SseParser();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      onBytes?.();
      yield* parser.push(value);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/** Splits text into events. Keeps an unfinished line for the next chunk. */
export class SseParser {
  constructor() {
    this.buffer = '';
    this.event = '';
    this.id = '';
    /** @type {string[]} */
    this.data = [];
  }

  /**
   * @param {string} text
   * @returns {ServerSentEvent[]}
   */
  push(text) {
    /** @type {ServerSentEvent[]} */
    const events = [];
    this.buffer += text;
    let from = 0;
    for (;;) {
      const end = this.buffer.indexOf('\n', from);
      if (end < 0) break;
      const hasReturn = end > from && this.buffer[end - 1] === '\r';
      const line = this.buffer.slice(from, hasReturn ? end - 1 : end);
      from = end + 1;
      if (line === '') this.#dispatch(events);
      else this.#field(line);
    }
    this.buffer = this.buffer.slice(from);
    return events;
  }

  /** @param {ServerSentEvent[]} events */
  #dispatch(events) {
    if (this.data.length > 0 || this.event !== '') {
      events.push({ event: this.event || 'message', id: this.id, data: this.data.join('\n') });
    }
    this.event = '';
    this.id = '';
    this.data = [];
  }

  /** @param {string} line */
  #field(line) {
    const colon = line.indexOf(':');
    if (colon === 0) return;
    const name = colon < 0 ? line : line.slice(0, colon);
    const rest = colon < 0 ? '' : line.slice(colon + 1);
    const value = rest.startsWith(' ') ? rest.slice(1) : rest;
    if (name === 'event') this.event = value;
    else if (name === 'data') this.data.push(value);
    else if (name === 'id') this.id = value;
  }
}
