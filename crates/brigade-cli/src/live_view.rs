//! The live view of a task tree: redrawn on a terminal, line by line elsewhere.
//!
//! [`draw`] renders the tree. [`terminal_prompt`] decides which typed lines answer a prompt.

mod draw;
mod terminal_prompt;

use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use brigade_model::json::Json;
use brigade_model::plain_text::PlainText;
use brigade_protocol::daemon_client::DaemonClient;
use brigade_protocol::requests::{
    AnswerRequest, ApproveRequest, InboxRequest, ListSubtreeRequest, OutputOffset,
    ReadOutputRequest, StreamSelection,
};
use brigade_protocol::{TaskInfo, TaskTarget};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::attach::AttachNotice;
use crate::context::{CliContext, call_over};
use crate::exit_code::CliError;
use crate::pending_input::{self, PendingInput, Prompt, ScreenSize};
use crate::render;

use terminal_prompt::{PromptInput, TerminalPrompt};

const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Bytes read to find the last line of a process.
const TAIL_BYTES: u64 = 400;
/// The terminal width from which a process shows its command line beside its output, and its width.
const WIDE_COLUMNS: usize = 100;
const COMMAND_COLUMNS: usize = 20;
/// Tasks that a stop notice names.
const NAMED_TASKS_MAX: usize = 6;
/// The reply to a line that may have been typed for another prompt.
const QUESTION_CHANGED: &str = "brigade: the question has changed; answer again";

#[derive(Debug)]
pub(crate) struct LiveView<'a> {
    context: &'a CliContext,
    root: TaskTarget,
    display: LiveDisplay,
    tasks: Vec<TaskInfo>,
    stdin_lines: Option<Lines<BufReader<Stdin>>>,
    /// The prompt on the terminal.
    prompt: TerminalPrompt,
    /// The number of the last printed note.
    last_note: u64,
    /// Exits when the tree waits for input that nobody here can give.
    exit_on_question: bool,
    notices: UnboundedReceiver<AttachNotice>,
}

/// The display of the tree.
#[derive(Debug)]
enum LiveDisplay {
    Terminal {
        /// The width of each line that the next frame overwrites.
        drawn: Vec<usize>,
        /// The terminal width and text of the last frame.
        last: (usize, String),
    },
    /// The last printed line of each task.
    Lines {
        reported: HashMap<String, String>,
    },
    Hidden,
}

impl<'a> LiveView<'a> {
    /// Returns a view and the sender of its notices.
    pub(crate) fn new(
        context: &'a CliContext,
        root: TaskTarget,
    ) -> (Self, UnboundedSender<AttachNotice>) {
        let display = match std::io::stderr().is_terminal() {
            _ if context.json => LiveDisplay::Hidden,
            true => LiveDisplay::Terminal { drawn: Vec::new(), last: (0, String::new()) },
            false => LiveDisplay::Lines { reported: HashMap::new() },
        };
        let has_prompts =
            matches!(display, LiveDisplay::Terminal { .. }) && std::io::stdin().is_terminal();
        let stdin_lines = has_prompts.then(|| BufReader::new(tokio::io::stdin()).lines());
        let (notice_sender, notices) = unbounded_channel();
        (
            Self {
                context,
                root,
                display,
                tasks: Vec::new(),
                stdin_lines,
                prompt: TerminalPrompt::default(),
                last_note: 0,
                exit_on_question: false,
                notices,
            },
            notice_sender,
        )
    }

    /// Makes `run` return when only an answer is missing that nobody here can give.
    pub(crate) fn exit_on_question(self) -> Self {
        Self { exit_on_question: true, ..self }
    }

    /// Draws the tree until it is dropped, or until a question ends it.
    pub(crate) async fn run(&mut self, client: DaemonClient) -> Result<(), CliError> {
        loop {
            if let Err(error) = self.refresh(&client).await
                && !error.is_lost_daemon()
            {
                return Err(error);
            }
            if self.exit_on_question && self.is_stuck() {
                return Ok(());
            }
            tokio::select! {
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                Some(notice) = self.notices.recv() => self.print_notice(notice)?,
                line = next_line(&mut self.stdin_lines), if self.prompt.is_shown() => {
                    self.handle_line(&client, line).await?;
                }
            }
        }
    }

    /// Prints the final state.
    pub(crate) async fn finish(&mut self) -> Result<(), CliError> {
        while let Ok(notice) = self.notices.try_recv() {
            self.print_notice(notice)?;
        }
        if self.prompt.close().is_some() {
            write_stderr("\n")?;
        }
        // No more input follows.
        self.stdin_lines = None;
        if let Ok(client) = self.context.connect_daemon().await {
            let _ = self.refresh(&client).await;
            if !matches!(self.display, LiveDisplay::Hidden) {
                let _ = self.print_notes(&client, true).await;
            }
        }
        Ok(())
    }

    /// Returns the root task, as last seen.
    pub(crate) fn root(&self) -> Option<&TaskInfo> {
        self.tasks.first()
    }

    /// Returns the address of the last program of the root task, if that is an agent program.
    pub(crate) fn program(&self) -> Option<&str> {
        let root = draw::task_number(&self.root()?.address);
        let is_program =
            |task: &&TaskInfo| task.part_of_parent && task.parent.as_deref() == Some(root);
        self.tasks.iter().rev().find(is_program).map(|task| task.address.as_str())
    }

    /// Returns true if the tree waits for an answer that nobody here can give.
    fn is_stuck(&self) -> bool {
        let has_alive_descendants = self.tasks.iter().skip(1).any(|task| task.alive);
        let needs_input =
            self.root().is_some_and(|root| render::render_pending_input(root).is_some());
        self.stdin_lines.is_none() && !has_alive_descendants && needs_input
    }

    async fn refresh(&mut self, client: &DaemonClient) -> Result<(), CliError> {
        let request = ListSubtreeRequest { target: self.root.clone() };
        self.tasks = call_over(client, request).await?;
        match &self.display {
            LiveDisplay::Hidden => Ok(()),
            LiveDisplay::Lines { .. } => {
                self.print_changes();
                self.print_notes(client, false).await
            }
            LiveDisplay::Terminal { .. } => {
                // A typed line must not be overwritten.
                if !self.prompt.is_shown() {
                    self.print_notes(client, false).await?;
                    self.draw(client).await?;
                }
                self.update_prompt()
            }
        }
    }

    async fn draw(&mut self, client: &DaemonClient) -> Result<(), CliError> {
        let ScreenSize { columns, rows } = screen_size();
        let fitted = draw::fit_rows(draw::tree_order(&self.tasks), rows.saturating_sub(1));
        let mut lines = Vec::with_capacity(fitted.rows.len());
        for draw::OrderedTask { depth, task } in fitted.rows {
            let activity = match is_reported_by_result(depth, task) {
                true => String::new(),
                false => self.render_activity(client, task, columns).await,
            };
            lines.push(draw::TreeLine { depth, task: task.clone(), activity });
        }
        // The last column stays free, since some terminals wrap there.
        let summary = fitted.summary.as_deref();
        let frame = draw::render_frame(&lines, summary, columns.saturating_sub(1).max(1));
        self.redraw("", frame)
    }

    /// Overwrites the last frame: a text that stays, then the new frame.
    fn redraw(&mut self, text_above: &str, frame: Vec<String>) -> Result<(), CliError> {
        let LiveDisplay::Terminal { drawn, last } = &mut self.display else { return Ok(()) };
        let columns = screen_size().columns;
        if text_above.is_empty() && *last == (columns, frame.join("\n")) {
            return Ok(());
        }
        // A terminal that became narrower has wrapped the last frame.
        let rows: usize = drawn.iter().map(|width| width.div_ceil(columns).max(1)).sum();
        let mut text = String::new();
        if rows > 0 {
            text.push_str(&format!("\x1b[{rows}A\r"));
        }
        for line in text_above.lines().chain(frame.iter().map(String::as_str)) {
            // Clears the rest of the line after the text, so that nothing flickers.
            text.push_str(&format!("{line}\x1b[K\n"));
        }
        text.push_str("\x1b[J");
        let width =
            |line: &String| render::display_width(&anstream::adapter::strip_str(line).to_string());
        *drawn = frame.iter().map(width).collect();
        *last = (columns, frame.join("\n"));
        write_stderr(&text)
    }

    /// Renders the activity of a task: its question, an agent's step and last text, or a process's
    /// last line.
    async fn render_activity(
        &self,
        client: &DaemonClient,
        task: &TaskInfo,
        columns: usize,
    ) -> String {
        if !task.alive {
            return failure_reason(task).unwrap_or_default();
        }
        match render::render_activity(task) {
            Some(activity) => activity,
            None if task.is_process() => match self.read_last_line(client, task).await {
                Some(line) if columns >= WIDE_COLUMNS => {
                    format!(
                        "{}: {line}",
                        render::truncate_to_width(
                            &render::render_one_line(&task.description),
                            COMMAND_COLUMNS
                        )
                    )
                }
                Some(line) => line,
                None => task.description.clone(),
            },
            None => task.detail.clone().unwrap_or_default(),
        }
    }

    async fn read_last_line(&self, client: &DaemonClient, task: &TaskInfo) -> Option<String> {
        let target = TaskTarget { task: task.address.clone(), ..self.root.clone() };
        let from = OutputOffset::FromEnd(TAIL_BYTES);
        let read = ReadOutputRequest {
            target,
            streams: StreamSelection::Combined,
            from,
            max_bytes: TAIL_BYTES as usize,
        };
        let page = call_over(client, read).await.ok()?;
        page.text().trim_end().lines().last().map(str::to_owned)
    }

    fn print_changes(&mut self) {
        let LiveDisplay::Lines { reported } = &mut self.display else { return };
        for line in render_changes(reported, &self.tasks) {
            render::print_note(&line);
        }
    }

    /// Prints new messages of the root task. They count as read only at the end, since an earlier
    /// call may be cancelled before they are printed.
    async fn print_notes(
        &mut self,
        client: &DaemonClient,
        mark_read: bool,
    ) -> Result<(), CliError> {
        let TaskTarget { session, task } = self.root.clone();
        // Marking as read includes all unread messages, also those already printed.
        let after = if mark_read { 0 } else { self.last_note };
        let request = InboxRequest {
            session,
            from: Some(task),
            after,
            mark_read,
            notes_only: true,
            ..InboxRequest::default()
        };
        let notes = match call_over(client, request).await {
            // Within a task, messages of its children go to that task and not to us.
            Err(error) if error.is_forbidden() => return Ok(()),
            notes => notes?,
        };
        for note in notes {
            if note.number > self.last_note {
                self.last_note = note.number;
                let sender = render::render_sender(&note);
                let name = note.message_name.as_deref().map(render::render_message_name);
                let name = name.map(|name| format!(" ({name})")).unwrap_or_default();
                self.print_text(&format!("{sender} says{name}: {}", PlainText::of(&note.text)))?;
            }
        }
        Ok(())
    }

    /// Shows the prompt for a pending input, once.
    fn update_prompt(&mut self) -> Result<(), CliError> {
        match PendingInput::first_pending(&self.tasks, screen_size()) {
            Some(Prompt { input, text })
                if !self.prompt.is_same_call(&input) && self.stdin_lines.is_some() =>
            {
                let line_end = if self.prompt.is_shown() { "\n" } else { "" };
                self.freeze_frame();
                let is_flushed = write_question(&format!("{line_end}{text}"))?;
                self.prompt.show(input, is_flushed);
                Ok(())
            }
            // It was answered elsewhere, or is no longer pending.
            None if self.prompt.is_shown() => {
                self.prompt.withdraw();
                flush_terminal_input();
                write_stderr("\n")
            }
            _ => Ok(()),
        }
    }

    /// Keeps the last frame on the screen.
    fn freeze_frame(&mut self) {
        if let LiveDisplay::Terminal { drawn, last } = &mut self.display {
            drawn.clear();
            last.1.clear();
        }
    }

    async fn handle_line(
        &mut self,
        client: &DaemonClient,
        line: Option<String>,
    ) -> Result<(), CliError> {
        let Some(line) = line else {
            let Some(input) = self.prompt.close() else { return Ok(()) };
            let command = input.answer_command(&self.root.task);
            return write_stderr(&format!("\nbrigade: `{command}` answers it\n"));
        };
        let input = match self.prompt.take_line() {
            PromptInput::Answer(input) => input,
            PromptInput::Outdated => return write_stderr(&format!("{QUESTION_CHANGED}\n> ")),
            PromptInput::Ignored => return Ok(()),
        };
        let result = match input {
            PendingInput::Question { .. } if line.trim().is_empty() => return write_stderr("> "),
            PendingInput::Question { call } => {
                let answer = Json::of(&line).map_err(CliError::from)?;
                let target = self.root.clone();
                let request = AnswerRequest { target, answer, question: Some(call) };
                call_over(client, request).await
            }
            PendingInput::Approval { task, call, shown_digest } => {
                let Some(verdict) = pending_input::parse_verdict_on(&line, shown_digest) else {
                    return write_stderr(if shown_digest.is_some() {
                        "y, a or n > "
                    } else {
                        "n > "
                    });
                };
                let target = TaskTarget { task, ..self.root.clone() };
                let request =
                    ApproveRequest { target, call: Some(call), digest: shown_digest, verdict };
                call_over(client, request).await
            }
        };
        self.prompt.close();
        if let Err(error) = result {
            // The agent continues, and an open question is asked again.
            error.report();
        }
        Ok(())
    }

    fn print_notice(&mut self, notice: AttachNotice) -> Result<(), CliError> {
        let effect = "the next one continues with the last step";
        let text = notice.render(effect, &self.render_alive());
        self.print_text(&text)
    }

    /// Prints a text that stays on the screen.
    fn print_text(&mut self, text: &str) -> Result<(), CliError> {
        match self.display {
            LiveDisplay::Terminal { .. } => {
                let line_end = if self.prompt.is_shown() { "\n" } else { "" };
                let text = PlainText::of(&format!("brigade: {text}"));
                let text = render::wrap_words(text.as_str(), screen_size().columns);
                self.redraw(&format!("{line_end}{text}"), Vec::new())
            }
            LiveDisplay::Lines { .. } | LiveDisplay::Hidden => {
                render::print_note(text);
                Ok(())
            }
        }
    }

    /// Names the alive tasks, which a stop reaches.
    fn render_alive(&self) -> String {
        let labels: Vec<String> =
            self.tasks.iter().filter(|task| task.alive).map(render::render_label).collect();
        match labels.as_slice() {
            [] => self.root.task.clone(),
            [only] => only.clone(),
            [many @ .., last] if labels.len() <= NAMED_TASKS_MAX => {
                format!("{} and {last}", many.join(", "))
            }
            many => {
                format!(
                    "{} and {} more",
                    many[..NAMED_TASKS_MAX].join(", "),
                    many.len() - NAMED_TASKS_MAX
                )
            }
        }
    }
}

/// Renders a line for each task whose state or step changed.
fn render_changes(reported: &mut HashMap<String, String>, tasks: &[TaskInfo]) -> Vec<String> {
    let mut lines = Vec::new();
    for draw::OrderedTask { depth, task } in draw::tree_order(tasks) {
        if is_reported_by_result(depth, task) {
            continue;
        }
        let state = render::render_state(task);
        let note = match (task.alive, render::render_step(task)) {
            (false, _) => failure_reason(task),
            (true, Some(step)) => Some(step),
            (true, None) => task.is_process().then(|| task.description.clone()),
        };
        let line = match note {
            Some(note) => render::render_one_line(&format!("{state}: {note}")),
            None => state,
        };
        if reported.get(&task.address) != Some(&line) {
            lines.push(format!("{} {line}", render::render_label(task)));
            reported.insert(task.address.clone(), line);
        }
    }
    lines
}

/// Returns true for a root task that did not succeed. The result of the run gives the reason.
fn is_reported_by_result(depth: usize, task: &TaskInfo) -> bool {
    depth == 0 && !task.alive && task.state != "succeeded"
}

async fn next_line(stdin_lines: &mut Option<Lines<BufReader<Stdin>>>) -> Option<String> {
    let Some(lines) = stdin_lines else { return std::future::pending().await };
    let line = lines.next_line().await.ok().flatten();
    if line.is_none() {
        // No more input follows.
        *stdin_lines = None;
    }
    line
}

/// Returns the reason of a failure, beyond the state.
fn failure_reason(task: &TaskInfo) -> Option<String> {
    let detail = task.detail.as_deref().filter(|_| task.state != "succeeded")?;
    if task.exit_code.is_some() || task.signal.is_some() {
        return None;
    }
    let reason = detail.strip_prefix(task.state.as_str()).unwrap_or(detail);
    let reason = reason.trim_start_matches([':', ' ']);
    let inner = reason.strip_prefix('(').and_then(|reason| reason.strip_suffix(')'));
    Some(inner.unwrap_or(reason).to_owned()).filter(|reason| !reason.is_empty())
}

/// Writes a text whose last line asks for input. Input counts that was typed after the other lines were
/// shown. Returns false if earlier input cannot be dropped.
pub(crate) fn write_question(text: &str) -> Result<bool, CliError> {
    let (shown, question) = text.split_at(text.rfind('\n').map_or(0, |end| end + 1));
    write_stderr(shown)?;
    // After the question, an answer could be dropped that somebody has typed at once.
    let is_flushed = flush_terminal_input();
    write_stderr(question)?;
    Ok(is_flushed)
}

/// Drops typed input that was not read, also of an unfinished line. Returns false if that fails.
fn flush_terminal_input() -> bool {
    use rustix::termios::{QueueSelector, tcflush};
    tcflush(std::io::stdin(), QueueSelector::IFlush).is_ok()
}

/// Returns the size of the terminal.
pub(crate) fn screen_size() -> ScreenSize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).ok();
    let size =
        size.map(|size| ScreenSize { columns: size.ws_col.into(), rows: size.ws_row.into() });
    size.filter(|size| size.columns > 0 && size.rows > 0).unwrap_or_default()
}

/// Writes a text at once, so that no half-drawn frame is seen.
fn write_stderr(text: &str) -> Result<(), CliError> {
    let mut err = anstream::stderr().lock();
    err.write_all(text.as_bytes()).and_then(|()| err.flush()).map_err(render::output_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_printed_per_step_and_not_per_word() {
        let mut reported = HashMap::new();
        let mut at = |progress: &str| {
            let boss = format!(
                r#"{{"address":"agent:1","session":"/src/soup","description":"cook","state":"running","alive":true,
                    "run":1,"attempt":1,"spawned_at":0,"last_activity_at":0,"progress":{progress}}}"#
            );
            render_changes(&mut reported, &[serde_json::from_str(&boss).expect("a task")])
        };
        assert_eq!(
            at(r#"{"step":1,"activity":"thinking","last_text":""}"#),
            ["agent:1 running: step 1, thinking"]
        );
        let nothing: [&str; 0] = [];
        assert_eq!(at(r#"{"step":1,"activity":"thinking","last_text":"I"}"#), nothing);
        assert_eq!(at(r#"{"step":1,"activity":"thinking","last_text":"I look"}"#), nothing);
        assert_eq!(
            at(r#"{"step":1,"activity":"list_tasks","last_text":"I look"}"#),
            ["agent:1 running: step 1, list_tasks"]
        );
    }

    #[test]
    fn the_program_of_an_agent_has_no_line() {
        let task = |fields: serde_json::Value| -> TaskInfo {
            let mut task = serde_json::json!({
                "session": "/src/soup", "description": "cook", "state": "running", "alive": true,
                "run": 1, "attempt": 1, "spawned_at": 0, "last_activity_at": 0,
            });
            task.as_object_mut()
                .expect("an object")
                .extend(fields.as_object().expect("an object").clone());
            serde_json::from_value(task).expect("a task")
        };
        let tasks = [
            task(serde_json::json!({ "address": "agent:1" })),
            task(serde_json::json!({
                "address": "process:2", "kind": "process", "parent": "1", "part_of_parent": true,
            })),
            task(serde_json::json!({ "address": "process:3", "kind": "process", "parent": "1" })),
        ];
        let lines = render_changes(&mut HashMap::new(), &tasks);
        assert_eq!(lines, ["agent:1 running", "process:3 running: cook"]);
    }
}
