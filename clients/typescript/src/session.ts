// A session of a server: the tasks of one directory or name.

import { apiPath, keyHeader, parseJson } from './api_request.js';
import type {
  Inbox,
  InboxItem,
  NewAgent,
  NewJob,
  NewProcess,
  NewTask,
  Session,
  Task,
  WaitRequest,
  WaitResult,
} from './api_types.js';
import type { Connection } from './connection.js';
import { InvalidError } from './errors.js';
import { type TaskSelection, listTasks } from './pages.js';
import { EventStream } from './streams.js';
import { type CallOptions, type KeyOptions, TaskHandle } from './task.js';
import { type WaitOptions, waitForTasks } from './wait.js';

/** A process to start, by default in the directory of the session. */
export type ProcessOptions = Omit<NewProcess, 'kind' | 'cwd'> & { cwd?: string };
/** An agent to start, by default in the directory of the session. */
export type AgentOptions = Omit<NewAgent, 'kind' | 'cwd'> & { cwd?: string };
export type JobOptions = Omit<NewJob, 'kind'>;

export interface EventOptions extends CallOptions {
  /** The cursor after which to start; now by default. */
  after?: string;
  /** The types of changes, such as `spawned` and `ended`. */
  types?: string[];
  /** Adds its task to each change. */
  rows?: boolean;
}

/** A session. `opened` is the session as the server showed it. */
export class SessionHandle {
  readonly #connection: Connection;
  readonly opened: Session;

  constructor(connection: Connection, opened: Session) {
    this.#connection = connection;
    this.opened = opened;
  }

  get id(): string {
    return this.opened.id;
  }

  /** The directory of the session, or its name. */
  get name(): string {
    return this.opened.name;
  }

  /**
   * Starts a process: a text for the shell, or `command` with a program and its arguments. A client's
   * token needs a `sandbox`, such as `{}`. See `spawn` for the key.
   */
  async spawnProcess(process: string | ProcessOptions, options: KeyOptions = {}): Promise<TaskHandle> {
    const given = typeof process === 'string' ? { shell: process } : process;
    return this.spawn({ ...given, kind: 'process', cwd: this.#directory(given.cwd) }, options);
  }

  /** Starts an agent: its prompt alone, or with options. See `spawn` for the key. */
  async spawnAgent(agent: string | AgentOptions, options: KeyOptions = {}): Promise<TaskHandle> {
    const given = typeof agent === 'string' ? { prompt: agent } : agent;
    return this.spawn({ ...given, kind: 'agent', cwd: this.#directory(given.cwd) }, options);
  }

  /** Starts a job that the program of the server has registered. See `spawn` for the key. */
  async spawnJob(job: JobOptions, options: KeyOptions = {}): Promise<TaskHandle> {
    return this.spawn({ ...job, kind: 'job' }, options);
  }

  /**
   * Starts a task as the API describes it.
   *
   * The key makes the request repeatable: the same key and request is the same task. Without one, a
   * new key still starts the task once if an answer is lost. Pass a key of your own, such as
   * `build-17`, to find the same task again when your program runs again.
   */
  async spawn(task: NewTask, { key, signal }: KeyOptions = {}): Promise<TaskHandle> {
    const answer = await this.#connection.send({
      method: 'POST',
      path: apiPath('sessions', this.id, 'tasks'),
      body: task,
      headers: keyHeader(key),
      isRepeatable: true,
      signal,
    });
    const replayed = answer.headers.get('idempotent-replayed') === 'true';
    const spawned = parseJson<Task>(answer);
    return new TaskHandle(this.#connection, spawned.id, spawned, replayed);
  }

  /**
   * Waits for any or all of some tasks. After the timeout, `done` is false. With `until:
   * 'ended_or_input'`, a question or a pending approval ends the wait too.
   */
  wait(
    tasks: Array<TaskHandle | string>,
    options: WaitOptions & Omit<WaitRequest, 'tasks'> = {},
  ): Promise<WaitResult> {
    const { mode = 'any', until = 'ended', ...waiting } = options;
    const ids = tasks.map((task) => (typeof task === 'string' ? task : task.id));
    return waitForTasks(this.#connection, this.id, { tasks: ids, mode, until }, waiting);
  }

  /** Returns the task with a number of this session. Sends no request. */
  task(number: number): TaskHandle {
    return new TaskHandle(this.#connection, `${this.id}.${number}`);
  }

  /** Lists the tasks of the session, as `Client.tasks` does. */
  tasks(selection: TaskSelection = {}, options: CallOptions = {}): AsyncGenerator<Task, void, void> {
    const path = apiPath('sessions', this.id, 'tasks');
    return listTasks(this.#connection, path, selection, options.signal);
  }

  /** Follows the changes of the session, as `Client.events` does. */
  events({ after: cursor, types, rows = false, signal }: EventOptions = {}): EventStream {
    const path = apiPath('sessions', this.id, 'events');
    const query = types ? { rows, types: types.join(',') } : { rows };
    return new EventStream(this.#connection, { path, query, cursor, signal });
  }

  /** Returns the session as it is now. */
  show({ signal }: CallOptions = {}): Promise<Session> {
    const path = apiPath('sessions', this.id);
    return this.#connection.call({ method: 'GET', path, isRepeatable: true, signal });
  }

  /** Returns the messages from tasks, the oldest first. */
  async inbox(options: CallOptions & { includeRead?: boolean } = {}): Promise<InboxItem[]> {
    const { includeRead = false, signal } = options;
    const path = apiPath('sessions', this.id, 'inbox');
    const query = { include_read: includeRead };
    const request = { method: 'GET', path, query, isRepeatable: true, signal };
    return (await this.#connection.call<Inbox>(request)).items;
  }

  /** Closes the session: its tasks are stopped, and nothing new starts in it. */
  close(reason?: string, { signal }: CallOptions = {}): Promise<Session> {
    const path = apiPath('sessions', this.id, 'close');
    return this.#connection.call({ method: 'POST', path, body: { reason }, signal });
  }

  #directory(cwd?: string): string {
    if (cwd !== undefined) return cwd;
    if (this.name.startsWith('/')) return this.name;
    throw new InvalidError(`the session ${this.name} has no directory: pass \`cwd\``);
  }
}
