// Sends requests, again if that is safe.

import {
  type ApiAnswer,
  type ApiRequest,
  MAX_ANSWER_BYTES,
  errorOfAnswer,
  failedAttempt,
  parseJson,
  urlOf,
} from './api_request.js';
import { AnswerError, BrigadeError } from './errors.js';
import { RetryPause, UNREACHED_RETRY_FOR_MS, canRepeat, sleep } from './retry.js';
import type { ClientSettings } from './settings.js';

/** A response whose body is not read yet, and the end of its connection. */
export interface OpenResponse {
  response: Response;
  /** Ends the connection. */
  close(): void;
  /** Runs an action, and ends the connection if it takes longer. */
  within<T>(ms: number, action: Promise<T>): Promise<T>;
}

/** The connections to one server. */
export class Connection {
  readonly settings: ClientSettings;
  hasAnswered = false;

  constructor(settings: ClientSettings) {
    this.settings = settings;
  }

  /** Returns the answer of a request. Repeats what changed nothing, and what may be repeated. */
  async send(request: ApiRequest): Promise<ApiAnswer> {
    const pause = this.newPause(request.deadline);
    for (;;) {
      let ms: number;
      try {
        return await this.#sendOnce(request);
      } catch (error) {
        if (!canRepeat(error, request.isRepeatable ?? false)) throw error;
        ms = pause.next(error, this.retryForMs());
      }
      await sleep(ms, request.signal);
    }
  }

  /** Returns the JSON of an answer; `undefined` if it has none. */
  async call<T>(request: ApiRequest): Promise<T> {
    const answer = await this.send(request);
    return answer.body.length > 0 ? parseJson<T>(answer) : (undefined as T);
  }

  /** Returns a response whose body is not read yet. The caller closes it. */
  async open(request: ApiRequest): Promise<OpenResponse> {
    const { signal } = request;
    signal?.throwIfAborted();
    const controller = new AbortController();
    const abort = () => controller.abort(signal?.reason);
    signal?.addEventListener('abort', abort, { once: true });
    const close = () => {
      signal?.removeEventListener('abort', abort);
      controller.abort();
    };
    const within = <T>(ms: number, action: Promise<T>) => this.#within(request, controller, ms, action);
    const headers: Record<string, string> = {
      authorization: `Bearer ${this.settings.token}`,
      accept: 'application/json',
      ...request.headers,
    };
    const init: RequestInit = { method: request.method, headers, signal: controller.signal };
    if (request.body !== undefined) {
      headers['content-type'] = 'application/json';
      init.body = JSON.stringify(request.body);
    }
    // A redirect would take the token to another server.
    init.redirect = 'manual';
    const url = urlOf(this.settings.url, request);
    const ms = this.settings.timeoutMs + (request.waitMs ?? 0);
    try {
      return { response: await within(ms, this.settings.fetch(url, init)), close, within };
    } catch (error) {
      close();
      throw error;
    }
  }

  /** Reads the body of a response and closes it. Throws the error that it has. */
  async read(request: ApiRequest, open: OpenResponse): Promise<ApiAnswer> {
    const { response } = open;
    try {
      const body = await open.within(this.settings.timeoutMs, readBody(response));
      this.hasAnswered = true;
      if (!response.ok) throw errorOfAnswer(request, response, body);
      return { headers: response.headers, body };
    } finally {
      open.close();
    }
  }

  /** Returns the pauses of a new request or stream. */
  newPause(deadline?: number): RetryPause {
    return new RetryPause(this.settings.retryForMs, deadline);
  }

  /** Returns the time for which a failure is tried again. */
  retryForMs(): number {
    return this.hasAnswered ? this.settings.retryForMs : UNREACHED_RETRY_FOR_MS;
  }

  async #sendOnce(request: ApiRequest): Promise<ApiAnswer> {
    return this.read(request, await this.open(request));
  }

  /** Runs a part of a request. Turns its failures into errors of this package. */
  async #within<T>(
    request: ApiRequest,
    controller: AbortController,
    ms: number,
    action: Promise<T>,
  ): Promise<T> {
    const slow = new Error(`no answer within ${ms / 1000} seconds`);
    const timer = setTimeout(() => controller.abort(slow), ms);
    try {
      return await action;
    } catch (error) {
      request.signal?.throwIfAborted();
      if (error instanceof BrigadeError) throw error;
      const cause = controller.signal.aborted ? controller.signal.reason : error;
      throw failedAttempt(request, this.settings.url, cause);
    } finally {
      clearTimeout(timer);
    }
  }
}

async function readBody(response: Response): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  const reader = response.body?.getReader();
  for (let read = await reader?.read(); read && !read.done; read = await reader?.read()) {
    size += read.value.length;
    if (size > MAX_ANSWER_BYTES)
      throw new AnswerError(`an answer of the server is above ${MAX_ANSWER_BYTES} bytes`);
    chunks.push(read.value);
  }
  const body = new Uint8Array(size);
  let at = 0;
  for (const chunk of chunks) {
    body.set(chunk, at);
    at += chunk.length;
  }
  return body;
}
