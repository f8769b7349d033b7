// Waits that outlive connections and servers.

import { apiPath } from './api_request.js';
import type { WaitRequest, WaitResult } from './api_types.js';
import type { Connection } from './connection.js';
import { sleep } from './retry.js';

/** The time of one request. A proxy may end longer ones. */
const SLICE_SECS = 30;

export interface WaitOptions {
  /** The time of the wait. Without it, the wait has no end. */
  timeoutMs?: number;
  /** Collects the results with an operator's token too. A client's token always does. */
  collect?: boolean;
  signal?: AbortSignal | undefined;
}

/** Waits for tasks of one session. A repeated wait returns a collected result again. */
export async function waitForTasks(
  connection: Connection,
  session: string,
  body: WaitRequest,
  { timeoutMs = Infinity, collect = false, signal }: WaitOptions,
): Promise<WaitResult> {
  const end = performance.now() + timeoutMs;
  for (;;) {
    const remaining = Math.max(end - performance.now(), 0);
    // The server counts whole seconds.
    if (remaining > 0 && remaining < 1000) await sleep(remaining, signal);
    const secs = Math.min(Math.floor(remaining / 1000), SLICE_SECS);
    const waited = await connection.call<WaitResult>({
      method: 'POST',
      path: apiPath('sessions', session, 'wait'),
      query: { collect },
      headers: { prefer: `wait=${secs}` },
      body,
      isRepeatable: true,
      waitMs: secs * 1000,
      deadline: Math.max(end, performance.now() + 1000),
      signal,
    });
    if (waited.done || performance.now() >= end) return waited;
  }
}
