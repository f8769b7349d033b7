//! A tree of agents and commands as it works: redrawn on a terminal, told line by line elsewhere.
//!
//! [`draw`] is how it looks, [`asking`] has what somebody is asked meanwhile, [`prompt`] which of the
//! lines that they type are for it.

mod draw;
mod prompt;

use std::collections::HashMap;
use std::io::{IsTerminal, Write};
use std::time::Duration;

use brigade_model::json::Json;
use brigade_model::plain_text::PlainText;
use brigade_server::requests::{Answer, Approve, Beginning, Below, Inbox, Read, Which};
use brigade_server::{Client, Target, TaskInfo};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::asking::{self, Asking, Screen};
use crate::attach::Notice;
use crate::context::Context;
use crate::exit::Failure;
use crate::show;

use prompt::{Entered, TerminalPrompt};

const BETWEEN_LOOKS: Duration = Duration::from_millis(250);
/// Looked at for the last line of a command.
const TAIL: u64 = 400;
/// A terminal on which a line of a command has its command beside it, and how much of that.
const WIDE: usize = 100;
const COMMAND: usize = 20;
/// How many tasks are named that are stopped.
const NAMED: usize = 6;
/// Told instead of taking a line that may have been begun under another prompt.
const CHANGED: &str = "brigade: the question has changed; answer again";

#[derive(Debug)]
pub(crate) struct Live<'a> {
    context: &'a Context,
    root: Target,
    face: Face,
    tasks: Vec<TaskInfo>,
    typed: Option<Lines<BufReader<Stdin>>>,
    /// What is asked on the terminal.
    prompt: TerminalPrompt,
    /// The number of the last note that was told.
    told: u64,
    /// Leaves when nobody here can answer what nobody else answers.
    leaves: bool,
    notices: UnboundedReceiver<Notice>,
}

/// Where it is shown.
#[derive(Debug)]
enum Face {
    Terminal {
        /// How wide each line is that will be drawn over.
        drawn: Vec<usize>,
        /// What is there, and how wide the terminal was then.
        last: (usize, String),
    },
    /// What was told of each task.
    Lines {
        told: HashMap<String, String>,
    },
    Nowhere,
}

impl<'a> Live<'a> {
    /// What is to be said beside it is sent to the other one.
    pub(crate) fn new(context: &'a Context, root: Target) -> (Self, UnboundedSender<Notice>) {
        let face = match std::io::stderr().is_terminal() {
            _ if context.json => Face::Nowhere,
            true => Face::Terminal { drawn: Vec::new(), last: (0, String::new()) },
            false => Face::Lines { told: HashMap::new() },
        };
        let asks = matches!(face, Face::Terminal { .. }) && std::io::stdin().is_terminal();
        let typed = asks.then(|| BufReader::new(tokio::io::stdin()).lines());
        let (aside, notices) = unbounded_channel();
        let (tasks, prompt, leaves) = (Vec::new(), TerminalPrompt::default(), false);
        (Self { context, root, face, tasks, typed, prompt, told: 0, leaves, notices }, aside)
    }

    /// Does not stay where only an answer is missing that nobody here can give.
    pub(crate) fn leaving_questions(self) -> Self {
        Self { leaves: true, ..self }
    }

    /// Shows it until it is dropped, or left because of a question.
    pub(crate) async fn show(&mut self, mut client: Client) -> Result<(), Failure> {
        loop {
            if let Err(failure) = self.look(&mut client).await
                && !failure.is_lost_daemon()
            {
                return Err(failure);
            }
            if self.leaves && self.is_stuck() {
                return Ok(());
            }
            tokio::select! {
                () = tokio::time::sleep(BETWEEN_LOOKS) => {}
                Some(notice) = self.notices.recv() => self.tell(notice)?,
                line = next_line(&mut self.typed), if self.prompt.is_shown() => {
                    self.answer(&mut client, line).await?;
                }
            }
        }
    }

    /// How it was in the end.
    pub(crate) async fn finish(&mut self) -> Result<(), Failure> {
        while let Ok(notice) = self.notices.try_recv() {
            self.tell(notice)?;
        }
        if self.prompt.close().is_some() {
            write("\n")?;
        }
        // Nothing more will be typed.
        self.typed = None;
        if let Ok(mut client) = self.context.daemon().await {
            let _ = self.look(&mut client).await;
            if !matches!(self.face, Face::Nowhere) {
                let _ = self.tell_notes(&mut client, true).await;
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
        let others = self.tasks.iter().skip(1).any(|task| task.living);
        let asks = self.root().is_some_and(|root| show::asks(root).is_some());
        self.typed.is_none() && !others && asks
    }

    async fn look(&mut self, client: &mut Client) -> Result<(), Failure> {
        let below = Below { target: self.root.clone() };
        self.tasks = self.context.ask_over(client, below).await?;
        match &self.face {
            Face::Nowhere => Ok(()),
            Face::Lines { .. } => {
                self.tell_changes();
                self.tell_notes(client, false).await
            }
            Face::Terminal { .. } => {
                // What is typed must not be drawn over.
                if !self.prompt.is_shown() {
                    self.tell_notes(client, false).await?;
                    self.draw(client).await?;
                }
                self.ask()
            }
        }
    }

    async fn draw(&mut self, client: &mut Client) -> Result<(), Failure> {
        let Screen { columns, rows } = screen();
        let (shown, more) = draw::fitting(draw::in_order(&self.tasks), rows.saturating_sub(1));
        let mut lines = Vec::with_capacity(shown.len());
        for (depth, task) in shown {
            let note = self.note(client, task, columns).await;
            lines.push(draw::Line { depth, task: task.clone(), note });
        }
        // The last column stays free: some terminals wrap there.
        let frame = draw::frame(&lines, more.as_deref(), columns.saturating_sub(1).max(1));
        self.put("", frame)
    }

    /// Draws over what was drawn: a text that stays, and below it what will be drawn over.
    fn put(&mut self, stays: &str, frame: Vec<String>) -> Result<(), Failure> {
        let Face::Terminal { drawn, last } = &mut self.face else { return Ok(()) };
        let columns = screen().columns;
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
        let width = |line: &String| show::columns(&anstream::adapter::strip_str(line).to_string());
        *drawn = frame.iter().map(width).collect();
        *last = (columns, frame.join("\n"));
        write(&text)
    }

    /// What a task is at: its question, an agent's step and last words, a command and its last line.
    async fn note(&self, client: &mut Client, task: &TaskInfo, columns: usize) -> String {
        if !task.living {
            return failed_how(task).unwrap_or_default();
        }
        match show::doing(task) {
            Some(doing) => doing,
            None if task.is_command() => match self.last_line(client, task).await {
                Some(line) if columns >= WIDE => {
                    format!("{}: {line}", show::cut(&show::one_line(&task.what), COMMAND))
                }
                Some(line) => line,
                None => task.what.clone(),
            },
            None => task.detail.clone().unwrap_or_default(),
        }
    }

    async fn last_line(&self, client: &mut Client, task: &TaskInfo) -> Option<String> {
        let target = Target { task: task.address.clone(), ..self.root.clone() };
        let from = Beginning::End(TAIL);
        let read = Read { target, which: Which::Combined, from, max_bytes: TAIL as usize };
        let page = self.context.ask_over(client, read).await.ok()?;
        page.text().trim_end().lines().last().map(str::to_owned)
    }

    fn tell_changes(&mut self) {
        let Face::Lines { told } = &mut self.face else { return };
        for line in changes(told, &self.tasks) {
            show::note(&line);
        }
    }

    /// What the one at the top says to whoever started it, who hears it here. It counts as read in the
    /// end: a look may be given up before it is shown.
    async fn tell_notes(&mut self, client: &mut Client, take: bool) -> Result<(), Failure> {
        let Target { session, task } = self.root.clone();
        // What is taken is all that was not read, so it begins before what was told.
        let after = if take { 0 } else { self.told };
        let from = Some(task);
        let asked = Inbox { session, from, after, take, notes_only: true, ..Inbox::default() };
        let notes = match self.context.ask_over(client, asked).await {
            // Within a task, what its children say goes to that task and not to us.
            Err(failure) if failure.is_forbidden() => return Ok(()),
            notes => notes?,
        };
        for note in notes {
            if note.number > self.told {
                self.told = note.number;
                self.say(&format!("{} says: {}", show::sender(&note), PlainText::of(&note.text)))?;
            }
        }
        Ok(())
    }

    /// Shows what somebody is to answer, once, and makes room for the answer.
    fn ask(&mut self) -> Result<(), Failure> {
        match Asking::first(&self.tasks, screen()) {
            Some((asking, text)) if !self.prompt.is_about(&asking) && self.typed.is_some() => {
                let line_end = if self.prompt.is_shown() { "\n" } else { "" };
                self.leave_drawn();
                write(&format!("{line_end}{text}"))?;
                self.prompt.show(asking, flush_typed());
                Ok(())
            }
            // It was answered from elsewhere, or is not asked any more.
            None if self.prompt.is_shown() => {
                self.prompt.withdraw();
                flush_typed();
                write("\n")
            }
            _ => Ok(()),
        }
    }

    /// What is there stays there.
    fn leave_drawn(&mut self) {
        if let Face::Terminal { drawn, last } = &mut self.face {
            drawn.clear();
            last.1.clear();
        }
    }

    async fn answer(&mut self, client: &mut Client, line: Option<String>) -> Result<(), Failure> {
        let Some(line) = line else {
            let Some(asking) = self.prompt.close() else { return Ok(()) };
            let command = asking.command(&self.root.task);
            return write(&format!("\nbrigade: `{command}` answers it\n"));
        };
        let asking = match self.prompt.enter() {
            Entered::For(asking) => asking,
            Entered::Outdated => return write(&format!("{CHANGED}\n> ")),
            Entered::Nothing => return Ok(()),
        };
        let said = match asking {
            Asking::Question { .. } if line.trim().is_empty() => return write("> "),
            Asking::Question { call } => {
                let answer = Json::of(&line).map_err(Failure::from)?;
                let asked = Answer { target: self.root.clone(), answer, question: Some(call) };
                self.context.ask_over(client, asked).await
            }
            Asking::Leave { task, call, shown } => {
                let Some(verdict) = asking::verdict_on(&line, shown) else {
                    return write(if shown.is_some() { "y, a or n > " } else { "n > " });
                };
                let target = Target { task, ..self.root.clone() };
                let asked = Approve { target, call: Some(call), digest: shown, verdict };
                self.context.ask_over(client, asked).await
            }
        };
        self.prompt.close();
        if let Err(failure) = said {
            // The agent goes on all the same; what is still open is asked again.
            failure.report();
        }
        Ok(())
    }

    fn tell(&mut self, notice: Notice) -> Result<(), Failure> {
        let without = "the next one goes on with the last step";
        let text = notice.text(without, &self.living());
        self.say(&text)
    }

    /// Says something that stays.
    fn say(&mut self, text: &str) -> Result<(), Failure> {
        match self.face {
            Face::Terminal { .. } => {
                let line_end = if self.prompt.is_shown() { "\n" } else { "" };
                let text = PlainText::of(&format!("brigade: {text}"));
                let text = show::wrapped(text.as_str(), screen().columns);
                self.put(&format!("{line_end}{text}"), Vec::new())
            }
            Face::Lines { .. } | Face::Nowhere => {
                show::note(text);
                Ok(())
            }
        }
    }

    /// All that a stop reaches, by name.
    fn living(&self) -> String {
        let living: Vec<String> =
            self.tasks.iter().filter(|task| task.living).map(show::called).collect();
        match living.as_slice() {
            [] => self.root.task.clone(),
            [only] => only.clone(),
            [many @ .., last] if living.len() <= NAMED => format!("{} and {last}", many.join(", ")),
            many => {
                format!("{} and {} more", many[..NAMED].join(", "), many.len() - NAMED)
            }
        }
    }
}

/// A line for each task of which there is something new, and nothing that changes all the time.
fn changes(told: &mut HashMap<String, String>, tasks: &[TaskInfo]) -> Vec<String> {
    let mut lines = Vec::new();
    for (at, (_, task)) in draw::in_order(tasks).into_iter().enumerate() {
        if at == 0 && !task.living && task.state != "succeeded" {
            // That is told with the result.
            continue;
        }
        let state = show::state(task);
        let note = match (task.living, show::step(task)) {
            (false, _) => failed_how(task),
            (true, Some(step)) => Some(step),
            (true, None) => task.is_command().then(|| task.what.clone()),
        };
        let said = match note {
            Some(note) => show::one_line(&format!("{state}: {note}")),
            None => state,
        };
        if told.get(&task.address) != Some(&said) {
            lines.push(format!("{} {said}", show::called(task)));
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
fn failed_how(task: &TaskInfo) -> Option<String> {
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
pub(crate) fn flush_typed() -> bool {
    use rustix::termios::{QueueSelector, tcflush};
    tcflush(std::io::stdin(), QueueSelector::IFlush).is_ok()
}

/// How large the terminal is.
pub(crate) fn screen() -> Screen {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).ok();
    let size = size.map(|size| Screen { columns: size.ws_col.into(), rows: size.ws_row.into() });
    size.filter(|size| size.columns > 0 && size.rows > 0).unwrap_or_default()
}

/// All at once, so that nothing half-drawn is seen.
fn write(text: &str) -> Result<(), Failure> {
    let mut err = anstream::stderr().lock();
    err.write_all(text.as_bytes()).and_then(|()| err.flush()).map_err(show::unwritable)
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
            changes(&mut told, &[serde_json::from_str(&boss).expect("a task")])
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
