//! Everything that runs, on the whole screen.

use std::io::{self, IsTerminal};
use std::time::Duration;

use brigade_model::approval::Verdict;
use brigade_model::json::Json;
use brigade_server::requests::{Answer, Approve, Beginning, List, Read, Send, Show, Stop, Which};
use brigade_server::{Client, ClientError, Target, TaskInfo};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::asking::Screen;
use crate::context::{Context, list_pages};
use crate::exit::{Exit, Failure};
use crate::top::board::{Board, Scope, Wish};
use crate::top::draw::draw;
use crate::{show, transcript};

/// How often the list is asked for when nobody presses a key.
const LOOK: Duration = Duration::from_millis(400);
/// How much of the end of an output is read.
const TAIL: u64 = 16 * 1024;

/// Watch everything that runs here, on the whole screen; stop, message and read with a key
#[derive(Debug, clap::Args)]
#[command(after_help = KEYS)]
pub(crate) struct Top {
    /// Begin with every workspace instead of this one
    #[arg(long, short)]
    all: bool,
}

const KEYS: &str = "\
Keys:
  up, down, j, k    select a task            g, G    the first, the last
  o, enter          its output, and back     m       message, answer, leave
  s                 stop it                  K       stop it without grace
  a                 all workspaces, or one   q       leave; what runs goes on";

impl Top {
    pub(crate) async fn run(self, context: &Context) -> Result<Exit, Failure> {
        if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
            return Err(Failure::usage("top needs a terminal").hint("`brigade ps` prints the list"));
        }
        let client = context.daemon().await?;
        let session = context.session()?;
        let mut view = View { context, client, session, board: Board::default() };
        view.board.scope = if self.all { Scope::Everywhere } else { Scope::Here };
        let keys = keys();
        let terminal = ratatui::try_init()?;
        let watched = view.watch(terminal, keys).await;
        ratatui::restore();
        watched.map(|()| Exit::SUCCEEDED)
    }
}

struct View<'a> {
    context: &'a Context,
    client: Client,
    session: String,
    board: Board,
}

impl View<'_> {
    async fn watch(
        &mut self,
        mut terminal: DefaultTerminal,
        mut keys: mpsc::Receiver<Event>,
    ) -> Result<(), Failure> {
        let mut hangup = signal(SignalKind::hangup())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut look = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                _ = look.tick() => self.refresh().await?,
                event = keys.recv() => match event {
                    Some(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                        let wish = self.board.press(key);
                        if wish == Wish::Leave {
                            return Ok(());
                        }
                        self.grant(wish).await?;
                    }
                    // A resize, for one: what is there is drawn anew.
                    Some(_) => {}
                    None => return Ok(()),
                },
                _ = hangup.recv() => return Ok(()),
                _ = terminate.recv() => return Ok(()),
            }
            let drawn = terminal.size()?;
            self.board.screen = Screen { columns: drawn.width.into(), rows: drawn.height.into() };
            terminal.draw(|frame| draw(frame, &self.board, &self.session, show::now()))?;
        }
    }

    async fn grant(&mut self, wish: Wish) -> Result<(), Failure> {
        let answer = match wish {
            Wish::Nothing | Wish::Leave => return Ok(()),
            Wish::Refresh => return self.refresh().await,
            Wish::Stop { session, task, now } => {
                let target = Target { session, task: task.clone() };
                let stop = Stop { target, reason: None, grace_ms: now.then_some(0) };
                let word = if now { "killing" } else { "stopping" };
                self.client.ask(stop).await.map(|_| format!("{word} {task}"))
            }
            Wish::Send { session, task, text } => {
                let target = Target { session, task: task.clone() };
                let message = Some(Json::of(&text)?);
                let send = Send { target, message, last: false, interrupt: false };
                self.client.ask(send).await.map(|_| format!("sent to {task}"))
            }
            Wish::Answer { session, task, question, text } => {
                let target = Target { session, task: task.clone() };
                let answer = Json::of(&text)?;
                let answer = Answer { target, answer, question: Some(question) };
                self.client.ask(answer).await.map(|()| format!("answered {task}"))
            }
            Wish::Approve { session, task, call, shown, verdict } => {
                let target = Target { session, task: task.clone() };
                let said = match &verdict {
                    Verdict::AllowOnce => format!("{task} may, once"),
                    Verdict::AllowAlways { .. } => {
                        format!("{task} may, always there in this session")
                    }
                    Verdict::Deny { .. } => format!("{task} may not"),
                };
                let approve = Approve { target, call: Some(call), digest: shown, verdict };
                self.client.ask(approve).await.map(|_| said)
            }
        };
        self.board.note = Some(match answer {
            Ok(said) => said,
            Err(ClientError::Refused(refusal)) => refusal.message,
            Err(error) => error.to_string(),
        });
        self.refresh().await
    }

    /// Asks for the list and the selected task's output, of the next daemon if this one is gone.
    async fn refresh(&mut self) -> Result<(), Failure> {
        let session = match self.board.scope {
            Scope::Here => Some(self.session.clone()),
            Scope::Everywhere => None,
        };
        match list_pages(&self.client, List { session, ..List::default() }).await {
            Ok(tasks) => self.update(tasks).await,
            Err(ClientError::Lost | ClientError::Unheard | ClientError::NoDaemon(_)) => {
                self.client = self.context.daemon().await?;
                self.board.note = Some("the daemon was replaced".to_owned());
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
        self.read().await;
        Ok(())
    }

    /// The operator's list has only what lives: how the others ended is asked one by one.
    async fn update(&mut self, tasks: Vec<TaskInfo>) {
        for gone in self.board.update(tasks) {
            let target = Target { session: gone.session, task: gone.address };
            if let Ok(task) = self.client.ask(Show { target }).await {
                self.board.remember(task);
            }
        }
    }

    async fn read(&mut self) {
        let Some(task) = self.board.selected() else { return };
        let target = Target { session: task.session.clone(), task: task.address.clone() };
        if task.is_agent() {
            let said = transcript::tail(&self.client, target, TAIL).await;
            self.board.output = said.unwrap_or_default();
            return;
        }
        let from = Beginning::End(TAIL);
        let read = Read { target, which: Which::Combined, from, max_bytes: TAIL as usize };
        // Jobs have none, and what is over may have been pruned.
        self.board.output = match self.client.ask(read).await {
            Ok(page) => page.text(),
            Err(_) => String::new(),
        };
    }
}

/// Keys and resizes. The thread ends with the program: a read of a terminal cannot be given up.
fn keys() -> mpsc::Receiver<Event> {
    let (sender, events) = mpsc::channel(64);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.blocking_send(event).is_err() {
                return;
            }
        }
    });
    events
}
