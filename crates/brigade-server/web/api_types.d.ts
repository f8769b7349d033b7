// Generated from openapi.json by `npm run types` in web_tests. Do not edit.
// Enums are open: a newer server may send values that are not named here.

export interface Answer {
  /** The answer, or the result of a client tool. */
  answer: unknown;
  /** The call of the question. Optional while the task asks one question only. */
  call?: number;
}

/** A point in time in UTC with milliseconds: `2026-11-17T16:18:32.123Z`. */
export type ApiTime = string;

/** A tool call that needs an approval. */
export interface Approval {
  /** All arguments as JSON text; absent in a list if they are long. */
  arguments?: string;
  /** The number that a verdict names. */
  call: number;
  /** The digest of the whole call, which a verdict names. Absent without all arguments. */
  digest?: string;
  /** The working directory of the call. */
  directory?: string;
  requested_at: ApiTime;
  /** The rule that requires the approval. */
  rule: string;
  rule_source: string;
  /** The call in one line, with long texts truncated. Not sufficient for a decision. */
  text: string;
  tool: string;
}

/** The author of the request that caused a change. It is a label: rights follow from the token. */
export interface Author {
  /** Open: `operator`, `client` or `task`. */
  kind: string;
  /** The name of a client. */
  name?: string;
  /**
   * The place from which the author acted, for people: `terminal pts/3`, `process 41 (python3)`,
   * or `token laptop` or `dashboard` with the id of the token.
   */
  origin?: string;
  /** The task that acted. */
  task?: TaskId;
}

/** The absence of the host of a process. */
export interface Away {
  /** The last node on that host, or its machine. */
  node: string;
  /** When that node was last seen. */
  since: ApiTime;
  /** When the process ends as lost, unless its host returns. */
  until: ApiTime;
}

/** A change of a session or a task. */
export interface Change {
  at: ApiTime;
  /**
   * The author of the request that caused the change. Absent if the change is a consequence of
   * another one, or if no request caused it.
   */
  by?: Author;
  /** The fields of this type. */
  data: { [name: string]: unknown };
  /**
   * The task as it is now, which may be newer than the change. Only with `rows=true`, and only if
   * the task is still stored.
   */
  row?: Task;
  /** The number within its session. Numbers of other sessions are unrelated. */
  seq: number;
  /** The id of its session. */
  session: string;
  /** The task that it concerns, if it is one. */
  task?: TaskId;
  /** Open: the name of the event, such as `spawned`, `parked`, `message_sent` or `ended`. */
  type: string;
}

/** A page of changes. */
export interface ChangeList {
  /** The place after the page: the parameter `after` of the next one. */
  cursor: string;
  /** Changes between the requested place and the page are no longer stored. */
  gap?: boolean;
  /** There are more changes up to the time of the request. */
  has_more: boolean;
  items: Array<Change>;
}

export interface CloseRequest {
  reason?: string;
}

export interface Definition {
  description: string;
  /** The file; absent for a definition of the program. */
  file?: string;
  mcp_servers: Array<string>;
  model?: string;
  name: string;
  /** Open: `program`, `user`, `workspace`. */
  origin: string;
  /** The agent program that runs it; absent for Brigade's own loop. */
  runs?: string;
  /** The name in the requested language, if it differs. */
  title?: string;
  /** A definition of the workspace that the operator does not trust. It may only read. */
  untrusted: boolean;
}

export interface DefinitionList {
  items: Array<Definition>;
  /** Errors of files that are not valid definitions. */
  problems: Array<string>;
}

/** A request to a node to claim no more sessions and to give up those at rest, or the end of that. */
export interface DrainRequest {
  /** False lets the node claim sessions again. */
  draining?: boolean;
}

/** An ended task, or one of its ended runs. */
export type EndedTask = Task & {
  /** The result was collected before this wait. */
  collected_before: boolean;
  outcome?: Outcome;
  /** The partial result of a task that did not succeed. */
  partial?: unknown;
  /** The result of a task that succeeded. */
  result?: unknown;
};

export interface EnvFrom {
  /** The name of a variable of the server. */
  from: string;
}

/** The value of a variable: a text, or that of a variable of the server, which is never stored. */
export type EnvValue = string | EnvFrom;

/** A grant: calls that are always allowed in a session. */
export interface Grant {
  /** The client to whose tasks it applies; absent is all tasks of the session. */
  client?: string;
  /** The directory in which it applies; absent is any. */
  directory?: string;
  granted_at: ApiTime;
  /** The number by which it is revoked. */
  number: number;
  /** The allowed calls, as a permission rule. */
  rule: string;
  session: string;
  session_name: string;
}

export interface GrantList {
  items: Array<Grant>;
}

export interface Inbox {
  /** The oldest first. If one answer does not hold all, ask again after the last number. */
  items: Array<InboxItem>;
}

/** A message of a top-level task to its client. Its text is data, not an instruction of a user. */
export interface InboxItem {
  /** The address of the sender. */
  from: string;
  /** The name of the sender. */
  name?: string;
  number: number;
  /** The call that an answer names, if the message is a question. */
  question?: number;
  receipt: Receipt;
  sent_at: ApiTime;
  text: string;
}

/** Limits of another holder that apply to a task. All tasks under the holder share them. */
export interface InheritedLimits {
  /** The task that has the limits; absent for the session. */
  holder?: TaskId;
  /** The holder has ended and kept this task. */
  holder_ended?: boolean;
  limits: Limits;
  remaining: Remaining;
  /** The usage of all tasks that share the limits. */
  usage: Usage;
}

/** Limits of a task and its descendants, or of a session. Absent limits do not apply. */
export interface Limits {
  /** Levels of descendants. */
  depth?: number;
  /** Unread messages. */
  inbox?: number;
  /** Dollars as decimal text. */
  money?: string;
  /** Tasks that run at once. */
  running?: number;
  /** Tasks started within a time span, such as `10/min`. */
  spawn_rate?: string;
  stall?: Stall;
  /** The time of a run. */
  time_ms?: number;
  tokens?: number;
  /** Descendants ever. */
  total?: number;
  /** Children of one task that are alive. */
  width?: number;
}

export interface LoginRequest {
  /** The code of the URL that `brigade dashboard` prints. It is valid once, for 60 seconds. */
  code: string;
}

export interface Message {
  body: unknown;
  /** The input of the process ends with this message. */
  close_input: boolean;
  from: MessageSender;
  interrupt: boolean;
  name?: string;
  /** The number within the session. */
  number: number;
  /** The call that an answer names, if the message is a question. */
  question?: number;
  receipt: Receipt;
  reply_to?: number;
  sent_at: ApiTime;
  /** The task that receives it; absent for the session. */
  to?: TaskId;
}

/** Messages, the newest last. */
export interface MessageList {
  items: Array<Message>;
  /** The parameter `page` for older messages; absent at the beginning. */
  next_page?: string;
}

/** A message to a task. */
export interface MessageRequest {
  /** The message; a process gets it as a line of its input. Optional with `close_input`. */
  body?: unknown;
  /** Closes the input of a process after the message. */
  close_input?: boolean;
  /** Delivers it now, not at the agent's next step. */
  interrupt?: boolean;
  /** The name by which a job receives it. */
  name?: string;
}

/** The sender of a message. */
export interface MessageSender {
  /** The task, if one sent it. */
  task?: TaskId;
  /** Open: `operator`, `client`, `parent`, `child`, `runtime`. */
  type: string;
}

/** A request to give a session to a node. */
export interface MoveRequest {
  /** The name of the node. */
  node: string;
}

/** An agent to start. */
export interface NewAgent {
  /** The settings that the definition asks for. */
  config?: { [name: string]: unknown };
  /** The working directory, an absolute path, in which its definitions are found too. */
  cwd: string;
  /** The name of a definition. Without it, the agent is a general one. */
  definition?: string;
  /** The agent passes to the session when its parent ends. */
  keep?: boolean;
  kind: 'agent';
  limits?: Limits;
  /** MCP servers whose tools it has beside those of its definition. */
  mcp_servers?: Array<string>;
  /** The model, in place of the definition's. */
  model?: string;
  name?: string;
  /**
   * The upper bound of its permissions. Without it, the agent may read, delegate and ask, but
   * not write files or run processes.
   */
  permissions?: Permissions;
  prompt: string;
  resources?: Resources;
  /** A JSON schema that the result must match. */
  result_schema?: { [name: string]: unknown };
  /** The sandbox of its processes, which a client's token must request. */
  sandbox?: Sandbox;
  /** Nobody approves its calls: those that need an approval are denied. */
  unattended?: boolean;
  /** The agent works in a git worktree of its own. Only for the operator. */
  worktree?: boolean;
}

/** A job to start, which the program that runs the server has registered. */
export interface NewJob {
  /** The arguments as JSON; `null` without them. */
  arguments?: unknown;
  /** The name of the job. */
  job: string;
  kind: 'job';
  limits?: Limits;
  name?: string;
}

/** A process to start: a program with arguments, or a line for the shell. */
export interface NewProcess {
  /** The program and its arguments. */
  command?: Array<string>;
  /** The working directory, an absolute path. */
  cwd: string;
  deadline_ms?: number;
  /** Variables beside those that every process gets. */
  env?: { [name: string]: unknown };
  /** The time between SIGTERM and SIGKILL. */
  grace_ms?: number;
  /** The process passes to the session when its parent ends. */
  keep?: boolean;
  kind: 'process';
  limits?: Limits;
  name?: string;
  /** The condition under which the process counts as ready. */
  ready?: Readiness;
  resources?: Resources;
  /** The sandbox, which a client's token must request. */
  sandbox?: Sandbox;
  /** A line for the shell, instead of `command`. */
  shell?: string;
  /** The process reads the messages that are sent to it, one line each. */
  stdin?: boolean;
  /** A terminal instead of pipes. */
  terminal?: Terminal;
  /** The process works in a git worktree of its own. Only for the operator. */
  worktree?: boolean;
}

/** A task to start. */
export type NewTask = NewProcess | NewAgent | NewJob;

/** A new token. This answer is the only one that has the secret. */
export interface NewToken {
  /** The secret: `Authorization: Bearer SECRET`. */
  secret: string;
  token: Token;
}

/** A node of the fleet: a server that shares its store with others. */
export interface Node {
  /** The most sessions that it claims. Absent for any number. */
  capacity?: number;
  /** Its clock minus the clock of the store. */
  clock_skew_ms: number;
  /** The clocks differ by more than a second. */
  clock_skew_warning?: boolean;
  /** The machine on which it runs. */
  host: string;
  joined_at: ApiTime;
  /** The labels that sessions can require. */
  labels: Array<string>;
  /** The time until others take its sessions, unless it renews its lease. */
  lease_remaining_ms: number;
  /** The name, unique among the nodes that have not ended. */
  name: string;
  /** The node that answers. */
  own: boolean;
  /** The sessions that it owns. */
  owned_sessions: number;
  /** The tasks that run on it, as of the last renewal of its lease. */
  running_tasks: number;
  /** Open: `running`, `draining`, `expired` (its lease is over, and others take its sessions), `ended`. */
  state: string;
  version: string;
}

export interface NodeList {
  /** The server is a node of a fleet. Without a fleet there are no items. */
  fleet: boolean;
  /** The nodes that run, by name, then those that ended in the last day. */
  items: Array<Node>;
}

/** The outcome of a run. */
export interface Outcome {
  /** Open: the kind of a failure, such as `exit_code` or `timeout`, or who cancelled it. */
  code?: string;
  /** The reason of the stop that cancelled it. */
  reason?: string;
  text: string;
  /** Open: `succeeded`, `failed`, `cancelled`. */
  type: string;
}

/** The bytes of an output. */
export type OutputBytes = string;

export interface OutputLine {
  /** The position of the line. */
  offset: number;
  stream: StdStream;
  text: string;
}

/** A part of the output. Positions count all bytes, also those that are no longer stored. */
export interface OutputPage {
  /** No output follows. */
  ended: boolean;
  /** The position of the first byte. */
  from: number;
  /** The position of the next page. */
  next: number;
  pieces: Array<OutputPiece>;
  /** All bytes that were written so far. */
  total: number;
  /** Bytes that were lost to a full disk. Their positions are not known. */
  unwritten: number;
}

/** Bytes of one stream, or a number of bytes that are no longer stored. */
export type OutputPiece = {
  stream: StdStream;
  text: string;
} | {
  base64: string;
  stream: StdStream;
} | {
  dropped: number;
};

/** Lines that match a pattern. */
export interface OutputSearch {
  /** Bytes that were not searched because they are no longer stored. */
  dropped_bytes: number;
  /** More lines may match: there are too many, or the search took too long. */
  has_more: boolean;
  lines: Array<OutputLine>;
  /** The parameter `page` of the next search, if there may be more. */
  next_page?: string;
}

/** All that waits for a person. */
export interface Pending {
  approvals: Array<PendingApproval>;
  /** The place in the feed at which this was read, or an earlier one. */
  cursor: string;
  questions: Array<PendingQuestion>;
}

/** A tool call that needs an approval. */
export interface PendingApproval {
  /** The address of the task within its session. */
  address: string;
  approval: Approval;
  name?: string;
  session: string;
  session_name: string;
  /** The task that makes the call. A client may decide it also if it cannot see the task. */
  task: TaskId;
  /** The top-level task of its subtree. */
  top_task: TaskId;
}

/** An open question, or a tool call that the client executes. */
export interface PendingQuestion {
  address: string;
  name?: string;
  question: Question;
  session: string;
  session_name: string;
  task: TaskId;
}

/** The permission rules of one source. */
export interface PermissionSource {
  /** The source, such as a definition or a parent. */
  by: string;
  rules: Permissions;
}

/** Permission rules, such as `read_file` or `run_process(cargo test *)`. */
export interface Permissions {
  /** The allowed calls. Without a list, all are allowed. */
  allow?: Array<string>;
  /** Calls that need an approval. */
  ask?: Array<string>;
  deny?: Array<string>;
}

/** An error, sent as `application/problem+json`. */
export interface Problem {
  /**
   * Open: `not_found`, `forbidden`, `invalid`, `conflict`, `limit`, `ended`, `unavailable`,
   * `unknown`, `internal`, `unauthenticated`.
   */
  code: string;
  /** The problem and the correct form. */
  detail: string;
  status: number;
  title: string;
  /** The reference page of the code. */
  type: string;
}

/** An open question, or a tool call that the client executes. */
export interface Question {
  /** The number that an answer names. */
  call: number;
  /** The tool call, if this is not a question. The answer is its result. */
  client_call?: { [name: string]: unknown };
  text: string;
}

export interface ReadRequest {
  /** The messages to mark as read, from 1 to 1000. */
  numbers: Array<number>;
}

/** The condition under which a process counts as ready: exactly one of these fields. */
export interface Readiness {
  /** This http URL of the loopback address answers with a status from 200 to 299. */
  http?: string;
  /** A line of its output matches this regular expression, whose classes are of ASCII. */
  output?: string;
  /** The process accepts a connection on this TCP port of the loopback address. */
  port?: number;
}

/** The delivery state of a message. */
export interface Receipt {
  /** The reason why it cannot be delivered. */
  reason?: string;
  /** Open: `accepted`, `delivered`, `read`, `delivery_unknown`, `dead_letter`. */
  state: string;
}

/** The unused part of limits. */
export interface Remaining {
  /** Dollars as decimal text. */
  money?: string;
  time_ms?: number;
  tokens?: number;
  /** Further descendants. */
  total?: number;
}

/** The labels that a node must have to own a session. */
export interface RequiredLabelsRequest {
  /** They replace the earlier ones. Each node has the labels `node=NAME` and `host=HOST`. */
  labels: Array<string>;
}

/** The limits of each OS process. */
export interface Resources {
  /** Seconds of processor time. */
  cpu_secs?: number;
  /** Bytes of memory. */
  memory?: number;
  open_files?: number;
}

export interface ResumeRequest {
  /** Limits in place of the earlier ones. Those that are absent stay. */
  limits?: Limits;
}

/** A failed call that is made again. */
export interface Retry {
  /** The attempt that failed, from 1. */
  attempt: number;
  call: string;
  error: string;
  retry_at: ApiTime;
}

/** An ended run. */
export interface Run {
  /** Its result has been taken: by the parent, or by a wait that collects. */
  collected: boolean;
  ended_at: ApiTime;
  outcome: Outcome;
  run: number;
}

/** A sandbox: the working directory, and the listed paths. */
export interface Sandbox {
  /** Refuses every connection. */
  deny_network?: boolean;
  /** Refuses TCP connections. */
  deny_tcp?: boolean;
  /** Further paths that may be read. */
  read?: Array<string>;
  /** Further paths that may be written. */
  write?: Array<string>;
}

/** The sandbox of processes: every layer must allow an access. */
export interface SandboxState {
  layers: Array<Sandbox>;
  resources: Resources;
  terminal?: Terminal;
}

/** The numbers of sent messages. */
export interface Sent {
  numbers: Array<number>;
}

export interface Session {
  alive_tasks: number;
  /** The place in the feed at which this was read. */
  cursor: string;
  id: string;
  /** The limits of all its tasks together. */
  limits?: Limits;
  /** The name: for a workspace, the path of its directory. */
  name: string;
  /** The node that owns it. Absent for a session at rest, without a fleet, and for a client's token. */
  node?: string;
  opened_at: ApiTime;
  /** The labels that a node must have to own it. */
  required_labels?: Array<string>;
  /** Open: `open`, `closing`, `closed`. */
  state: string;
  /**
   * Ended tasks whose result waits for the client that started them, or for a parent that is
   * alive. Nobody has to take the result of a task that the operator started.
   */
  uncollected_tasks: number;
  usage: Usage;
}

export interface SessionList {
  items: Array<Session>;
}

/** A session to open: one for a workspace, or one of a name. */
export type SessionRequest = {
  /** The absolute path of a directory. The session is that of its git root. */
  workspace: string;
} | {
  name: string;
};

/** The treatment of a silent task. */
export interface Stall {
  /** The silence after which the task is stalled. 0 allows any silence. */
  after_ms: number;
  /** Reminders, each after another such silence. */
  nudges?: number;
  /** Ends the task after the last reminder. */
  then_stop?: boolean;
}

export type StdStream = 'stdout' | 'stderr' | (string & {});

export interface StopRequest {
  /** The time before the tasks are killed, instead of their own. */
  grace_ms?: number;
  reason?: string;
}

/** The effect of a stop. */
export interface Stopped {
  /** The task was stopping before, or had ended. */
  already: boolean;
  /** The task after the request. It may need time to end. */
  task: Task;
  /** The number of tasks that are stopped. */
  task_count: number;
}

/** A task and its descendants. */
export interface Subtree {
  /** The place in the feed at which this was read, or an earlier one. */
  cursor: string;
  /** The task first, parents before their children. */
  items: Array<Task>;
  /** There are more descendants than one answer holds. */
  truncated: boolean;
}

/** A task, as a list has it. */
export interface Task {
  /** The address within its session, such as `agent:3`. */
  address: string;
  alive: boolean;
  approvals: Array<Approval>;
  attempt: number;
  /** The host of the process has no node in the fleet. The process may still run there. */
  away?: Away;
  /** The client that started a top-level task. */
  client?: string;
  /**
   * Its result has been taken: by its parent, or by a wait that collects. A wait of an operator's
   * token does so only with `collect=true`.
   */
  collected: boolean;
  /** Recoveries since its last recorded progress. */
  crashes: number;
  /** The command line, the job, or the agent's prompt; in a list its first 200 characters. */
  description: string;
  ended_at?: ApiTime;
  exit_code?: number;
  id: TaskId;
  /** Open: `process`, `agent`, `job`, or the name of a custom kind. */
  kind: string;
  last_activity_at: ApiTime;
  name?: string;
  number: number;
  own_usage: Usage;
  parent?: TaskId;
  /** The last progress note. */
  progress?: { [name: string]: unknown };
  questions: Array<Question>;
  /** The condition under which it counts as ready. */
  readiness?: Readiness;
  /** When this run became ready. */
  ready_at?: ApiTime;
  /** The reason why it is queued, away or tries again, or the way it ended. */
  reason?: string;
  run: number;
  /** The id of its session. */
  session: string;
  session_name: string;
  signal?: number;
  spawned_at: ApiTime;
  /** It has been silent for longer than its stall limit. */
  stalled: boolean;
  /**
   * When the first attempt of this run started; absent before it, and if an earlier version of
   * the server did not store it.
   */
  started_at?: ApiTime;
  /**
   * Open: `queued`, `running`, `waiting`, `away`, `stopping`, `closing`, `succeeded`, `failed`,
   * `cancelled`.
   */
  state: string;
  /** When this state began; absent if an earlier version of the server did not store it. */
  state_since?: ApiTime;
  /**
   * A message can reach it now: it reads messages, and it has not ended or a message opens its
   * next run.
   */
  takes_messages: boolean;
  /** The usage of the task and its descendants. */
  usage: Usage;
  /** The conditions that it waits for. */
  waits: Array<Wait>;
}

/** A task with all details. */
export type TaskDetail = Task & {
  /** The place in the feed at which this was read, or an earlier one. */
  cursor: string;
  cwd?: string;
  /** The name of the agent's definition. */
  definition?: string;
  /** The latest earlier runs that are stored, the oldest first. */
  earlier_runs: Array<Run>;
  /** The time that the process has waited for readers of its output. */
  held_ms?: number;
  /** Limits of other holders that apply too, from the nearest to the session. */
  inherited_limits: Array<InheritedLimits>;
  /** The limits of the task and its descendants. */
  limits?: Limits;
  /** The model of an agent, as provider/model. */
  model?: string;
  /** Reminders since its last activity. */
  nudges: number;
  outcome?: Outcome;
  /** The partial result of a task that did not succeed. */
  partial?: unknown;
  /** The permissions of an agent. A call must be allowed by the rules of each source. */
  permissions: Array<PermissionSource>;
  remaining: Remaining;
  /** The result of a task that succeeded. */
  result?: unknown;
  /** Failed calls that the task makes again after a pause, the next one first. */
  retries: Array<Retry>;
  /** The sandbox of a process, or of an agent's processes. */
  sandbox?: SandboxState;
  /**
   * The parts of a process's sandbox that are in force. Open: `landlock`, `seccomp`, `mount`,
   * `network`, `control_group`, `memory_limit`.
   */
  sandbox_parts: Array<string>;
  /** Nobody approves calls of the agent. */
  unattended: boolean;
  /** The git worktree of the task, in which it works instead of `cwd`. */
  worktree?: Worktree;
};

/** The id of a task: its session's, a point, its number. */
export type TaskId = string;

/** The limits that apply to a task. */
export interface TaskLimits {
  /** From the nearest holder to the session. */
  inherited: Array<InheritedLimits>;
  /** The task's own limits. */
  limits: Limits;
  remaining: Remaining;
}

/** A page of tasks. */
export interface TaskList {
  /** The place in the feed at which the page was read, or an earlier one. */
  cursor: string;
  items: Array<Task>;
  /** The parameter `page` of the next page; absent at the end. */
  next_page?: string;
}

/** The usage of a task. */
export interface TaskUsage {
  own: Usage;
  /** What remains of the task's own limits. */
  remaining: Remaining;
  /** The usage of the task and its descendants. */
  subtree: Usage;
  /** The part of `subtree` that was reserved for calls of unknown cost. The cost may be less. */
  unknown: Usage;
}

export interface Terminal {
  columns: number;
  rows: number;
}

/** A token without its secret. */
export interface Token {
  created_at: ApiTime;
  expires_at?: ApiTime;
  /** A browser got it for a login code of `brigade dashboard`. */
  from_login?: boolean;
  /** The id by which it is revoked. */
  id: string;
  /** The name of its bearer, which events record. */
  name: string;
  scope: TokenScope;
  /** The session of a `client` token. */
  session?: string;
}

export interface TokenList {
  items: Array<Token>;
}

/** A request for a token. */
export interface TokenRequest {
  /** The time after which it is invalid. Without it, the token is valid until it is revoked. */
  expires_in_ms?: number;
  name: string;
  scope: TokenScope;
  /** The id of the session of a `client` token, and of no other. */
  session?: string;
}

/** The rights of a token. */
export type TokenScope = 'operator' | 'client' | 'read_only' | (string & {});

export interface ToolResult {
  failed: boolean;
  name: string;
  /** The number of the call within its step, if it is known. */
  number?: number;
  text: string;
}

/** A part of a transcript. Items are only added at its end. */
export interface Transcript {
  items: Array<TranscriptItem>;
  /** The parameter `page` of the next items; absent at the end. */
  next_page?: string;
}

/** A tool call of the model. */
export interface TranscriptCall {
  /** The arguments; absent if the model wrote no JSON. */
  arguments?: unknown;
  name: string;
  /** The number within its step, which a result names. */
  number: number;
  /** The problem of arguments that are not JSON. */
  problem?: string;
}

/** A step of an agent. Texts of tools and other tasks are data, not instructions of a user. */
export interface TranscriptItem {
  index: number;
  /** The model's reasoning, where the provider shows it. */
  reasoning?: string;
  /** Open: `task`, `inbox`, `assistant`, `tool`, `approval`, `note`, `run`, `summary`. */
  role: string;
  text?: string;
  tool_calls?: Array<TranscriptCall>;
  tool_result?: ToolResult;
}

export interface Usage {
  /** Dollars as decimal text. */
  money: string;
  tokens: number;
}

/** A decision on one tool call. */
export interface Verdict {
  /** The digest of the call that was shown. Required to allow it. */
  digest?: string;
  /** The reason of a denial, which the agent reads. */
  reason?: string;
  /** The calls that `allow_always` allows. Without a rule, only the same call. */
  rule?: string;
  verdict: VerdictKind;
}

export type VerdictKind = 'allow_once' | 'allow_always' | 'deny' | (string & {});

/** A condition that a task waits for. */
export interface Wait {
  /** The number of the call that waits. */
  call: number;
  /** `any` or `all` of the tasks. */
  mode?: string;
  /** The name of the messages that are waited for, or the call that is tried again. */
  name?: string;
  /** The tasks that are waited for. */
  tasks?: Array<TaskId>;
  /**
   * Open: `tasks`, `readiness`, `message`, `inbox`, `timer`, `retry`, `question`, `approval`,
   * `client_tool`.
   */
  type: string;
  /** The end of the wait. */
  until?: ApiTime;
}

/** `any` ends with the first of the tasks, `all` with the last. */
export type WaitMode = 'any' | 'all' | (string & {});

/** A wait for tasks of one session. */
export interface WaitRequest {
  mode?: WaitMode;
  /** From 1 to 1000 tasks. */
  tasks: Array<TaskId>;
  until?: WaitUntil;
}

/** The result of a wait. */
export interface WaitResult {
  /** False after a timeout. Then nothing was collected. */
  done: boolean;
  /** The ended tasks, in the order of the request. */
  ended: Array<EndedTask>;
  /** The approvals that these tasks and their descendants wait for, if they can end the wait. */
  pending_approvals: Array<PendingApproval>;
  /** The tasks that are ready, after a wait until `ready`. Those that have ended since are here too. */
  ready?: Array<Task>;
  running: Array<Task>;
}

/**
 * The event that ends a wait: the end of tasks, or also a question or approval of one; or their
 * readiness, or the end of one that was not ready before. A wait for readiness collects nothing.
 */
export type WaitUntil = 'ended' | 'ended_or_input' | 'ready' | (string & {});

/** The identity of the caller. */
export interface WhoAmI {
  /** The newest place in the feed of events. */
  cursor: string;
  token: Token;
  /** The version of the server. */
  version: string;
}

/** The git worktree of a task. */
export interface Worktree {
  /** The id of the commit with which the branch began. */
  base: string;
  branch: string;
  /**
   * True if folder and branch hold work and were kept, false if they were removed. Absent until
   * the task has ended and that is known.
   */
  kept?: boolean;
  path: string;
}
