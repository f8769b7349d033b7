// Pauses between attempts, and the rule of what is repeated.

import { type ApiError, UnavailableError, UnknownError } from './errors.js';

export const FIRST_PAUSE_MS = 200;
export const LONGEST_PAUSE_MS = 5_000;
/** The time for which a server is tried that has not answered yet: its URL may be wrong. */
export const UNREACHED_RETRY_FOR_MS = 3_000;

/**
 * Returns true if a request may be sent again after an error. A request that changed nothing always
 * may. One whose answer is lost may only if a repetition has the same effect, as with a key.
 */
export function canRepeat(error: unknown, isRepeatable: boolean): error is ApiError {
  return error instanceof UnavailableError || (error instanceof UnknownError && isRepeatable);
}

/** The pauses of one request or stream that fails: they double, with jitter, up to a bound. */
export class RetryPause {
  readonly #retryForMs: number;
  readonly #deadline: number;
  readonly #now: () => number;
  #failingSince: number | undefined;
  #nextMs = FIRST_PAUSE_MS;

  /** `deadline` is a time of the clock `now`. */
  constructor(retryForMs: number, deadline = Infinity, now = () => performance.now()) {
    this.#retryForMs = retryForMs;
    this.#deadline = deadline;
    this.#now = now;
  }

  /** Starts again, after a success. */
  reset(): void {
    this.#failingSince = undefined;
    this.#nextMs = FIRST_PAUSE_MS;
  }

  /** Returns the time before the next attempt. Throws the error if the time is over. */
  next(error: ApiError, retryForMs = this.#retryForMs): number {
    const now = this.#now();
    this.#failingSince ??= now;
    const end = Math.min(
      this.#failingSince + Math.min(retryForMs, this.#retryForMs),
      this.#deadline,
    );
    const pause = Math.max(
      this.#nextMs * (0.5 + Math.random() / 2),
      Math.min(error.retryAfterMs ?? 0, LONGEST_PAUSE_MS),
    );
    this.#nextMs = Math.min(this.#nextMs * 2, LONGEST_PAUSE_MS);
    if (now + pause > end) {
      // The caller may try again later.
      this.reset();
      throw error;
    }
    return pause;
  }
}

/** Waits for a time. Rejects with the reason of the signal. */
export async function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted();
  if (ms <= 0) return;
  await new Promise<void>((resolve, reject) => {
    const abort = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', abort);
      resolve();
    }, ms);
    signal?.addEventListener('abort', abort, { once: true });
  });
}
