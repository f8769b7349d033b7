// Follows a stream of one task (output, model text) and connects again after a lost connection.

/** @import {Api} from './api.js' */

import { Problem } from './api.js';
import { readServerSentEvents } from './sse_reader.js';

const PAUSE_MS = 2000;

/**
 * Reads events until the stream says `end`, the server refuses it, or the signal aborts.
 * @param {Api} api
 * @param {() => string} path The path of the next connection.
 * @param {AbortSignal} signal
 * @param {(event: string, data: any) => void} receive
 */
export async function followStream(api, path, signal, receive) {
  while (!signal.aborted) {
    try {
      const response = await api.request(path(), {
        headers: { accept: 'text/event-stream' },
        signal,
      });
      for await (const event of readServerSentEvents(response)) {
        const data = event.data === '' ? {} : JSON.parse(event.data);
        receive(event.event, data);
        if (event.event === 'end') return;
      }
    } catch (error) {
      if (
        error instanceof Problem &&
        error.status >= 400 &&
        error.status < 500 &&
        error.status !== 429
      )
        throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
}
