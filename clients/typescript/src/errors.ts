// The errors of a client: one class for each kind of problem, and those of outcomes and waits.

import type { EndedTask, Outcome, Problem } from './api_types.js';

/** An error of this package. */
export class BrigadeError extends Error {
  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

export interface ApiErrorOptions extends ErrorOptions {
  code?: string;
  status?: number;
  retryAfterMs?: number;
}

/**
 * A problem that the server has answered, or that prevented an answer. `code` is open: a newer server
 * may send one that has no class here.
 */
export class ApiError extends BrigadeError {
  static readonly code: string = 'unknown';
  readonly code: string;
  readonly detail: string;
  /** The status of the answer; absent if there was none. */
  readonly status?: number;
  /** The time after which the server expects the request again, if it says so. */
  readonly retryAfterMs?: number;

  constructor(detail: string, options: ApiErrorOptions = {}) {
    const code = options.code ?? new.target.code;
    super(`${code}: ${detail}`, options);
    this.code = code;
    this.detail = detail;
    if (options.status !== undefined) this.status = options.status;
    if (options.retryAfterMs !== undefined) this.retryAfterMs = options.retryAfterMs;
  }
}

/** There is no such session, task, run, call or message. */
export class NotFoundError extends ApiError {
  static override readonly code = 'not_found';
}

/** The token may not do this. */
export class ForbiddenError extends ApiError {
  static override readonly code = 'forbidden';
}

/** The request is wrong. */
export class InvalidError extends ApiError {
  static override readonly code = 'invalid';
}

/** The request contradicts the stored state, such as another request under the same key. */
export class ConflictError extends ApiError {
  static override readonly code = 'conflict';
}

/** A limit is reached. */
export class LimitError extends ApiError {
  static override readonly code = 'limit';
}

/** The task or session has ended or is ending. */
export class EndedError extends ApiError {
  static override readonly code = 'ended';
}

/** The server cannot be reached or cannot answer now. The request changed nothing. */
export class UnavailableError extends ApiError {
  static override readonly code = 'unavailable';
}

/** The answer is lost: the request may have been executed. */
export class UnknownError extends ApiError {
  static override readonly code = 'unknown';
}

/** The server has a defect. */
export class InternalError extends ApiError {
  static override readonly code = 'internal';
}

/** The token is missing, unknown, expired or revoked. */
export class UnauthenticatedError extends ApiError {
  static override readonly code = 'unauthenticated';
}

/** An answer that is none of Brigade's, such as the page of another server at this URL. */
export class AnswerError extends BrigadeError {}

/** The timeout of a wait has passed. The task goes on. */
export class WaitTimeoutError extends BrigadeError {}

/** A task that ended without success. `task` has all of it. */
export class OutcomeError extends BrigadeError {
  readonly task: EndedTask;

  constructor(task: EndedTask) {
    super(`${task.address}: ${task.outcome?.text ?? task.state}`);
    this.task = task;
  }

  get outcome(): Outcome | undefined {
    return this.task.outcome;
  }

  /** The partial result, such as the exit code and the last output of a process. */
  get partial(): unknown {
    return this.task.partial;
  }
}

/** A task that failed. */
export class TaskFailedError extends OutcomeError {}

/** A task that was stopped. */
export class TaskCancelledError extends OutcomeError {}

const CLASSES = [
  NotFoundError,
  ForbiddenError,
  InvalidError,
  ConflictError,
  LimitError,
  EndedError,
  UnavailableError,
  UnknownError,
  InternalError,
  UnauthenticatedError,
];

/** Returns the error of a problem body (RFC 9457). */
export function errorOfProblem(problem: Partial<Problem>, options: ApiErrorOptions = {}): ApiError {
  const detail = problem.detail || problem.title || 'the server gave no reason';
  const found = CLASSES.find((one) => one.code === problem.code) ?? ApiError;
  return new found(detail, { ...options, ...(problem.code ? { code: problem.code } : {}) });
}

/** Returns the error of a task that ended without success. */
export function errorOfOutcome(task: EndedTask): OutcomeError {
  switch (task.outcome?.type ?? task.state) {
    case 'failed':
      return new TaskFailedError(task);
    case 'cancelled':
      return new TaskCancelledError(task);
    default:
      return new OutcomeError(task);
  }
}
