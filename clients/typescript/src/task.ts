// A task of a server.

import { type ApiRequest, apiPath, keyHeader } from './api_request.js';
import type {
  Approval,
  EndedTask,
  Limits,
  MessageRequest,
  Sent,
  StopRequest,
  Stopped,
  Task,
  TaskDetail,
  Transcript,
  TranscriptItem,
  Verdict,
} from './api_types.js';
import type { Connection } from './connection.js';
import { InvalidError, WaitTimeoutError, errorOfOutcome } from './errors.js';
import { sleep } from './retry.js';
import { EventStream, OutputStream } from './streams.js';
import { type WaitOptions, waitForTasks } from './wait.js';

/** The pause before a wait that found only an earlier run. */
const OTHER_RUN_MS = 500;

export interface CallOptions {
  /** Ends the request. What the server has begun goes on. */
  signal?: AbortSignal | undefined;
}

export interface KeyOptions extends CallOptions {
  /** The idempotency key; a new one by default. */
  key?: string | undefined;
}

export type StreamName = 'stdout' | 'stderr' | 'combined';

/** A task, by its id. It holds no connection, and the id stays valid for other programs. */
export class TaskHandle {
  readonly #connection: Connection;
  readonly id: string;
  /** The task as the server showed it when this program spawned it. */
  readonly spawned: Task | undefined;
  /** An earlier request with the same key had spawned it. */
  readonly replayed: boolean;
  /** The run that this program has started last. */
  #run = 0;

  constructor(connection: Connection, id: string, spawned?: Task, replayed = false) {
    this.#connection = connection;
    this.id = id;
    this.spawned = spawned;
    this.replayed = replayed;
  }

  get sessionId(): string {
    return this.id.slice(0, this.id.lastIndexOf('.'));
  }

  /** Returns the task as it is now. */
  show(options: CallOptions = {}): Promise<TaskDetail> {
    return this.#get([], options);
  }

  /**
   * Waits until the task has ended, also across restarts of the server. A client's token collects the
   * result. Throws `WaitTimeoutError` after the timeout; the task goes on.
   */
  async wait(options: WaitOptions = {}): Promise<EndedTask> {
    const { timeoutMs = Infinity, signal } = options;
    const end = performance.now() + timeoutMs;
    for (;;) {
      const remaining = Math.max(end - performance.now(), 0);
      const waited = await waitForTasks(
        this.#connection,
        this.sessionId,
        { tasks: [this.id] },
        { ...options, timeoutMs: remaining },
      );
      const [ended] = [...waited.ended].sort((one, other) => other.run - one.run);
      if (ended && ended.run >= this.#run) return ended;
      if (performance.now() >= end)
        throw new WaitTimeoutError(`${this.id} has not ended after ${timeoutMs} ms`);
      // The result of an earlier run, which was not collected, comes before.
      await sleep(OTHER_RUN_MS, signal);
    }
  }

  /**
   * Waits, and returns the result. Throws `TaskFailedError` or `TaskCancelledError` for a task that
   * did not succeed.
   */
  async result<T = unknown>(options: WaitOptions = {}): Promise<T> {
    const ended = await this.wait(options);
    if ((ended.outcome?.type ?? ended.state) !== 'succeeded') throw errorOfOutcome(ended);
    return ended.result as T;
  }

  /** Stops the task and its descendants. Resolves when the stop has begun: `wait` for its end. */
  stop(request: StopRequest = {}, options: CallOptions = {}): Promise<Stopped> {
    // A repeated stop finds that the task is already stopped.
    return this.#post(['stop'], request, { ...options, isRepeatable: true });
  }

  /**
   * Sends a message, once: a process reads it as a line of its input. Returns the numbers of the
   * message, and of the end of the input.
   */
  async send(
    body: unknown,
    { key, signal, ...message }: Omit<MessageRequest, 'body'> & KeyOptions = {},
  ): Promise<number[]> {
    return this.#send({ ...message, body }, { key, signal });
  }

  /** Closes the input of a process. */
  closeInput(options: KeyOptions = {}): Promise<number[]> {
    return this.#send({ close_input: true }, options);
  }

  /** Answers a question. `call` names one of several. */
  answer(answer: unknown, options: CallOptions & { call?: number } = {}): Promise<void> {
    const { call, signal } = options;
    return this.#post(['answer'], { answer, call }, { signal });
  }

  /** Starts the next run of an ended task. */
  async resume(request: { limits?: Limits } = {}, options: CallOptions = {}): Promise<Task> {
    const task = await this.#post<Task>(['resume'], request, options);
    this.#run = task.run;
    return task;
  }

  /** Returns the calls of this task that wait for an approval. */
  async approvals(options: CallOptions = {}): Promise<Approval[]> {
    return (await this.show(options)).approvals;
  }

  /** Allows a call, exactly as the approval shows it: once, or always by a rule. */
  async approve(
    approval: Approval,
    options: CallOptions & { always?: boolean; rule?: string } = {},
  ): Promise<void> {
    const { digest } = approval;
    if (digest === undefined)
      throw new InvalidError('this approval has no digest; read all of it with `approvals`');
    const { always, rule, signal } = options;
    const verdict = { verdict: always ? 'allow_always' : 'allow_once', digest };
    await this.#decide(approval, rule === undefined ? verdict : { ...verdict, rule }, signal);
  }

  /** Denies a call. The agent reads the reason. */
  async deny(approval: Approval, reason?: string, options: CallOptions = {}): Promise<void> {
    const verdict = reason === undefined ? {} : { reason };
    await this.#decide(approval, { verdict: 'deny', ...verdict }, options.signal);
  }

  /** Returns the stored output of a process, or its last bytes. */
  async output(
    options: CallOptions & { stream?: StreamName; tail?: number; run?: number } = {},
  ): Promise<Uint8Array> {
    const { signal, ...query } = options;
    const answer = await this.#connection.send({
      method: 'GET',
      path: apiPath('tasks', this.id, 'output'),
      query,
      headers: { accept: 'application/octet-stream' },
      isRepeatable: true,
      signal,
    });
    return answer.body;
  }

  /**
   * Follows the output of a process until its end, from its beginning, an offset, or some bytes before
   * its end.
   */
  followOutput(
    options: CallOptions & { stream?: StreamName; tail?: number; start?: number } = {},
  ): OutputStream {
    const { signal, stream = 'combined', tail, start } = options;
    const query: ApiRequest['query'] = { stream };
    if (tail !== undefined) query['tail'] = tail;
    if (start !== undefined) query['from'] = start;
    const path = apiPath('tasks', this.id, 'output', 'stream');
    return new OutputStream(this.#connection, { path, query, signal });
  }

  /** Follows the changes of the task, or of its descendants too. */
  events(
    options: CallOptions & { after?: string; subtree?: boolean; rows?: boolean } = {},
  ): EventStream {
    const { after: cursor, subtree = false, rows = false, signal } = options;
    const path = apiPath('tasks', this.id, 'events');
    return new EventStream(this.#connection, { path, query: { subtree, rows }, cursor, signal });
  }

  /** Yields the transcript of an agent, the oldest entry first. */
  async *transcript(options: CallOptions = {}): AsyncGenerator<TranscriptItem, void, void> {
    const query: { page?: string } = {};
    for (;;) {
      const found = await this.#get<Transcript>(['transcript'], { ...options, query });
      yield* found.items;
      if (found.next_page === undefined) return;
      query.page = found.next_page;
    }
  }

  async #send(message: MessageRequest, { key, signal }: KeyOptions): Promise<number[]> {
    const headers = keyHeader(key);
    const options = { headers, signal, isRepeatable: true };
    return (await this.#post<Sent>(['messages'], message, options)).numbers;
  }

  #decide(approval: Approval, verdict: Verdict, signal?: AbortSignal): Promise<void> {
    return this.#post(['approvals', approval.call], verdict, { signal });
  }

  #get<T>(parts: string[], options: Partial<ApiRequest>): Promise<T> {
    const path = apiPath('tasks', this.id, ...parts);
    return this.#connection.call<T>({ ...options, method: 'GET', path, isRepeatable: true });
  }

  #post<T>(parts: Array<string | number>, body: unknown, options: Partial<ApiRequest>): Promise<T> {
    const path = apiPath('tasks', this.id, ...parts);
    return this.#connection.call<T>({ ...options, method: 'POST', path, body });
  }
}
