// Requests and answers as data, and the errors of failed ones.

import { AnswerError, type ApiError, UnavailableError, UnknownError, errorOfProblem } from './errors.js';

/** The size from which an answer is refused. */
export const MAX_ANSWER_BYTES = 64 * 1024 * 1024;

export type Query = Record<string, string | number | boolean | undefined>;

/** A request. */
export interface ApiRequest {
  method: string;
  path: string;
  query?: Query;
  body?: unknown;
  headers?: Record<string, string>;
  /** A repetition has the same effect, also if the first request was executed. */
  isRepeatable?: boolean;
  /** The time for which the server holds the answer back. */
  waitMs?: number;
  /** The time of `performance.now()` after which no further attempt begins. */
  deadline?: number;
  signal?: AbortSignal | undefined;
}

/** A successful answer. */
export interface ApiAnswer {
  headers: Headers;
  body: Uint8Array;
}

/** Codes of Node.js for connections that were never opened. */
const NOT_CONNECTED = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'UND_ERR_CONNECT_TIMEOUT',
]);

/** Returns the path of a route below `/v1`. */
export function apiPath(...parts: Array<string | number>): string {
  for (const part of parts) {
    if (['', '.', '..'].includes(String(part))) throw new TypeError(`${JSON.stringify(part)} is no id`);
  }
  return `/v1/${parts.map((part) => encodeURIComponent(String(part))).join('/')}`;
}

/** Returns the URL of a request. */
export function urlOf(base: string, { path, query = {} }: ApiRequest): string {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== false) params.set(name, String(value));
  }
  return params.size > 0 ? `${base}${path}?${params}` : base + path;
}

/** Returns an idempotency key as a header: this one, or a new one. */
export function keyHeader(key: string = newKey()): Record<string, string> {
  // HTTP removes blanks around a value, which would make it another key.
  if (key === '' || key !== key.trim() || /[\p{Cc}\p{Cs}]/u.test(key))
    throw new TypeError('an idempotency key has printable characters, without blanks around it');
  // A header is bytes, which `fetch` takes as characters.
  return { 'idempotency-key': String.fromCharCode(...new TextEncoder().encode(key)) };
}

/** Returns a random key. `randomUUID` is missing in pages of http. */
function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** Returns the error of a request without an answer. */
export function failedAttempt(request: ApiRequest, base: string, error: unknown): ApiError {
  const cause = error instanceof Error && error.cause instanceof Error ? error.cause : error;
  const code = (cause as { code?: unknown }).code;
  const reason = cause instanceof Error ? cause.message || String(code) : String(cause);
  const text = `${request.method} ${base}${request.path}: ${reason}`;
  const wasSent = typeof code !== 'string' || !NOT_CONNECTED.has(code);
  if (wasSent && request.method !== 'GET')
    return new UnknownError(`${text}; the request may have been executed`, { cause: error });
  return new UnavailableError(text, { cause: error });
}

/** Returns the error of an answer whose status is no success. */
export function errorOfAnswer(request: ApiRequest, response: Response, body: Uint8Array): Error {
  const { status, headers } = response;
  const options = { status, ...retryAfter(headers) };
  const problem = parseProblem(headers, body);
  if (problem) return errorOfProblem(problem, options);
  const text = `${request.method} ${request.path}: ${describeForeign(response, body)}`;
  if (![502, 503, 504].includes(status)) return new AnswerError(text);
  // A proxy does not say if the server has read the request.
  const ErrorClass = request.method === 'GET' ? UnavailableError : UnknownError;
  return new ErrorClass(text, options);
}

/** Parses the JSON of an answer. */
export function parseJson<T>(answer: ApiAnswer): T {
  const text = new TextDecoder().decode(answer.body);
  try {
    return JSON.parse(text) as T;
  } catch (error) {
    throw new AnswerError(`this is no answer of Brigade, check the URL: ${text.slice(0, 200)}`, {
      cause: error,
    });
  }
}

/** Describes an answer that is none of Brigade's. */
export function describeForeign(response: Response, body: Uint8Array): string {
  const kind = response.headers.get('content-type') ?? 'no content type';
  const head = JSON.stringify(new TextDecoder().decode(body.subarray(0, 200)));
  return `this is no answer of Brigade, check the URL: status ${response.status}, ${kind}, ${head}`;
}

function parseProblem(headers: Headers, body: Uint8Array): Record<string, string> | undefined {
  if (!headers.get('content-type')?.startsWith('application/problem+json')) return undefined;
  try {
    const problem: unknown = JSON.parse(new TextDecoder().decode(body));
    return typeof problem === 'object' && problem !== null
      ? (problem as Record<string, string>)
      : undefined;
  } catch {
    return undefined;
  }
}

function retryAfter(headers: Headers): { retryAfterMs?: number } {
  const value = headers.get('retry-after') ?? '';
  return /^\d+$/.test(value) ? { retryAfterMs: Number(value) * 1000 } : {};
}
