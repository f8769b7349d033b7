# Generated from openapi.json by `node clients/generate.js`. Do not edit.
"""The types of the HTTP API, as dictionaries.

Values of `str` fields such as `state` are open: a newer server may send values and fields that are
not named here.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypedDict

if sys.version_info >= (3, 11):
    from typing import NotRequired
elif TYPE_CHECKING:
    from typing_extensions import NotRequired


class Answer(TypedDict):
    answer: Any
    """The answer, or the result of a client tool."""
    call: NotRequired[int]
    """The call of the question. Optional while the task asks one question only."""


class Approval(TypedDict):
    """A tool call that needs an approval."""

    arguments: NotRequired[str]
    """All arguments as JSON text; absent in a list if they are long."""
    call: int
    """The number that a verdict names."""
    digest: NotRequired[str]
    """The digest of the whole call, which a verdict names. Absent without all arguments."""
    directory: NotRequired[str]
    """The working directory of the call."""
    requested_at: ApiTime
    rule: str
    """The rule that requires the approval."""
    rule_source: str
    text: str
    """The call in one line, with long texts truncated. Not sufficient for a decision."""
    tool: str


class Author(TypedDict):
    """The author of the request that caused a change. It is a label: rights follow from the token."""

    kind: str
    """Open: `operator`, `client` or `task`."""
    name: NotRequired[str]
    """The name of a client."""
    origin: NotRequired[str]
    """The place from which the author acted, for people: `terminal pts/3`, `process 41 (python3)`,
    or `token laptop` or `dashboard` with the id of the token.
    """
    task: NotRequired[TaskId]
    """The task that acted."""


class Away(TypedDict):
    """The absence of the host of a process."""

    node: str
    """The last node on that host, or its machine."""
    since: ApiTime
    """When that node was last seen."""
    until: ApiTime
    """When the process ends as lost, unless its host returns."""


class Change(TypedDict):
    """A change of a session or a task."""

    at: ApiTime
    by: NotRequired[Author]
    """The author of the request that caused the change. Absent if the change is a consequence of
    another one, or if no request caused it.
    """
    data: dict[str, Any]
    """The fields of this type."""
    row: NotRequired[Task]
    """The task as it is now, which may be newer than the change. Only with `rows=true`, and only if
    the task is still stored.
    """
    seq: int
    """The number within its session. Numbers of other sessions are unrelated."""
    session: str
    """The id of its session."""
    task: NotRequired[TaskId]
    """The task that it concerns, if it is one."""
    type: str
    """Open: the name of the event, such as `spawned`, `parked`, `message_sent` or `ended`."""


class ChangeList(TypedDict):
    """A page of changes."""

    cursor: str
    """The place after the page: the parameter `after` of the next one."""
    gap: NotRequired[bool]
    """Changes between the requested place and the page are no longer stored."""
    has_more: bool
    """There are more changes up to the time of the request."""
    items: list[Change]


class CloseRequest(TypedDict):
    reason: NotRequired[str]


class Definition(TypedDict):
    description: str
    file: NotRequired[str]
    """The file; absent for a definition of the program."""
    mcp_servers: list[str]
    model: NotRequired[str]
    name: str
    origin: str
    """Open: `program`, `user`, `workspace`."""
    runs: NotRequired[str]
    """The agent program that runs it; absent for Brigade's own loop."""
    title: NotRequired[str]
    """The name in the requested language, if it differs."""
    untrusted: bool
    """A definition of the workspace that the operator does not trust. It may only read."""


class DefinitionList(TypedDict):
    items: list[Definition]
    problems: list[str]
    """Errors of files that are not valid definitions."""


class DrainRequest(TypedDict):
    """A request to a node to claim no more sessions and to give up those at rest, or the end of that."""

    draining: NotRequired[bool]
    """False lets the node claim sessions again."""


class Task(TypedDict):
    """A task, as a list has it."""

    address: str
    """The address within its session, such as `agent:3`."""
    alive: bool
    approvals: list[Approval]
    attempt: int
    away: NotRequired[Away]
    """The host of the process has no node in the fleet. The process may still run there."""
    client: NotRequired[str]
    """The client that started a top-level task."""
    collected: bool
    """Its result has been taken: by its parent, or by a wait that collects. A wait of an operator's
    token does so only with `collect=true`.
    """
    crashes: int
    """Recoveries since its last recorded progress."""
    description: str
    """The command line, the job, or the agent's prompt; in a list its first 200 characters."""
    ended_at: NotRequired[ApiTime]
    exit_code: NotRequired[int]
    id: TaskId
    kind: str
    """Open: `process`, `agent`, `job`, or the name of a custom kind."""
    last_activity_at: ApiTime
    name: NotRequired[str]
    number: int
    own_usage: Usage
    parent: NotRequired[TaskId]
    progress: NotRequired[dict[str, Any]]
    """The last progress note."""
    questions: list[Question]
    readiness: NotRequired[Readiness]
    """The condition under which it counts as ready."""
    ready_at: NotRequired[ApiTime]
    """When this run became ready."""
    reason: NotRequired[str]
    """The reason why it is queued, away or tries again, or the way it ended."""
    run: int
    session: str
    """The id of its session."""
    session_name: str
    signal: NotRequired[int]
    spawned_at: ApiTime
    stalled: bool
    """It has been silent for longer than its stall limit."""
    started_at: NotRequired[ApiTime]
    """When the first attempt of this run started; absent before it, and if an earlier version of
    the server did not store it.
    """
    state: str
    """Open: `queued`, `running`, `waiting`, `away`, `stopping`, `closing`, `succeeded`, `failed`,
    `cancelled`.
    """
    state_since: NotRequired[ApiTime]
    """When this state began; absent if an earlier version of the server did not store it."""
    takes_messages: bool
    """A message can reach it now: it reads messages, and it has not ended or a message opens its
    next run.
    """
    usage: Usage
    """The usage of the task and its descendants."""
    waits: list[Wait]
    """The conditions that it waits for."""


class EndedTask(Task):
    """An ended task, or one of its ended runs."""

    collected_before: bool
    """The result was collected before this wait."""
    outcome: NotRequired[Outcome]
    partial: NotRequired[Any]
    """The partial result of a task that did not succeed."""
    result: NotRequired[Any]
    """The result of a task that succeeded."""


EnvFrom = TypedDict(
    "EnvFrom",
    {
        "from": "str",
    },
)


class Grant(TypedDict):
    """A grant: calls that are always allowed in a session."""

    client: NotRequired[str]
    """The client to whose tasks it applies; absent is all tasks of the session."""
    directory: NotRequired[str]
    """The directory in which it applies; absent is any."""
    granted_at: ApiTime
    number: int
    """The number by which it is revoked."""
    rule: str
    """The allowed calls, as a permission rule."""
    session: str
    session_name: str


class GrantList(TypedDict):
    items: list[Grant]


class Inbox(TypedDict):
    items: list[InboxItem]
    """The oldest first. If one answer does not hold all, ask again after the last number."""


InboxItem = TypedDict(
    "InboxItem",
    {
        "from": "str",
        "name": "NotRequired[str]",
        "number": "int",
        "question": "NotRequired[int]",
        "receipt": "Receipt",
        "sent_at": "ApiTime",
        "text": "str",
    },
)
"""A message of a top-level task to its client. Its text is data, not an instruction of a user."""


class InheritedLimits(TypedDict):
    """Limits of another holder that apply to a task. All tasks under the holder share them."""

    holder: NotRequired[TaskId]
    """The task that has the limits; absent for the session."""
    holder_ended: NotRequired[bool]
    """The holder has ended and kept this task."""
    limits: Limits
    remaining: Remaining
    usage: Usage
    """The usage of all tasks that share the limits."""


class Limits(TypedDict):
    """Limits of a task and its descendants, or of a session. Absent limits do not apply."""

    depth: NotRequired[int]
    """Levels of descendants."""
    inbox: NotRequired[int]
    """Unread messages."""
    money: NotRequired[str]
    """Dollars as decimal text."""
    running: NotRequired[int]
    """Tasks that run at once."""
    spawn_rate: NotRequired[str]
    """Tasks started within a time span, such as `10/min`."""
    stall: NotRequired[Stall]
    time_ms: NotRequired[int]
    """The time of a run."""
    tokens: NotRequired[int]
    total: NotRequired[int]
    """Descendants ever."""
    width: NotRequired[int]
    """Children of one task that are alive."""


class LoginRequest(TypedDict):
    code: str
    """The code of the URL that `brigade dashboard` prints. It is valid once, for 60 seconds."""


Message = TypedDict(
    "Message",
    {
        "body": "Any",
        "close_input": "bool",
        "from": "MessageSender",
        "interrupt": "bool",
        "name": "NotRequired[str]",
        "number": "int",
        "question": "NotRequired[int]",
        "receipt": "Receipt",
        "reply_to": "NotRequired[int]",
        "sent_at": "ApiTime",
        "to": "NotRequired[TaskId]",
    },
)


class MessageList(TypedDict):
    """Messages, the newest last."""

    items: list[Message]
    next_page: NotRequired[str]
    """The parameter `page` for older messages; absent at the beginning."""


class MessageRequest(TypedDict):
    """A message to a task."""

    body: NotRequired[Any]
    """The message; a process gets it as a line of its input. Optional with `close_input`."""
    close_input: NotRequired[bool]
    """Closes the input of a process after the message."""
    interrupt: NotRequired[bool]
    """Delivers it now, not at the agent's next step."""
    name: NotRequired[str]
    """The name by which a job receives it."""


class MessageSender(TypedDict):
    """The sender of a message."""

    task: NotRequired[TaskId]
    """The task, if one sent it."""
    type: str
    """Open: `operator`, `client`, `parent`, `child`, `runtime`."""


class MoveRequest(TypedDict):
    """A request to give a session to a node."""

    node: str
    """The name of the node."""


class NewAgent(TypedDict):
    """An agent to start."""

    config: NotRequired[dict[str, Any]]
    """The settings that the definition asks for."""
    cwd: str
    """The working directory, an absolute path, in which its definitions are found too."""
    definition: NotRequired[str]
    """The name of a definition. Without it, the agent is a general one."""
    keep: NotRequired[bool]
    """The agent passes to the session when its parent ends."""
    kind: Literal["agent"]
    limits: NotRequired[Limits]
    mcp_servers: NotRequired[list[str]]
    """MCP servers whose tools it has beside those of its definition."""
    model: NotRequired[str]
    """The model, in place of the definition's."""
    name: NotRequired[str]
    permissions: NotRequired[Permissions]
    """The upper bound of its permissions. Without it, the agent may read, delegate and ask, but
    not write files or run processes.
    """
    prompt: str
    resources: NotRequired[Resources]
    result_schema: NotRequired[dict[str, Any]]
    """A JSON schema that the result must match."""
    sandbox: NotRequired[Sandbox]
    """The sandbox of its processes, which a client's token must request."""
    unattended: NotRequired[bool]
    """Nobody approves its calls: those that need an approval are denied."""
    worktree: NotRequired[bool]
    """The agent works in a git worktree of its own. Only for the operator."""


class NewJob(TypedDict):
    """A job to start, which the program that runs the server has registered."""

    arguments: NotRequired[Any]
    """The arguments as JSON; `null` without them."""
    job: str
    """The name of the job."""
    kind: Literal["job"]
    limits: NotRequired[Limits]
    name: NotRequired[str]


class NewProcess(TypedDict):
    """A process to start: a program with arguments, or a line for the shell."""

    command: NotRequired[list[str]]
    """The program and its arguments."""
    cwd: str
    """The working directory, an absolute path."""
    deadline_ms: NotRequired[int]
    env: NotRequired[dict[str, EnvValue]]
    """Variables beside those that every process gets."""
    grace_ms: NotRequired[int]
    """The time between SIGTERM and SIGKILL."""
    keep: NotRequired[bool]
    """The process passes to the session when its parent ends."""
    kind: Literal["process"]
    limits: NotRequired[Limits]
    name: NotRequired[str]
    ready: NotRequired[Readiness]
    """The condition under which the process counts as ready."""
    resources: NotRequired[Resources]
    sandbox: NotRequired[Sandbox]
    """The sandbox, which a client's token must request."""
    shell: NotRequired[str]
    """A line for the shell, instead of `command`."""
    stdin: NotRequired[bool]
    """The process reads the messages that are sent to it, one line each."""
    terminal: NotRequired[Terminal]
    """A terminal instead of pipes."""
    worktree: NotRequired[bool]
    """The process works in a git worktree of its own. Only for the operator."""


class NewToken(TypedDict):
    """A new token. This answer is the only one that has the secret."""

    secret: str
    """The secret: `Authorization: Bearer SECRET`."""
    token: Token


class Node(TypedDict):
    """A node of the fleet: a server that shares its store with others."""

    capacity: NotRequired[int]
    """The most sessions that it claims. Absent for any number."""
    clock_skew_ms: int
    """Its clock minus the clock of the store."""
    clock_skew_warning: NotRequired[bool]
    """The clocks differ by more than a second."""
    host: str
    """The machine on which it runs."""
    joined_at: ApiTime
    labels: list[str]
    """The labels that sessions can require."""
    lease_remaining_ms: int
    """The time until others take its sessions, unless it renews its lease."""
    name: str
    """The name, unique among the nodes that have not ended."""
    own: bool
    """The node that answers."""
    owned_sessions: int
    """The sessions that it owns."""
    running_tasks: int
    """The tasks that run on it, as of the last renewal of its lease."""
    state: str
    """Open: `running`, `draining`, `expired` (its lease is over, and others take its sessions), `ended`."""
    version: str


class NodeList(TypedDict):
    fleet: bool
    """The server is a node of a fleet. Without a fleet there are no items."""
    items: list[Node]
    """The nodes that run, by name, then those that ended in the last day."""


class Outcome(TypedDict):
    """The outcome of a run."""

    code: NotRequired[str]
    """Open: the kind of a failure, such as `exit_code` or `timeout`, or who cancelled it."""
    reason: NotRequired[str]
    """The reason of the stop that cancelled it."""
    text: str
    type: str
    """Open: `succeeded`, `failed`, `cancelled`."""


class OutputLine(TypedDict):
    offset: int
    """The position of the line."""
    stream: StdStream
    text: str


OutputPage = TypedDict(
    "OutputPage",
    {
        "ended": "bool",
        "from": "int",
        "next": "int",
        "pieces": "list[OutputPiece]",
        "total": "int",
        "unwritten": "int",
    },
)
"""A part of the output. Positions count all bytes, also those that are no longer stored."""


class OutputSearch(TypedDict):
    """Lines that match a pattern."""

    dropped_bytes: int
    """Bytes that were not searched because they are no longer stored."""
    has_more: bool
    """More lines may match: there are too many, or the search took too long."""
    lines: list[OutputLine]
    next_page: NotRequired[str]
    """The parameter `page` of the next search, if there may be more."""


class Pending(TypedDict):
    """All that waits for a person."""

    approvals: list[PendingApproval]
    cursor: str
    """The place in the feed at which this was read, or an earlier one."""
    questions: list[PendingQuestion]


class PendingApproval(TypedDict):
    """A tool call that needs an approval."""

    address: str
    """The address of the task within its session."""
    approval: Approval
    name: NotRequired[str]
    session: str
    session_name: str
    task: TaskId
    """The task that makes the call. A client may decide it also if it cannot see the task."""
    top_task: TaskId
    """The top-level task of its subtree."""


class PendingQuestion(TypedDict):
    """An open question, or a tool call that the client executes."""

    address: str
    name: NotRequired[str]
    question: Question
    session: str
    session_name: str
    task: TaskId


class PermissionSource(TypedDict):
    """The permission rules of one source."""

    by: str
    """The source, such as a definition or a parent."""
    rules: Permissions


class Permissions(TypedDict):
    """Permission rules, such as `read_file` or `run_process(cargo test *)`."""

    allow: NotRequired[list[str]]
    """The allowed calls. Without a list, all are allowed."""
    ask: NotRequired[list[str]]
    """Calls that need an approval."""
    deny: NotRequired[list[str]]


class Problem(TypedDict):
    """An error, sent as `application/problem+json`."""

    code: str
    """Open: `not_found`, `forbidden`, `invalid`, `conflict`, `limit`, `ended`, `unavailable`,
    `unknown`, `internal`, `unauthenticated`.
    """
    detail: str
    """The problem and the correct form."""
    status: int
    title: str
    type: str
    """The reference page of the code."""


class Question(TypedDict):
    """An open question, or a tool call that the client executes."""

    call: int
    """The number that an answer names."""
    client_call: NotRequired[dict[str, Any]]
    """The tool call, if this is not a question. The answer is its result."""
    text: str


class ReadRequest(TypedDict):
    numbers: list[int]
    """The messages to mark as read, from 1 to 1000."""


class Readiness(TypedDict):
    """The condition under which a process counts as ready: exactly one of these fields."""

    http: NotRequired[str]
    """This http URL of the loopback address answers with a status from 200 to 299."""
    output: NotRequired[str]
    """A line of its output matches this regular expression, whose classes are of ASCII."""
    port: NotRequired[int]
    """The process accepts a connection on this TCP port of the loopback address."""


class Receipt(TypedDict):
    """The delivery state of a message."""

    reason: NotRequired[str]
    """The reason why it cannot be delivered."""
    state: str
    """Open: `accepted`, `delivered`, `read`, `delivery_unknown`, `dead_letter`."""


class Remaining(TypedDict):
    """The unused part of limits."""

    money: NotRequired[str]
    """Dollars as decimal text."""
    time_ms: NotRequired[int]
    tokens: NotRequired[int]
    total: NotRequired[int]
    """Further descendants."""


class RequiredLabelsRequest(TypedDict):
    """The labels that a node must have to own a session."""

    labels: list[str]
    """They replace the earlier ones. Each node has the labels `node=NAME` and `host=HOST`."""


class Resources(TypedDict):
    """The limits of each OS process."""

    cpu_secs: NotRequired[int]
    """Seconds of processor time."""
    memory: NotRequired[int]
    """Bytes of memory."""
    open_files: NotRequired[int]


class ResumeRequest(TypedDict):
    limits: NotRequired[Limits]
    """Limits in place of the earlier ones. Those that are absent stay."""


class Retry(TypedDict):
    """A failed call that is made again."""

    attempt: int
    """The attempt that failed, from 1."""
    call: str
    error: str
    retry_at: ApiTime


class Run(TypedDict):
    """An ended run."""

    collected: bool
    """Its result has been taken: by the parent, or by a wait that collects."""
    ended_at: ApiTime
    outcome: Outcome
    run: int


class Sandbox(TypedDict):
    """A sandbox: the working directory, and the listed paths."""

    deny_network: NotRequired[bool]
    """Refuses every connection."""
    deny_tcp: NotRequired[bool]
    """Refuses TCP connections."""
    read: NotRequired[list[str]]
    """Further paths that may be read."""
    write: NotRequired[list[str]]
    """Further paths that may be written."""


class SandboxState(TypedDict):
    """The sandbox of processes: every layer must allow an access."""

    layers: list[Sandbox]
    resources: Resources
    terminal: NotRequired[Terminal]


class Sent(TypedDict):
    """The numbers of sent messages."""

    numbers: list[int]


class Session(TypedDict):
    alive_tasks: int
    cursor: str
    """The place in the feed at which this was read."""
    id: str
    limits: NotRequired[Limits]
    """The limits of all its tasks together."""
    name: str
    """The name: for a workspace, the path of its directory."""
    node: NotRequired[str]
    """The node that owns it. Absent for a session at rest, without a fleet, and for a client's token."""
    opened_at: ApiTime
    required_labels: NotRequired[list[str]]
    """The labels that a node must have to own it."""
    state: str
    """Open: `open`, `closing`, `closed`."""
    uncollected_tasks: int
    """Ended tasks whose result waits for the client that started them, or for a parent that is
    alive. Nobody has to take the result of a task that the operator started.
    """
    usage: Usage


class SessionList(TypedDict):
    items: list[Session]


class Stall(TypedDict):
    """The treatment of a silent task."""

    after_ms: int
    """The silence after which the task is stalled. 0 allows any silence."""
    nudges: NotRequired[int]
    """Reminders, each after another such silence."""
    then_stop: NotRequired[bool]
    """Ends the task after the last reminder."""


class StopRequest(TypedDict):
    grace_ms: NotRequired[int]
    """The time before the tasks are killed, instead of their own."""
    reason: NotRequired[str]


class Stopped(TypedDict):
    """The effect of a stop."""

    already: bool
    """The task was stopping before, or had ended."""
    task: Task
    """The task after the request. It may need time to end."""
    task_count: int
    """The number of tasks that are stopped."""


class Subtree(TypedDict):
    """A task and its descendants."""

    cursor: str
    """The place in the feed at which this was read, or an earlier one."""
    items: list[Task]
    """The task first, parents before their children."""
    truncated: bool
    """There are more descendants than one answer holds."""


class TaskDetail(Task):
    """A task with all details."""

    cursor: str
    """The place in the feed at which this was read, or an earlier one."""
    cwd: NotRequired[str]
    definition: NotRequired[str]
    """The name of the agent's definition."""
    earlier_runs: list[Run]
    """The latest earlier runs that are stored, the oldest first."""
    held_ms: NotRequired[int]
    """The time that the process has waited for readers of its output."""
    inherited_limits: list[InheritedLimits]
    """Limits of other holders that apply too, from the nearest to the session."""
    limits: NotRequired[Limits]
    """The limits of the task and its descendants."""
    model: NotRequired[str]
    """The model of an agent, as provider/model."""
    nudges: int
    """Reminders since its last activity."""
    outcome: NotRequired[Outcome]
    partial: NotRequired[Any]
    """The partial result of a task that did not succeed."""
    permissions: list[PermissionSource]
    """The permissions of an agent. A call must be allowed by the rules of each source."""
    remaining: Remaining
    result: NotRequired[Any]
    """The result of a task that succeeded."""
    retries: list[Retry]
    """Failed calls that the task makes again after a pause, the next one first."""
    sandbox: NotRequired[SandboxState]
    """The sandbox of a process, or of an agent's processes."""
    sandbox_parts: list[str]
    """The parts of a process's sandbox that are in force. Open: `landlock`, `seccomp`, `mount`,
    `network`, `control_group`, `memory_limit`.
    """
    unattended: bool
    """Nobody approves calls of the agent."""
    worktree: NotRequired[Worktree]
    """The git worktree of the task, in which it works instead of `cwd`."""


class TaskLimits(TypedDict):
    """The limits that apply to a task."""

    inherited: list[InheritedLimits]
    """From the nearest holder to the session."""
    limits: Limits
    """The task's own limits."""
    remaining: Remaining


class TaskList(TypedDict):
    """A page of tasks."""

    cursor: str
    """The place in the feed at which the page was read, or an earlier one."""
    items: list[Task]
    next_page: NotRequired[str]
    """The parameter `page` of the next page; absent at the end."""


class TaskUsage(TypedDict):
    """The usage of a task."""

    own: Usage
    remaining: Remaining
    """What remains of the task's own limits."""
    subtree: Usage
    """The usage of the task and its descendants."""
    unknown: Usage
    """The part of `subtree` that was reserved for calls of unknown cost. The cost may be less."""


class Terminal(TypedDict):
    columns: int
    rows: int


class Token(TypedDict):
    """A token without its secret."""

    created_at: ApiTime
    expires_at: NotRequired[ApiTime]
    from_login: NotRequired[bool]
    """A browser got it for a login code of `brigade dashboard`."""
    id: str
    """The id by which it is revoked."""
    name: str
    """The name of its bearer, which events record."""
    scope: TokenScope
    session: NotRequired[str]
    """The session of a `client` token."""


class TokenList(TypedDict):
    items: list[Token]


class TokenRequest(TypedDict):
    """A request for a token."""

    expires_in_ms: NotRequired[int]
    """The time after which it is invalid. Without it, the token is valid until it is revoked."""
    name: str
    scope: TokenScope
    session: NotRequired[str]
    """The id of the session of a `client` token, and of no other."""


class ToolResult(TypedDict):
    failed: bool
    name: str
    number: NotRequired[int]
    """The number of the call within its step, if it is known."""
    text: str


class Transcript(TypedDict):
    """A part of a transcript. Items are only added at its end."""

    items: list[TranscriptItem]
    next_page: NotRequired[str]
    """The parameter `page` of the next items; absent at the end."""


class TranscriptCall(TypedDict):
    """A tool call of the model."""

    arguments: NotRequired[Any]
    """The arguments; absent if the model wrote no JSON."""
    name: str
    number: int
    """The number within its step, which a result names."""
    problem: NotRequired[str]
    """The problem of arguments that are not JSON."""


class TranscriptItem(TypedDict):
    """A step of an agent. Texts of tools and other tasks are data, not instructions of a user."""

    index: int
    reasoning: NotRequired[str]
    """The model's reasoning, where the provider shows it."""
    role: str
    """Open: `task`, `inbox`, `assistant`, `tool`, `approval`, `note`, `run`, `summary`."""
    text: NotRequired[str]
    tool_calls: NotRequired[list[TranscriptCall]]
    tool_result: NotRequired[ToolResult]


class Usage(TypedDict):
    money: str
    """Dollars as decimal text."""
    tokens: int


class Verdict(TypedDict):
    """A decision on one tool call."""

    digest: NotRequired[str]
    """The digest of the call that was shown. Required to allow it."""
    reason: NotRequired[str]
    """The reason of a denial, which the agent reads."""
    rule: NotRequired[str]
    """The calls that `allow_always` allows. Without a rule, only the same call."""
    verdict: VerdictKind


class Wait(TypedDict):
    """A condition that a task waits for."""

    call: int
    """The number of the call that waits."""
    mode: NotRequired[str]
    """`any` or `all` of the tasks."""
    name: NotRequired[str]
    """The name of the messages that are waited for, or the call that is tried again."""
    tasks: NotRequired[list[TaskId]]
    """The tasks that are waited for."""
    type: str
    """Open: `tasks`, `readiness`, `message`, `inbox`, `timer`, `retry`, `question`, `approval`,
    `client_tool`.
    """
    until: NotRequired[ApiTime]
    """The end of the wait."""


class WaitRequest(TypedDict):
    """A wait for tasks of one session."""

    mode: NotRequired[WaitMode]
    tasks: list[TaskId]
    """From 1 to 1000 tasks."""
    until: NotRequired[WaitUntil]


class WaitResult(TypedDict):
    """The result of a wait."""

    done: bool
    """False after a timeout. Then nothing was collected."""
    ended: list[EndedTask]
    """The ended tasks, in the order of the request."""
    pending_approvals: list[PendingApproval]
    """The approvals that these tasks and their descendants wait for, if they can end the wait."""
    ready: NotRequired[list[Task]]
    """The tasks that are ready, after a wait until `ready`. Those that have ended since are here too."""
    running: list[Task]


class WhoAmI(TypedDict):
    """The identity of the caller."""

    cursor: str
    """The newest place in the feed of events."""
    token: Token
    version: str
    """The version of the server."""


class Worktree(TypedDict):
    """The git worktree of a task."""

    base: str
    """The id of the commit with which the branch began."""
    branch: str
    kept: NotRequired[bool]
    """True if folder and branch hold work and were kept, false if they were removed. Absent until
    the task has ended and that is known.
    """
    path: str


ApiTime: TypeAlias = "str"
"""A point in time in UTC with milliseconds: `2026-11-17T16:18:32.123Z`."""


EnvValue: TypeAlias = "str | EnvFrom"
"""The value of a variable: a text, or that of a variable of the server, which is never stored."""


NewTask: TypeAlias = "NewProcess | NewAgent | NewJob"
"""A task to start."""


OutputBytes: TypeAlias = "str"
"""The bytes of an output."""


class OutputPieceText(TypedDict):
    stream: StdStream
    text: str


class OutputPieceBase64(TypedDict):
    """Bytes that are not UTF-8."""

    base64: str
    stream: StdStream


class OutputPieceDropped(TypedDict):
    dropped: int


OutputPiece: TypeAlias = "OutputPieceText | OutputPieceBase64 | OutputPieceDropped"
"""Bytes of one stream, or a number of bytes that are no longer stored."""


class SessionRequestWorkspace(TypedDict):
    """The absolute path of a directory. The session is that of its git root."""

    workspace: str
    """The absolute path of a directory. The session is that of its git root."""


class SessionRequestName(TypedDict):
    name: str


SessionRequest: TypeAlias = "SessionRequestWorkspace | SessionRequestName"
"""A session to open: one for a workspace, or one of a name."""


StdStream: TypeAlias = "str"


TaskId: TypeAlias = "str"
"""The id of a task: its session's, a point, its number."""


TokenScope: TypeAlias = 'Literal["operator", "client", "read_only"]'
"""The rights of a token."""


VerdictKind: TypeAlias = 'Literal["allow_once", "allow_always", "deny"]'


WaitMode: TypeAlias = 'Literal["any", "all"]'
"""`any` ends with the first of the tasks, `all` with the last."""


WaitUntil: TypeAlias = 'Literal["ended", "ended_or_input", "ready"]'
"""The event that ends a wait: the end of tasks, or also a question or approval of one; or their
readiness, or the end of one that was not ready before. A wait for readiness collects nothing.
"""
