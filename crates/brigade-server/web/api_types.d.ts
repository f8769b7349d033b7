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
  tokens?: number;
  total_tokens?: number;
  input_tokens?: number;
  output_tokens?: number;
  money?: Money;
}

export interface Wait {
  /** tasks, message, inbox, timer, retry, question, approval, client_tool, … */
  type: string;
  call: number;
  tasks?: TaskId[];
  mode?: string;
  until?: Timestamp;
  name?: string;
  text?: string;
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
  /** Absent in a list if they are long. */
  arguments?: Json;
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
  child_count: number;
  spawned_at: Timestamp;
  last_activity_at: Timestamp;
  /** The time at which the task entered its current state. */
  state_since?: Timestamp;
  ended_at?: Timestamp;
  stalled?: boolean;
  progress?: Json;
  waits: Wait[];
  questions: Question[];
  approvals: Approval[];
  usage?: Usage;
  own_usage?: Usage;
  exit_code?: number;
  signal?: number;
  collected: boolean;
}

export interface Outcome {
  type: string;
  code: string;
  text: string;
}

export interface EarlierRun extends Outcome {
  run: number;
  ended_at: Timestamp;
}

export interface Retry {
  call: string;
  attempt: number;
  error: string;
  retry_at: Timestamp;
}

export type Limits = { [name: string]: Json };

export interface InheritedLimits {
  /** The address of the holder; absent for the session. */
  holder?: string;
  holder_ended?: boolean;
  limits: Limits;
  usage?: Usage;
}

export interface TaskDetail extends Task {
  outcome?: Outcome;
  result?: Json;
  partial?: Json;
  limits?: Limits;
  inherited_limits?: InheritedLimits[];
  sandbox?: Json;
  sandbox_parts?: string[];
  permissions?: { allow?: string[]; ask?: string[]; deny?: string[] };
  cwd?: string;
  model?: string;
  definition?: string;
  retries?: Retry[];
  earlier_runs?: EarlierRun[];
  cursor: Cursor;
}

/** A holder of limits that apply to a task: the task, an ancestor or the session. */
export interface LimitHolder {
  holder?: TaskId;
  address?: string;
  limits: Limits;
  used?: Limits;
  remaining?: Limits;
}

export interface TaskLimits {
  holders: LimitHolder[];
}

export interface TaskUsage {
  own: Usage;
  subtree: Usage;
  unknown?: Usage;
}

export interface TaskPage {
  items: Task[];
  next_page?: string;
  cursor: Cursor;
}

export interface Session {
  id: SessionId;
  name: string;
  state: string;
  workspace?: string;
}

export interface Caller {
  name: string;
  /** operator, client, read_only, … */
  scope: string;
  session?: SessionId;
  version: string;
  cursor: Cursor;
}

export interface Message {
  number: number;
  from: string;
  to: string;
  body: Json;
  sent_at: Timestamp;
  receipt: { state: string; reason?: string };
}

export interface ToolCall {
  id?: string;
  tool: string;
  arguments?: Json;
}

export interface ToolResult {
  id?: string;
  tool?: string;
  text?: string;
  value?: Json;
  is_error?: boolean;
}

export interface TranscriptItem {
  index: number;
  at?: Timestamp;
  role: string;
  text?: string;
  reasoning?: string;
  tool_calls?: ToolCall[];
  tool_result?: ToolResult;
}

export interface Change {
  type: string;
  session: SessionId;
  task?: TaskId;
  seq: number;
  at: Timestamp;
  by?: Json;
  data?: { [name: string]: Json };
  row?: Task;
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
