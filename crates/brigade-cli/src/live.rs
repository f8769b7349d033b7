//! A tree of agents and commands as it works: redrawn on a terminal, told line by line elsewhere.

use std::collections::{BTreeMap, HashMap};
use std::io::{IsTerminal, Write};
use std::time::Duration;

use brigade_agent::Progress;
use brigade_model::json::Json;
use brigade_model::limits::Usage;
use brigade_server::requests::{Answer, Beginning, List, Read, Which};
use brigade_server::{Client, Target, TaskInfo};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};

use crate::context::Context;
use crate::exit::Failure;
use crate::show;

const BETWEEN_LOOKS: Duration = Duration::from_millis(250);
/// Looked at for the last line of a command.
const TAIL: u64 = 400;
/// The most lines of the tree.
const LINES_MAX: usize = 40;

#[derive(Debug)]
pub(crate) struct Live<'a> {
    context: &'a Context,
    root: Target,
    /// Lines that are on the terminal and will be drawn over.
    drawn: usize,
    terminal: bool,
    /// What was told of each task, where nothing is redrawn.
    told: HashMap<String, String>,
    tasks: Vec<TaskInfo>,
    typed: Option<Lines<BufReader<Stdin>>>,
    /// The question that was shown last.
    shown: Option<u32>,
}

impl<'a> Live<'a> {
    pub(crate) fn new(context: &'a Context, root: Target) -> Self {
        let terminal = std::io::stderr().is_terminal() && !context.json;
        let asks = terminal && std::io::stdin().is_terminal();
        let typed = asks.then(|| BufReader::new(tokio::io::stdin()).lines());
        let (told, tasks) = (HashMap::new(), Vec::new());
        Self { context, root, drawn: 0, terminal, told, tasks, typed, shown: None }
    }

    /// Shows it until it is dropped.
    pub(crate) async fn show(&mut self, mut client: Client) -> Result<(), Failure> {
        loop {
            if let Err(failure) = self.look(&mut client).await
                && !failure.is_lost_daemon()
            {
                return Err(failure);
            }
            tokio::select! {
                () = tokio::time::sleep(BETWEEN_LOOKS) => {}
                line = next_line(&mut self.typed), if self.shown.is_some() => {
                    if let Some(line) = line {
                        self.answer(&mut client, line).await?;
                    }
                }
            }
        }
    }

    /// How it was in the end.
    pub(crate) async fn finish(&mut self) {
        self.shown = None;
        if let Ok(mut client) = self.context.daemon().await {
            let _ = self.look(&mut client).await;
        }
    }

    /// Whether somebody at the top waits for an answer.
    pub(crate) fn asks(&self) -> bool {
        let root = self.tasks.iter().find(|task| task.address == self.root.task);
        root.is_some_and(|root| !root.questions.is_empty())
    }

    async fn look(&mut self, client: &mut Client) -> Result<(), Failure> {
        let list = List { session: Some(self.root.session.clone()), ended: true, most: Some(500) };
        self.tasks = below(&self.root.task, self.context.ask_over(client, list).await?);
        if self.context.json {
            return Ok(());
        }
        let mut lines = Vec::new();
        for (depth, task) in depths(&self.tasks) {
            let note = self.note(client, task).await;
            lines.push((depth, task.clone(), note));
        }
        if self.terminal {
            self.draw(&lines)?;
        } else {
            self.tell(&lines);
        }
        self.ask()
    }

    /// What a task is at: an agent's step and last words, a command's last line.
    async fn note(&self, client: &mut Client, task: &TaskInfo) -> String {
        if let Some(detail) = task.detail.as_ref().filter(|_| !task.living) {
            return if task.state == "succeeded" { String::new() } else { detail.clone() };
        }
        if let Some(question) = task.questions.first() {
            return format!("asks: {}", question.text);
        }
        let progress = task.progress.as_ref().and_then(|note| note.decode::<Progress>().ok());
        if let Some(progress) = progress.filter(|progress| progress.step > 0) {
            let words = progress.words.lines().last().unwrap_or_default();
            let words = if words.is_empty() { String::new() } else { format!(" — {words}") };
            return format!("step {}, {}{words}", progress.step, progress.doing);
        }
        self.last_line(client, task).await.unwrap_or_default()
    }

    async fn last_line(&self, client: &mut Client, task: &TaskInfo) -> Option<String> {
        let target = Target { task: task.address.clone(), ..self.root.clone() };
        let from = Beginning::End(TAIL);
        let read = Read { target, which: Which::Combined, from, max_bytes: TAIL as usize };
        let page = self.context.ask_over(client, read).await.ok()?;
        page.text().trim_end().lines().last().map(str::to_owned)
    }

    fn draw(&mut self, lines: &[(usize, TaskInfo, String)]) -> Result<(), Failure> {
        // What is typed must not be drawn over.
        if self.shown.is_some() {
            return Ok(());
        }
        let mut frame = String::new();
        if self.drawn > 0 {
            frame.push_str(&format!("\x1b[{}A\r\x1b[J", self.drawn));
        }
        self.drawn = lines.len().min(LINES_MAX);
        for (depth, task, note) in &lines[lines.len() - self.drawn..] {
            let before = format!("{}{}", "  ".repeat(*depth), heading(task));
            let rest = show::one_line(&format!("{}{note}", spent(&task.usage)));
            let rest = show::to_the_edge_of_stderr(&format!("{before}  "), &rest);
            frame.push_str(&format!("{before}  {rest}\n"));
        }
        let mut err = anstream::stderr().lock();
        let written = write!(err, "{frame}").and_then(|()| err.flush());
        written.map_err(show::unwritable)
    }

    fn tell(&mut self, lines: &[(usize, TaskInfo, String)]) {
        for (_, task, note) in lines {
            let state = show::state(task);
            let said = if note.is_empty() { state } else { format!("{state}: {note}") };
            let before = self.told.insert(task.address.clone(), said.clone());
            if before.as_ref() != Some(&said) {
                show::note(&format!("{} {}", called(task), show::one_line(&said)));
            }
        }
    }

    /// Shows a question of the one at the top, once, and makes room for the answer.
    fn ask(&mut self) -> Result<(), Failure> {
        let root = self.tasks.iter().find(|task| task.address == self.root.task);
        let question = root.and_then(|root| root.questions.first());
        match (question, self.shown) {
            (Some(question), shown) if shown != Some(question.call) && self.typed.is_some() => {
                let mut err = anstream::stderr().lock();
                let address = &self.root.task;
                let written = write!(err, "\n{address} asks: {}\n> ", question.text);
                written.and_then(|()| err.flush()).map_err(show::unwritable)?;
                self.shown = Some(question.call);
                self.drawn = 0;
            }
            (None, Some(_)) => self.shown = None,
            _ => {}
        }
        Ok(())
    }

    async fn answer(&mut self, client: &mut Client, line: String) -> Result<(), Failure> {
        if line.trim().is_empty() {
            return Ok(());
        }
        let answer = Json::of(&line).map_err(Failure::from)?;
        let question = self.shown.take();
        let asked = Answer { target: self.root.clone(), answer, question };
        self.context.ask_over(client, asked).await
    }
}

async fn next_line(typed: &mut Option<Lines<BufReader<Stdin>>>) -> Option<String> {
    match typed {
        Some(lines) => match lines.next_line().await {
            Ok(Some(line)) => Some(line),
            // Nothing more will be typed.
            _ => {
                *typed = None;
                None
            }
        },
        None => std::future::pending().await,
    }
}

/// The tasks at and below one.
fn below(root: &str, tasks: Vec<TaskInfo>) -> Vec<TaskInfo> {
    let mut within: Vec<String> = vec![number(root).to_owned()];
    let mut found = Vec::new();
    for task in tasks {
        let own = number(&task.address).to_owned();
        let inside = task.parent.as_ref().is_some_and(|parent| within.contains(parent));
        if task.address == root || inside {
            within.push(own);
            found.push(task);
        }
    }
    found
}

fn number(address: &str) -> &str {
    address.rsplit(':').next().unwrap_or(address)
}

/// In the order of the tree, each with how deep it is.
fn depths(tasks: &[TaskInfo]) -> Vec<(usize, &TaskInfo)> {
    let mut children: BTreeMap<&str, Vec<&TaskInfo>> = BTreeMap::new();
    for task in &tasks[tasks.len().min(1)..] {
        children.entry(task.parent.as_deref().unwrap_or_default()).or_default().push(task);
    }
    let mut ordered = Vec::new();
    let mut left: Vec<(usize, &TaskInfo)> =
        tasks.first().map(|root| (0, root)).into_iter().collect();
    while let Some((depth, task)) = left.pop() {
        ordered.push((depth, task));
        let below = children.remove(number(&task.address)).unwrap_or_default();
        left.extend(below.into_iter().rev().map(|child| (depth + 1, child)));
    }
    ordered
}

fn called(task: &TaskInfo) -> String {
    match &task.name {
        Some(name) => format!("{} ({name})", task.address),
        None => task.address.clone(),
    }
}

fn heading(task: &TaskInfo) -> String {
    format!("{} {}", called(task), show::painted(task))
}

fn spent(usage: &Usage) -> String {
    match (usage.tokens, usage.money.0) {
        (0, 0) => String::new(),
        (tokens, 0) => format!("[{}] ", show::tokens(tokens)),
        (tokens, money) => format!("[{}, ${:.4}] ", show::tokens(tokens), money as f64 / 1e6),
    }
}
