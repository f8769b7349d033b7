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
    await untilVisible(signal);
    const connection = connectWhileVisible(signal);
    try {
      const headers = { accept: 'text/event-stream' };
      const response = await api.request(path(), { headers, signal: connection.signal });
      for await (const event of readServerSentEvents(response)) {
        const data = event.data === '' ? {} : JSON.parse(event.data);
        if (event.event === 'error') throw new Problem(data.code, data.status, data.detail);
        receive(event.event, data);
        if (event.event === 'end') return;
      }
    } catch (error) {
      if (isRefusal(error)) throw error;
    } finally {
      connection.end();
    }
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
}

/** A request that was refused is refused again, unless there were too many. @param {unknown} error */
function isRefusal(error) {
  if (!(error instanceof Problem) || error.status === 429) return false;
  return error.status >= 400 && error.status < 500;
}

/**
 * Returns a signal that aborts with another one, or when the tab is hidden: connections are few.
 * @param {AbortSignal} signal
 */
function connectWhileVisible(signal) {
  const connection = new AbortController();
  const end = new AbortController();
  const abort = () => {
    if (document.hidden || signal.aborted) connection.abort();
  };
  signal.addEventListener('abort', abort, { signal: end.signal });
  document.addEventListener('visibilitychange', abort, { signal: end.signal });
  return {
    signal: connection.signal,
    end: () => {
      end.abort();
      connection.abort();
    },
  };
}

/** @param {AbortSignal} signal */
async function untilVisible(signal) {
  while (document.hidden && !signal.aborted) {
    await new Promise((resolve) => {
      document.addEventListener('visibilitychange', resolve, { once: true });
      signal.addEventListener('abort', resolve, { once: true });
    });
  }
}
