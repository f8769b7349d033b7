//! `brigade top`: the full-screen task list.

use std::io::{self, IsTerminal};
use std::time::Duration;

use brigade_model::approval::ApprovalVerdict;
use brigade_model::json::Json;
use brigade_protocol::requests::{
    AnswerRequest, ApproveRequest, ListTasksRequest, OutputOffset, ReadOutputRequest, SendRequest,
    ShowTaskRequest, StopRequest, StreamSelection,
};
use brigade_protocol::{ClientError, DaemonConnection, TaskInfo, TaskTarget};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::context::{CliContext, collect_task_pages};
use crate::exit_code::{CliError, CliExitCode};
use crate::pending_input::ScreenSize;
use crate::top_view::draw::draw;
use crate::top_view::state::{TopAction, TopScope, TopState};
use crate::{render, transcript};

/// The interval of updates without keys.
const POLL_INTERVAL: Duration = Duration::from_millis(400);
/// Bytes read of the end of an output.
const TAIL_BYTES: u64 = 16 * 1024;

/// Full-screen task list; stop, message and read with a key
#[derive(Debug, clap::Args)]
#[command(after_help = KEYS)]
pub(crate) struct TopArgs {
    /// Start with all workspaces
    #[arg(long, short)]
    all: bool,
}

const KEYS: &str = "\
Keys:
  up, down, j, k    select a task            g, G    first, last task
  o, enter          output, and back         m       message, answer, approve
  s                 stop it                  K       stop without a grace period
  a                 all workspaces, or one   q       quit; tasks keep running";

impl TopArgs {
    pub(crate) async fn run(self, context: &CliContext) -> Result<CliExitCode, CliError> {
        if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
            return Err(
                CliError::usage("top needs a terminal").with_hint("`brigade ps` prints the list")
            );
        }
        let client = context.connect_daemon().await?.connect().await?;
        let session = context.session_name()?;
        let mut view = TopView { context, client, session, state: TopState::default() };
        view.state.scope = if self.all { TopScope::AllWorkspaces } else { TopScope::Workspace };
        let keys = spawn_key_reader();
        let terminal = ratatui::try_init()?;
        let result = view.run(terminal, keys).await;
        ratatui::restore();
        result.map(|()| CliExitCode::SUCCEEDED)
    }
}

struct TopView<'a> {
    context: &'a CliContext,
    client: DaemonConnection,
    session: String,
    state: TopState,
}

impl TopView<'_> {
    async fn run(
        &mut self,
        mut terminal: DefaultTerminal,
        mut keys: mpsc::Receiver<Event>,
    ) -> Result<(), CliError> {
        let mut hangup = signal(SignalKind::hangup())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut ticks = tokio::time::interval(POLL_INTERVAL);
        loop {
            tokio::select! {
                _ = ticks.tick() => self.refresh().await?,
                event = keys.recv() => match event {
                    Some(Event::Key(key)) if key.kind != KeyEventKind::Release => {
                        let action = self.state.handle_key(key);
                        if action == TopAction::Quit {
                            return Ok(());
                        }
                        self.perform(action).await?;
                    }
                    // For example a resize: the next frame is drawn anew.
                    Some(_) => {}
                    None => return Ok(()),
                },
                _ = hangup.recv() => return Ok(()),
                _ = terminate.recv() => return Ok(()),
            }
            let drawn = terminal.size()?;
            self.state.screen =
                ScreenSize { columns: drawn.width.into(), rows: drawn.height.into() };
            terminal.draw(|frame| draw(frame, &self.state, &self.session, render::now_millis()))?;
        }
    }

    async fn perform(&mut self, action: TopAction) -> Result<(), CliError> {
        let reply = match action {
            TopAction::Nothing | TopAction::Quit => return Ok(()),
            TopAction::Refresh => return self.refresh().await,
            TopAction::Stop { session, task, now } => {
                let target = TaskTarget { session, task: task.clone() };
                let stop = StopRequest { target, reason: None, grace_ms: now.then_some(0) };
                let word = if now { "killing" } else { "stopping" };
                self.client.call(stop).await.map(|_| format!("{word} {task}"))
            }
            TopAction::Send { session, task, text } => {
                let target = TaskTarget { session, task: task.clone() };
                let send = SendRequest::new(target, Json::of(&text)?);
                self.client.call(send).await.map(|_| format!("sent to {task}"))
            }
            TopAction::Answer { session, task, question, text } => {
                let target = TaskTarget { session, task: task.clone() };
                let answer = Json::of(&text)?;
                let answer = AnswerRequest { target, answer, question: Some(question) };
                self.client.call(answer).await.map(|()| format!("answered {task}"))
            }
            TopAction::Approve { session, task, call, shown_digest, verdict } => {
                let target = TaskTarget { session, task: task.clone() };
                let note = match &verdict {
                    ApprovalVerdict::AllowOnce => format!("{task}: allowed once"),
                    ApprovalVerdict::AllowAlways { .. } => {
                        format!("{task}: allowed always in this session and directory")
                    }
                    ApprovalVerdict::Deny { .. } => format!("{task}: denied"),
                };
                let approve =
                    ApproveRequest { target, call: Some(call), digest: shown_digest, verdict };
                self.client.call(approve).await.map(|_| note)
            }
        };
        self.state.note = Some(match reply {
            Ok(note) => note,
            Err(ClientError::Refused(refusal)) => refusal.message,
            Err(error) => error.to_string(),
        });
        self.refresh().await
    }

    /// Reloads the list and the selected task's output. Connects to the next daemon if this one is
    /// lost.
    async fn refresh(&mut self) -> Result<(), CliError> {
        let session = match self.state.scope {
            TopScope::Workspace => Some(self.session.clone()),
            TopScope::AllWorkspaces => None,
        };
        match collect_task_pages(
            &self.client,
            ListTasksRequest { session, ..ListTasksRequest::default() },
        )
        .await
        {
            Ok(tasks) => self.update(tasks).await,
            Err(ClientError::Lost | ClientError::NotReceived | ClientError::NoDaemon(_)) => {
                self.client = self.context.connect_daemon().await?.connect().await?;
                self.state.note = Some("the daemon was replaced".to_owned());
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        }
        self.read_output().await;
        Ok(())
    }

    /// Applies a new list. It has only alive tasks, so ended ones are read one by one.
    async fn update(&mut self, tasks: Vec<TaskInfo>) {
        for ended in self.state.update(tasks) {
            let target = TaskTarget { session: ended.session, task: ended.address };
            if let Ok(task) = self.client.call(ShowTaskRequest { target }).await {
                self.state.add_ended(task);
            }
        }
    }

    async fn read_output(&mut self) {
        let Some(task) = self.state.selected() else { return };
        let target = TaskTarget { session: task.session.clone(), task: task.address.clone() };
        if task.is_agent() {
            let text = transcript::read_tail(&self.client, target, TAIL_BYTES).await;
            self.state.output = text.unwrap_or_default();
            return;
        }
        let from = OutputOffset::FromEnd(TAIL_BYTES);
        let read = ReadOutputRequest {
            target,
            streams: StreamSelection::Combined,
            from,
            max_bytes: TAIL_BYTES as usize,
        };
        // Jobs have no output, and that of an ended task may have been pruned.
        self.state.output = match self.client.call(read).await {
            Ok(page) => page.text(),
            Err(_) => String::new(),
        };
    }
}

/// Reads keys and resizes on a thread. It ends with the program, since a read of a terminal cannot
/// be cancelled.
fn spawn_key_reader() -> mpsc::Receiver<Event> {
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
