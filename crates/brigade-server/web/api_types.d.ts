// The types of the HTTP API, as far as the dashboard uses them.
// Enums are open: a newer server may send values that are not named here.

export type TaskId = string;
export type SessionId = string;
/** RFC 3339 in UTC with milliseconds. */
export type Timestamp = string;
/** A decimal number of US dollars. */
export type Money = string;
/** A place in the feed. Only equality and "after" are defined. */
export type Cursor = string;
export type Json = unknown;

export interface Usage {
  tokens: number;
  money: Money;
}

export interface Wait {
  /** tasks, message, inbox, timer, retry, question, approval, client_tool, … */
  type: string;
  call: number;
  tasks?: TaskId[];
  mode?: string;
  until?: Timestamp;
  /** The name of the messages that are waited for, or the call that is tried again. */
  name?: string;
}

export interface Question {
  call: number;
  text: string;
  /** The tool call that the client must execute, if this is not a question. */
  client_call?: Json;
}

export interface Approval {
  call: number;
  tool: string;
  /** The call in one line. Not sufficient for a decision. */
  text: string;
  /** All arguments as JSON text. Absent in a list if they are long. */
  arguments?: string;
  /** Present only with the whole call. */
  digest?: string;
  directory?: string;
  rule: string;
  rule_source: string;
  requested_at: Timestamp;
}

/** A task as lists and changes carry it. */
export interface Task {
  id: TaskId;
  session: SessionId;
  session_name: string;
  number: number;
  address: string;
  kind: string;
  name?: string;
  description: string;
  /** queued, running, waiting, stopping, closing, away, succeeded, failed, cancelled, … */
  state: string;
  alive: boolean;
  reason?: string;
  parent?: TaskId;
  client?: string;
  run: number;
  attempt: number;
  crashes: number;
  spawned_at: Timestamp;
  last_activity_at: Timestamp;
  /** The time at which the task entered its current state; not sent by every server. */
  state_since?: Timestamp;
  ended_at?: Timestamp;
  stalled?: boolean;
  progress?: Json;
  waits: Wait[];
  questions: Question[];
  approvals: Approval[];
  usage: Usage;
  own_usage: Usage;
  exit_code?: number;
  signal?: number;
  collected: boolean;
}

export interface Outcome {
  /** succeeded, failed, cancelled, … */
  type: string;
  /** The kind of the failure, or who cancelled it. */
  code?: string;
  text: string;
}

export interface EarlierRun {
  run: number;
  outcome: Outcome;
  ended_at: Timestamp;
  collected: boolean;
}

export interface Retry {
  call: string;
  attempt: number;
  error: string;
  retry_at: Timestamp;
}

export type Limits = { [name: string]: Json };

export interface InheritedLimits {
  /** Absent for the session. */
  holder?: TaskId;
  holder_ended: boolean;
  limits: Limits;
  usage: Usage;
  remaining: Limits;
}

export interface SandboxLayer {
  read?: string[];
  write?: string[];
  deny_tcp: boolean;
  deny_network: boolean;
}

export interface SandboxState {
  terminal?: { columns: number; rows: number };
  resources: { [name: string]: number };
  layers: SandboxLayer[];
}

export interface PermissionSource {
  /** The source, such as a definition or a parent. */
  by: string;
  /** Without `allow`, all calls are allowed. */
  rules: { allow?: string[]; ask?: string[]; deny?: string[] };
}

export interface TaskDetail extends Task {
  outcome?: Outcome;
  result?: Json;
  partial?: Json;
  sandbox?: SandboxState;
  sandbox_parts: string[];
  permissions: PermissionSource[];
  cwd?: string;
  model?: string;
  definition?: string;
  unattended?: boolean;
  retries: Retry[];
  earlier_runs: EarlierRun[];
  cursor: Cursor;
}

export interface TaskLimits {
  limits: Limits;
  remaining: Limits;
  /** From the nearest holder to the session. */
  inherited: InheritedLimits[];
}

export interface TaskPage {
  items: Task[];
  next_page?: string;
  cursor: Cursor;
}

export interface Session {
  id: SessionId;
  /** For a workspace, the path of its directory. */
  name: string;
  state: string;
}

export interface Caller {
  token: {
    name: string;
    /** operator, client, read_only, … */
    scope: string;
    session?: SessionId;
  };
  version: string;
  cursor: Cursor;
}

/** The answer to a login. */
export interface NewToken {
  secret: string;
}

export interface Message {
  number: number;
  /** operator, client, parent, child, runtime, … */
  from: { type: string; task?: TaskId };
  /** Absent for the session. */
  to?: TaskId;
  body: Json;
  sent_at: Timestamp;
  receipt: { state: string; reason?: string };
}

export interface ToolCall {
  number: number;
  name: string;
  arguments?: Json;
  /** The problem of arguments that are not JSON. */
  problem?: string;
}

export interface ToolResult {
  number?: number;
  name: string;
  text: string;
  failed: boolean;
}

export interface TranscriptItem {
  index: number;
  /** task, inbox, assistant, tool, approval, note, run, summary, … */
  role: string;
  text?: string;
  reasoning?: string;
  tool_calls?: ToolCall[];
  tool_result?: ToolResult;
}

/** A piece of a process's output. */
export interface ProcessOutput {
  stream: string;
  from: number;
  next: number;
  text?: string;
  /** The piece, if it is not UTF-8. */
  base64?: string;
}

export interface Change {
  type: string;
  session: SessionId;
  task?: TaskId;
  seq: number;
  at: Timestamp;
  data: { [name: string]: Json };
  row?: Task;
}

export interface ChangePage {
  items: Change[];
  cursor: Cursor;
  has_more: boolean;
  gap?: boolean;
}

export interface Definition {
  name: string;
  description?: string;
  model?: string;
}

export interface ProblemBody {
  title?: string;
  status?: number;
  code?: string;
  detail?: string;
}
