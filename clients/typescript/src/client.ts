// A client of one server.

import { type ApiRequest, apiPath } from './api_request.js';
import type {
  Definition,
  DefinitionList,
  Pending,
  Session,
  SessionList,
  SessionRequest,
  Task,
  WhoAmI,
} from './api_types.js';
import { Connection } from './connection.js';
import { NotFoundError } from './errors.js';
import { type TaskSelection, listTasks } from './pages.js';
import { type EventOptions, SessionHandle } from './session.js';
import { type ClientOptions, readSettings } from './settings.js';
import { EventStream } from './streams.js';
import { type CallOptions, TaskHandle } from './task.js';

/** A client of one server. */
export class Client {
  readonly #connection: Connection;

  constructor(options: ClientOptions = {}) {
    this.#connection = new Connection(readSettings(options));
  }

  /** The URL of the server. */
  get url(): string {
    return this.#connection.settings.url;
  }

  /** Returns the token of this client, the version of the server, and the present cursor. */
  whoami(options: CallOptions = {}): Promise<WhoAmI> {
    return this.request('GET', 'whoami', options);
  }

  /**
   * Opens the session of a directory of the server, or of a name. A client's token has one session,
   * which is the default. Others pass a directory or a name.
   */
  async session(
    wanted?: string | { workspace: string } | { name: string },
    options: CallOptions = {},
  ): Promise<SessionHandle> {
    const { token } = await this.whoami(options);
    if (wanted === undefined) {
      if (token.session === undefined)
        throw new TypeError('pass the directory or the name of a session');
      const opened = await this.request<Session>('GET', `sessions/${token.session}`, options);
      return new SessionHandle(this.#connection, opened);
    }
    const body: SessionRequest = typeof wanted === 'string' ? { workspace: wanted } : wanted;
    if (token.scope === 'operator') {
      const request = { ...options, body, isRepeatable: true };
      const opened = await this.request<Session>('POST', 'sessions', request);
      return new SessionHandle(this.#connection, opened);
    }
    const found = await this.request<SessionList>('GET', 'sessions', { ...options, query: { ...body } });
    const [opened] = found.items;
    if (!opened) throw new NotFoundError(`this token sees no open session ${JSON.stringify(body)}`);
    return new SessionHandle(this.#connection, opened);
  }

  /** Returns the sessions that the token sees. */
  async sessions(
    options: CallOptions & { includeClosed?: boolean } = {},
  ): Promise<SessionHandle[]> {
    const { includeClosed = false, signal } = options;
    const query = { include_closed: includeClosed };
    const found = await this.request<SessionList>('GET', 'sessions', { query, signal });
    return found.items.map((item) => new SessionHandle(this.#connection, item));
  }

  /** Returns the task with an id. Sends no request. */
  task(id: string): TaskHandle {
    return new TaskHandle(this.#connection, id);
  }

  /** Lists the tasks that the token sees: alive ones, and those with an uncollected result. */
  tasks(selection: TaskSelection = {}, options: CallOptions = {}): AsyncGenerator<Task, void, void> {
    return listTasks(this.#connection, apiPath('tasks'), selection, options.signal);
  }

  /** Returns the approvals and questions that wait for a decision. */
  pending(options: CallOptions = {}): Promise<Pending> {
    return this.request('GET', 'pending', options);
  }

  /** Returns the definitions of agents, of a directory too. */
  async definitions(options: CallOptions & { cwd?: string } = {}): Promise<Definition[]> {
    const { cwd, signal } = options;
    const query = cwd === undefined ? {} : { cwd };
    return (await this.request<DefinitionList>('GET', 'definitions', { query, signal })).items;
  }

  /** Follows the changes of all that the token sees, after a cursor or from now on. */
  events({ after: cursor, types, rows = false, signal }: EventOptions = {}): EventStream {
    const query = types ? { rows, types: types.join(',') } : { rows };
    return new EventStream(this.#connection, { path: apiPath('events'), query, cursor, signal });
  }

  /**
   * Sends a request to a route below `/v1`, and returns its JSON: for routes without a method here.
   * `isRepeatable` says that a repetition has the same effect; by default, if it reads.
   */
  request<T = unknown>(
    method: string,
    path: string,
    options: Omit<ApiRequest, 'method' | 'path' | 'waitMs' | 'deadline'> = {},
  ): Promise<T> {
    const { query, body, headers = {}, signal, isRepeatable = method === 'GET' } = options;
    return this.#connection.call<T>({
      method,
      path: apiPath(...path.replace(/^\/|\/$/g, '').split('/')),
      query: query ?? {},
      body,
      headers,
      isRepeatable,
      signal,
    });
  }
}
