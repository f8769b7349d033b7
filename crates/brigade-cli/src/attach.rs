//! Staying with a command while it runs: its output as it comes, its end, and Ctrl-C.

use std::io::{self, Write};
use std::time::Duration;

use brigade_model::call::WaitMode;
use brigade_model::refusal::RefusalKind;
use brigade_server::ask::Ask;
use brigade_server::client::{Answers, Step};
use brigade_server::requests::{Beginning, Which};
use brigade_server::requests::{Follow, OutputPage, OutputPiece, Stop, Wait};
use brigade_server::{Client, ClientError, Target, TaskInfo};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;

use crate::context::Context;
use crate::exit::Failure;
use crate::show::note;

/// How it came out.
#[derive(Debug)]
pub(crate) enum Attended {
    Ended(Box<TaskInfo>),
    /// Patience was over first.
    GoesOn,
}

/// A command that is being watched.
#[derive(Debug)]
pub(crate) struct Attachment<'a> {
    context: &'a Context,
    target: Target,
    output: Showing,
    until: Option<Instant>,
    interrupts: Signal,
    asked: Asked,
}

/// What is done with the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Showing {
    /// Each stream goes on to ours, from this position in both.
    From(u64),
    Nothing,
}

/// How far Ctrl-C has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Nothing,
    ToStop,
    ToDie,
}

impl<'a> Attachment<'a> {
    pub(crate) fn new(
        context: &'a Context,
        target: Target,
        output: Showing,
        patience: Option<Duration>,
    ) -> Result<Self, Failure> {
        let interrupts = signal(SignalKind::interrupt())?;
        let until = patience.map(|patience| Instant::now() + patience);
        Ok(Self { context, target, output, until, interrupts, asked: Asked::Nothing })
    }

    /// Stays until the end, also when the daemon is replaced or killed meanwhile.
    pub(crate) async fn attend(mut self, mut client: Client) -> Result<Attended, Failure> {
        loop {
            match self.watch(&client).await {
                Err(failure) if failure.is_lost_daemon() => {
                    note("the daemon went away; the command goes on, looking for the next daemon");
                    client = self.context.daemon().await?;
                }
                watched => return watched,
            }
        }
    }

    async fn watch(&mut self, client: &Client) -> Result<Attended, Failure> {
        let mut output = self.follow(client)?;
        let mut ended = client.stream(self.wait())?;
        // A daemon that went away may not have heard it.
        let mut stop = self.stop(client)?;
        let mut end = None;
        loop {
            if output.is_none()
                && let Some(task) = end.take()
            {
                return Ok(Attended::Ended(task));
            }
            tokio::select! {
                step = next(&mut output) => match step {
                    Ok(Step::Item(page)) => self.show(&page)?,
                    Ok(Step::Done(())) => output = None,
                    Err(ClientError::Refused(refusal)) if is_gone(refusal.kind) => output = None,
                    Err(error) => return Err(error.into()),
                },
                step = ended.next(), if end.is_none() => {
                    let Step::Done(mut waited) = step?;
                    let lost = || Failure::broken("the daemon waited for something else");
                    end = Some(Box::new(waited.ended.pop().ok_or_else(lost)?));
                }
                Some(()) = self.interrupts.recv() => {
                    self.interrupt();
                    stop = self.stop(client)?;
                }
                // Asked beside the output, which must be taken for the answer to come through.
                step = next(&mut stop) => {
                    step?;
                    stop = None;
                }
                () = over(self.until) => return Ok(Attended::GoesOn),
            }
        }
    }

    fn follow(&self, client: &Client) -> Result<Option<Answers<Follow>>, Failure> {
        let Showing::From(position) = self.output else { return Ok(None) };
        let (which, from) = (Which::Combined, Beginning::At(position));
        Ok(Some(client.stream(Follow { target: self.target.clone(), which, from })?))
    }

    fn wait(&self) -> Wait {
        let Target { session, task } = self.target.clone();
        Wait { session, tasks: vec![task], mode: WaitMode::All, timeout_ms: None }
    }

    fn show(&mut self, page: &OutputPage) -> Result<(), Failure> {
        write_page(page)?;
        self.output = Showing::From(page.next);
        Ok(())
    }

    /// First kindly, then firmly.
    fn interrupt(&mut self) {
        let name = &self.target.task;
        self.asked = match self.asked {
            Asked::Nothing => {
                note(&format!("stopping {name}; Ctrl-C again to force it"));
                Asked::ToStop
            }
            Asked::ToStop | Asked::ToDie => {
                note(&format!("forcing {name}"));
                Asked::ToDie
            }
        };
    }

    /// The stop that was asked for, if one was.
    fn stop(&self, client: &Client) -> Result<Option<Answers<Stop>>, Failure> {
        let grace_ms = match self.asked {
            Asked::Nothing => return Ok(None),
            Asked::ToStop => None,
            Asked::ToDie => Some(0),
        };
        let reason = Some("interrupted".to_owned());
        Ok(Some(client.stream(Stop { target: self.target.clone(), reason, grace_ms })?))
    }
}

/// Writes each stream to ours, byte by byte as it was.
pub(crate) fn write_page(page: &OutputPage) -> io::Result<()> {
    let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
    for piece in &page.pieces {
        match piece {
            OutputPiece::Stdout(bytes) => out.write_all(&bytes.0)?,
            OutputPiece::Stderr(bytes) => {
                // What came before it is seen before it.
                out.flush()?;
                err.write_all(&bytes.0)?;
            }
            OutputPiece::Cut(bytes) => {
                out.flush()?;
                writeln!(err, "brigade: {bytes} bytes of output are not kept")?;
            }
        }
    }
    out.flush()
}

/// The output may be pruned, or was never made.
fn is_gone(kind: RefusalKind) -> bool {
    matches!(kind, RefusalKind::NotFound | RefusalKind::Invalid)
}

async fn next<A: Ask>(
    answers: &mut Option<Answers<A>>,
) -> Result<Step<A::Item, A::Done>, ClientError> {
    match answers {
        Some(answers) => answers.next().await,
        None => std::future::pending().await,
    }
}

async fn over(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}
