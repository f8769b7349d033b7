//! A tree of agents and commands as it works: redrawn on a terminal, told line by line elsewhere.
//!
//! [`draw`] is how it looks, [`asking`] has what somebody is asked meanwhile, [`prompt`] which of the
//! lines that they type are for it.

mod draw;
mod terminal_prompt;

use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use brigade_model::json::Json;
use brigade_model::plain_text::PlainText;
use brigade_server::requests::{
    AnswerRequest, ApproveRequest, InboxRequest, ListSubtreeRequest, OutputOffset,
    ReadOutputRequest, StreamSelection,
};
use brigade_server::{DaemonConnection, TaskInfo, TaskTarget};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::attach::AttachNotice;
use crate::context::CliContext;
use crate::exit_code::CliError;
use crate::pending_input::{self, PendingInput, ScreenSize};
use crate::render;

use terminal_prompt::{PromptInput, TerminalPrompt};

const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Looked at for the last line of a command.
const TAIL_BYTES: u64 = 400;
/// A terminal on which a line of a command has its command beside it, and how much of that.
const WIDE_COLUMNS: usize = 100;
const COMMAND_COLUMNS: usize = 20;
/// How many tasks are named that are stopped.
const NAMED_TASKS_MAX: usize = 6;
/// Told instead of taking a line that may have been begun under another prompt.
const QUESTION_CHANGED: &str = "brigade: the question has changed; answer again";

#[derive(Debug)]
pub(crate) struct LiveView<'a> {
    context: &'a CliContext,
    root: TaskTarget,
    display: LiveDisplay,
    tasks: Vec<TaskInfo>,
    stdin_lines: Option<Lines<BufReader<Stdin>>>,
    /// What is asked on the terminal.
    prompt: TerminalPrompt,
    /// The number of the last note that was told.
    last_note: u64,
    /// Leaves when nobody here can answer what nobody else answers.
    exit_on_question: bool,
    notices: UnboundedReceiver<AttachNotice>,
}

/// Where it is shown.
#[derive(Debug)]
enum LiveDisplay {
    Terminal {
        /// How wide each line is that will be drawn over.
        drawn: Vec<usize>,
        /// What is there, and how wide the terminal was then.
        last: (usize, String),
    },
    /// What was told of each task.
    Lines {
        reported: HashMap<String, String>,
    },
    Hidden,
}

impl<'a> LiveView<'a> {
    /// What is to be said beside it is sent to the other one.
    pub(crate) fn new(
        context: &'a CliContext,
        root: TaskTarget,
    ) -> (Self, UnboundedSender<AttachNotice>) {
        let face = match std::io::stderr().is_terminal() {
            _ if context.json => LiveDisplay::Hidden,
            true => LiveDisplay::Terminal { drawn: Vec::new(), last: (0, String::new()) },
            false => LiveDisplay::Lines { reported: HashMap::new() },
        };
        let asks = matches!(face, LiveDisplay::Terminal { .. }) && std::io::stdin().is_terminal();
        let typed = asks.then(|| BufReader::new(tokio::io::stdin()).lines());
        let (aside, notices) = unbounded_channel();
        let (tasks, prompt, leaves) = (Vec::new(), TerminalPrompt::default(), false);
        (
            Self {
                context,
                root,
                display: face,
                tasks,
                stdin_lines: typed,
                prompt,
                last_note: 0,
                exit_on_question: leaves,
                notices,
            },
            aside,
        )
    }

    /// Does not stay where only an answer is missing that nobody here can give.
    pub(crate) fn exit_on_question(self) -> Self {
        Self { exit_on_question: true, ..self }
    }

    /// Shows it until it is dropped, or left because of a question.
    pub(crate) async fn run(&mut self, mut client: DaemonConnection) -> Result<(), CliError> {
        loop {
            if let Err(failure) = self.refresh(&mut client).await
                && !failure.is_lost_daemon()
            {
                return Err(failure);
            }
            if self.exit_on_question && self.is_stuck() {
                return Ok(());
            }
            tokio::select! {
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                Some(notice) = self.notices.recv() => self.print_notice(notice)?,
                line = next_line(&mut self.stdin_lines), if self.prompt.is_shown() => {
                    self.handle_line(&mut client, line).await?;
                }
            }
        }
    }

    /// How it was in the end.
    pub(crate) async fn finish(&mut self) -> Result<(), CliError> {
        while let Ok(notice) = self.notices.try_recv() {
            self.print_notice(notice)?;
        }
        if self.prompt.close().is_some() {
            write_stderr("\n")?;
        }
        // Nothing more will be typed.
        self.stdin_lines = None;
        if let Ok(mut client) = self.context.connect_daemon().await {
            let _ = self.refresh(&mut client).await;
            if !matches!(self.display, LiveDisplay::Hidden) {
                let _ = self.print_notes(&mut client, true).await;
            }
        }
        Ok(())
    }

    /// The one at the top, as it was seen last.
    pub(crate) fn root(&self) -> Option<&TaskInfo> {
        self.tasks.first()
    }

    /// Nothing happens any more unless somebody answers, and nobody here can.
    fn is_stuck(&self) -> bool {
        let others = self.tasks.iter().skip(1).any(|task| task.alive);
        let asks = self.root().is_some_and(|root| render::render_pending_input(root).is_some());
        self.stdin_lines.is_none() && !others && asks
    }

    async fn refresh(&mut self, client: &mut DaemonConnection) -> Result<(), CliError> {
        let below = ListSubtreeRequest { target: self.root.clone() };
        self.tasks = self.context.call_over(client, below).await?;
        match &self.display {
            LiveDisplay::Hidden => Ok(()),
            LiveDisplay::Lines { .. } => {
                self.print_changes();
                self.print_notes(client, false).await
            }
            LiveDisplay::Terminal { .. } => {
                // What is typed must not be drawn over.
                if !self.prompt.is_shown() {
                    self.print_notes(client, false).await?;
                    self.draw(client).await?;
                }
                self.update_prompt()
            }
        }
    }

    async fn draw(&mut self, client: &mut DaemonConnection) -> Result<(), CliError> {
        let ScreenSize { columns, rows } = screen_size();
        let (shown, more) = draw::fit_rows(draw::tree_order(&self.tasks), rows.saturating_sub(1));
        let mut lines = Vec::with_capacity(shown.len());
        for (depth, task) in shown {
            let note = self.render_activity(client, task, columns).await;
            lines.push(draw::TreeLine { depth, task: task.clone(), activity: note });
        }
        // The last column stays free: some terminals wrap there.
        let frame = draw::render_frame(&lines, more.as_deref(), columns.saturating_sub(1).max(1));
        self.redraw("", frame)
    }

    /// Draws over what was drawn: a text that stays, and below it what will be drawn over.
    fn redraw(&mut self, stays: &str, frame: Vec<String>) -> Result<(), CliError> {
        let LiveDisplay::Terminal { drawn, last } = &mut self.display else { return Ok(()) };
        let columns = screen_size().columns;
        if stays.is_empty() && *last == (columns, frame.join("\n")) {
            return Ok(());
        }
        // A terminal that became narrower has wrapped what was drawn.
        let rows: usize = drawn.iter().map(|width| width.div_ceil(columns).max(1)).sum();
        let mut text = String::new();
        if rows > 0 {
            text.push_str(&format!("\x1b[{rows}A\r"));
        }
        for line in stays.lines().chain(frame.iter().map(String::as_str)) {
            // Cleared behind what is written, so that nothing is ever blank in between.
            text.push_str(&format!("{line}\x1b[K\n"));
        }
        text.push_str("\x1b[J");
        let width =
            |line: &String| render::display_width(&anstream::adapter::strip_str(line).to_string());
        *drawn = frame.iter().map(width).collect();
        *last = (columns, frame.join("\n"));
        write_stderr(&text)
    }

    /// What a task is at: its question, an agent's step and last words, a command and its last line.
    async fn render_activity(
        &self,
        client: &mut DaemonConnection,
        task: &TaskInfo,
        columns: usize,
    ) -> String {
        if !task.alive {
            return failure_reason(task).unwrap_or_default();
        }
        match render::render_activity(task) {
            Some(doing) => doing,
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

    async fn read_last_line(
        &self,
        client: &mut DaemonConnection,
        task: &TaskInfo,
    ) -> Option<String> {
        let target = TaskTarget { task: task.address.clone(), ..self.root.clone() };
        let from = OutputOffset::FromEnd(TAIL_BYTES);
        let read = ReadOutputRequest {
            target,
            streams: StreamSelection::Combined,
            from,
            max_bytes: TAIL_BYTES as usize,
        };
        let page = self.context.call_over(client, read).await.ok()?;
        page.text().trim_end().lines().last().map(str::to_owned)
    }

    fn print_changes(&mut self) {
        let LiveDisplay::Lines { reported: told } = &mut self.display else { return };
        for line in render_changes(told, &self.tasks) {
            render::print_note(&line);
        }
    }

    /// What the one at the top says to whoever started it, who hears it here. It counts as read in the
    /// end: a look may be given up before it is shown.
    async fn print_notes(
        &mut self,
        client: &mut DaemonConnection,
        take: bool,
    ) -> Result<(), CliError> {
        let TaskTarget { session, task } = self.root.clone();
        // What is taken is all that was not read, so it begins before what was told.
        let after = if take { 0 } else { self.last_note };
        let from = Some(task);
        let asked = InboxRequest {
            session,
            from,
            after,
            mark_read: take,
            notes_only: true,
            ..InboxRequest::default()
        };
        let notes = match self.context.call_over(client, asked).await {
            // Within a task, what its children say goes to that task and not to us.
            Err(failure) if failure.is_forbidden() => return Ok(()),
            notes => notes?,
        };
        for note in notes {
            if note.number > self.last_note {
                self.last_note = note.number;
                self.print_text(&format!(
                    "{} says: {}",
                    render::render_sender(&note),
                    PlainText::of(&note.text)
                ))?;
            }
        }
        Ok(())
    }

    /// Shows what somebody is to answer, once, and makes room for the answer.
    fn update_prompt(&mut self) -> Result<(), CliError> {
        match PendingInput::first_pending(&self.tasks, screen_size()) {
            Some((asking, text))
                if !self.prompt.is_same_call(&asking) && self.stdin_lines.is_some() =>
            {
                let line_end = if self.prompt.is_shown() { "\n" } else { "" };
                self.freeze_frame();
                write_stderr(&format!("{line_end}{text}"))?;
                self.prompt.show(asking, flush_terminal_input());
                Ok(())
            }
            // It was answered from elsewhere, or is not asked any more.
            None if self.prompt.is_shown() => {
                self.prompt.withdraw();
                flush_terminal_input();
                write_stderr("\n")
            }
            _ => Ok(()),
        }
    }

    /// What is there stays there.
    fn freeze_frame(&mut self) {
        if let LiveDisplay::Terminal { drawn, last } = &mut self.display {
            drawn.clear();
            last.1.clear();
        }
    }

    async fn handle_line(
        &mut self,
        client: &mut DaemonConnection,
        line: Option<String>,
    ) -> Result<(), CliError> {
        let Some(line) = line else {
            let Some(asking) = self.prompt.close() else { return Ok(()) };
            let command = asking.answer_command(&self.root.task);
            return write_stderr(&format!("\nbrigade: `{command}` answers it\n"));
        };
        let asking = match self.prompt.take_line() {
            PromptInput::Answer(asking) => asking,
            PromptInput::Outdated => return write_stderr(&format!("{QUESTION_CHANGED}\n> ")),
            PromptInput::Ignored => return Ok(()),
        };
        let said = match asking {
            PendingInput::Question { .. } if line.trim().is_empty() => return write_stderr("> "),
            PendingInput::Question { call } => {
                let answer = Json::of(&line).map_err(CliError::from)?;
                let asked =
                    AnswerRequest { target: self.root.clone(), answer, question: Some(call) };
                self.context.call_over(client, asked).await
            }
            PendingInput::Approval { task, call, shown_digest: shown } => {
                let Some(verdict) = pending_input::parse_verdict_on(&line, shown) else {
                    return write_stderr(if shown.is_some() { "y, a or n > " } else { "n > " });
                };
                let target = TaskTarget { task, ..self.root.clone() };
                let asked = ApproveRequest { target, call: Some(call), digest: shown, verdict };
                self.context.call_over(client, asked).await
            }
        };
        self.prompt.close();
        if let Err(failure) = said {
            // The agent goes on all the same; what is still open is asked again.
            failure.report();
        }
        Ok(())
    }

    fn print_notice(&mut self, notice: AttachNotice) -> Result<(), CliError> {
        let without = "the next one goes on with the last step";
        let text = notice.render(without, &self.render_alive());
        self.print_text(&text)
    }

    /// Says something that stays.
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

    /// All that a stop reaches, by name.
    fn render_alive(&self) -> String {
        let living: Vec<String> =
            self.tasks.iter().filter(|task| task.alive).map(render::render_label).collect();
        match living.as_slice() {
            [] => self.root.task.clone(),
            [only] => only.clone(),
            [many @ .., last] if living.len() <= NAMED_TASKS_MAX => {
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

/// A line for each task of which there is something new, and nothing that changes all the time.
fn render_changes(told: &mut HashMap<String, String>, tasks: &[TaskInfo]) -> Vec<String> {
    let mut lines = Vec::new();
    for (at, (_, task)) in draw::tree_order(tasks).into_iter().enumerate() {
        if at == 0 && !task.alive && task.state != "succeeded" {
            // That is told with the result.
            continue;
        }
        let state = render::render_state(task);
        let note = match (task.alive, render::render_step(task)) {
            (false, _) => failure_reason(task),
            (true, Some(step)) => Some(step),
            (true, None) => task.is_process().then(|| task.description.clone()),
        };
        let said = match note {
            Some(note) => render::render_one_line(&format!("{state}: {note}")),
            None => state,
        };
        if told.get(&task.address) != Some(&said) {
            lines.push(format!("{} {said}", render::render_label(task)));
            told.insert(task.address.clone(), said);
        }
    }
    lines
}

async fn next_line(typed: &mut Option<Lines<BufReader<Stdin>>>) -> Option<String> {
    let Some(lines) = typed else { return std::future::pending().await };
    let line = lines.next_line().await.ok().flatten();
    if line.is_none() {
        // Nothing more will be typed.
        *typed = None;
    }
    line
}

/// Why it did not succeed, beyond what its state says.
fn failure_reason(task: &TaskInfo) -> Option<String> {
    let detail = task.detail.as_deref().filter(|_| task.state != "succeeded")?;
    if task.exit_code.is_some() || task.signal.is_some() {
        return None;
    }
    let why = detail.strip_prefix(task.state.as_str()).unwrap_or(detail);
    let why = why.trim_start_matches([':', ' ']);
    let inner = why.strip_prefix('(').and_then(|why| why.strip_suffix(')'));
    Some(inner.unwrap_or(why).to_owned()).filter(|why| !why.is_empty())
}

/// Drops what was typed and not read, also of a line that is not entered. False if that cannot be.
pub(crate) fn flush_terminal_input() -> bool {
    use rustix::termios::{QueueSelector, tcflush};
    tcflush(std::io::stdin(), QueueSelector::IFlush).is_ok()
}

/// How large the terminal is.
pub(crate) fn screen_size() -> ScreenSize {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).ok();
    let size =
        size.map(|size| ScreenSize { columns: size.ws_col.into(), rows: size.ws_row.into() });
    size.filter(|size| size.columns > 0 && size.rows > 0).unwrap_or_default()
}

/// All at once, so that nothing half-drawn is seen.
fn write_stderr(text: &str) -> Result<(), CliError> {
    let mut err = anstream::stderr().lock();
    err.write_all(text.as_bytes()).and_then(|()| err.flush()).map_err(render::output_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_told_of_each_step_and_not_of_each_word() {
        let mut told = HashMap::new();
        let mut at = |progress: &str| {
            let boss = format!(
                r#"{{"address":"agent:1","session":"/src/soup","what":"cook","state":"running","living":true,
                    "run":1,"attempt":1,"spawned":0,"moved":0,"progress":{progress}}}"#
            );
            render_changes(&mut told, &[serde_json::from_str(&boss).expect("a task")])
        };
        assert_eq!(
            at(r#"{"step":1,"doing":"thinking","words":""}"#),
            ["agent:1 running: step 1, thinking"]
        );
        let nothing: [&str; 0] = [];
        assert_eq!(at(r#"{"step":1,"doing":"thinking","words":"I"}"#), nothing);
        assert_eq!(at(r#"{"step":1,"doing":"thinking","words":"I look"}"#), nothing);
        assert_eq!(
            at(r#"{"step":1,"doing":"list_tasks","words":"I look"}"#),
            ["agent:1 running: step 1, list_tasks"]
        );
    }
}
