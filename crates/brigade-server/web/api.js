// Requests to the HTTP API: the token, problem details, idempotency keys.

/** @import {NewToken, Problem as ProblemBody} from './api_types.d.ts' */

import { noteServerTime } from './server_clock.js';

const TOKEN_KEY = 'brigade_token';
/** Set if the token was made for this tab by a login code. */
const LOGIN_KEY = 'brigade_login';

/** A refusal by the server, or a failure to reach it (`code` is `unreachable`). */
export class Problem extends Error {
  /**
   * @param {string} code
   * @param {number} status
   * @param {string} detail
   */
  constructor(code, status, detail) {
    super(detail);
    this.code = code;
    this.status = status;
  }
}

/**
 * @typedef {object} RequestOptions
 * @property {string} [method]
 * @property {unknown} [body]
 * @property {{[name: string]: string}} [headers]
 * @property {AbortSignal} [signal]
 * @property {string} [key] The idempotency key.
 */

/** The API with the token of this browser tab. */
export class Api {
  constructor() {
    /** Runs when the server does not accept the token. */
    this.onUnauthenticated = () => {};
  }

  get token() {
    return sessionStorage.getItem(TOKEN_KEY);
  }

  /** @param {string} token */
  setToken(token) {
    sessionStorage.setItem(TOKEN_KEY, token);
  }

  clearToken() {
    sessionStorage.removeItem(TOKEN_KEY);
    sessionStorage.removeItem(LOGIN_KEY);
  }

  /**
   * Forgets the token. The token of a login is revoked; a token that was pasted has other uses and stays
   * valid.
   */
  async logout() {
    if (sessionStorage.getItem(LOGIN_KEY)) await this.post('logout', undefined);
    this.clearToken();
  }

  /**
   * Exchanges a one-time code for a token.
   * @param {string} code
   */
  async login(code) {
    /** @type {NewToken} */
    const answer = await this.post('login', { code });
    this.setToken(answer.secret);
    sessionStorage.setItem(LOGIN_KEY, 'yes');
  }

  /**
   * @param {string} path
   * @param {RequestOptions} [options]
   * @returns {Promise<any>}
   */
  async get(path, options) {
    const response = await this.request(path, options);
    return response.json();
  }

  /**
   * @param {string} path
   * @param {unknown} body
   * @param {RequestOptions} [options]
   * @returns {Promise<any>}
   */
  async post(path, body, options) {
    const response = await this.request(path, { ...options, method: 'POST', body });
    const text = await response.text();
    return text === '' ? {} : JSON.parse(text);
  }

  /**
   * Sends a request and returns the response. Throws a `Problem` for any other status than 2xx.
   * @param {string} path The path under `/v1/`.
   * @param {RequestOptions} [options]
   */
  async request(path, options = {}) {
    /** @type {{[name: string]: string}} */
    const headers = { accept: 'application/json', ...options.headers };
    if (this.token) headers['authorization'] = `Bearer ${this.token}`;
    if (options.body !== undefined) headers['content-type'] = 'application/json';
    if (options.key) headers['idempotency-key'] = options.key;
    let response;
    try {
      response = await fetch(new URL(`v1/${path}`, document.baseURI), {
        method: options.method ?? 'GET',
        headers,
        body: options.body === undefined ? undefined : JSON.stringify(options.body),
        signal: options.signal,
        cache: 'no-store',
        credentials: 'omit',
        redirect: 'error',
      });
    } catch (error) {
      if (options.signal?.aborted) throw error;
      throw new Problem('unreachable', 0, 'The server cannot be reached.');
    }
    noteServerTime(response);
    if (response.ok) return response;
    const problem = await readProblem(response);
    if (response.status === 401 && path !== 'login') this.onUnauthenticated();
    throw problem;
  }
}

/** Returns a new idempotency key. `crypto.randomUUID` needs HTTPS, this does not. */
export function newKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/**
 * Returns a text for a person about an error.
 * @param {unknown} error
 */
export function describeError(error) {
  return error instanceof Error ? error.message : String(error);
}

/** @param {Response} response */
async function readProblem(response) {
  /** @type {Partial<ProblemBody>} */
  let body = {};
  try {
    body = await response.json();
  } catch {
    // A proxy may answer with something that is not a problem.
  }
  const detail = body.detail ?? body.title ?? `The server answered ${response.status}.`;
  return new Problem(body.code ?? 'internal', response.status, detail);
}
