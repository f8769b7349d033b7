//! Staying with a command while it runs: its output as it comes, its end, and Ctrl-C.

use std::io;
use std::time::Duration;

use brigade_model::call::WaitMode;
use brigade_model::refusal::RefusalKind;
use brigade_server::ask::Ask;
use brigade_server::client::{Answers, Step};
use brigade_server::requests::{Beginning, Follow, OutputPage, Stop, Wait, Which};
use brigade_server::{Client, ClientError, Target, TaskInfo};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use crate::context::Context;
use crate::exit::Failure;
use crate::lease::ReaderLease;
use crate::output::Printing;
use crate::show::{note, unwritable};

/// How long a command that goes on without us may have to wait until it does.
const RELEASE_WITHIN: Duration = Duration::from_millis(500);
/// How long what is being written may still take when patience is over.
const LAST_PAGE: Duration = Duration::from_millis(500);

/// How it came out.
#[derive(Debug)]
pub(crate) enum Attended {
    Ended(Box<TaskInfo>),
    /// The same, but so many bytes of its output could not be shown although none was to be dropped.
    EndedWithGaps(Box<TaskInfo>, u64),
    /// Patience was over first.
    GoesOn,
    /// Somebody would not wait for the end that was asked for twice.
    Left,
}

/// A command that is being watched.
#[derive(Debug)]
pub(crate) struct Attachment<'a> {
    context: &'a Context,
    target: Target,
    output: Showing,
    /// None when nothing is shown.
    printing: Option<Printing>,
    until: Option<Instant>,
    interrupts: Signal,
    asked: Asked,
    /// Who says what is to be said beside the output, when it is not for us to say.
    aside: Option<UnboundedSender<Notice>>,
    /// Nothing of the output is to be dropped. None when that may happen.
    lease: Option<ReaderLease>,
    /// Whether there was a lease, which may be over.
    is_lossless: bool,
}

/// What is to be said beside the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    DaemonLost,
    Stopping,
    Forcing,
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
    ToLeave,
}

/// What comes next of the output.
type Paged = Result<Step<OutputPage, ()>, ClientError>;

impl<'a> Attachment<'a> {
    pub(crate) fn new(
        context: &'a Context,
        target: Target,
        output: Showing,
        patience: Option<Duration>,
    ) -> Result<Self, Failure> {
        let interrupts = signal(SignalKind::interrupt())?;
        let until = patience.map(|patience| Instant::now() + patience);
        let (printing, asked) = (None, Asked::Nothing);
        Ok(Self {
            context,
            target,
            output,
            printing,
            until,
            interrupts,
            asked,
            aside: None,
            lease: None,
            is_lossless: false,
        })
    }

    /// Leaves it to another to say what is to be said.
    pub(crate) fn telling(self, aside: UnboundedSender<Notice>) -> Self {
        Self { aside: Some(aside), ..self }
    }

    /// Has the output written by this.
    pub(crate) fn printing(self, printing: Printing) -> Self {
        Self { printing: Some(printing), ..self }
    }

    /// Has the command wait rather than drop output that was not shown, while this client renews its lease of
    /// this time.
    pub(crate) fn lossless(self, time: Duration) -> Self {
        let lease = Some(ReaderLease::new(self.target.clone(), time));
        Self { lease, is_lossless: true, ..self }
    }

    /// Stays until the end, also when the daemon is replaced or killed meanwhile.
    pub(crate) async fn attend(mut self, mut client: Client) -> Result<Attended, Failure> {
        loop {
            match self.watch(&client).await {
                Err(failure) if failure.is_lost_daemon() => {
                    self.tell(Notice::DaemonLost);
                    client = self.context.daemon().await?;
                    if let Some(lease) = &mut self.lease {
                        lease.forget_daemon();
                    }
                }
                watched => {
                    self.release(&client).await;
                    return watched;
                }
            }
        }
    }

    /// What goes on in the background has nobody to wait for.
    async fn release(&mut self, client: &Client) {
        if let Some(lease) = &mut self.lease {
            let _ = tokio::time::timeout(RELEASE_WITHIN, lease.release(client)).await;
        }
    }

    async fn watch(&mut self, client: &Client) -> Result<Attended, Failure> {
        let mut output = self.follow(client)?;
        let mut ended = client.stream(self.wait())?;
        // A daemon that went away may not have heard it.
        let mut stop = self.stop(client)?;
        let mut end = None;
        loop {
            let all_is_there = output.is_none() && end.is_some();
            tokio::select! {
                page = next_page(&mut self.printing, &mut output),
                    if output.is_some() || all_is_there => match (page.map_err(unwritable)?, end.take()) {
                    (Some(step), ending) => {
                        end = ending;
                        if self.show(step)? {
                            output = None;
                        }
                    }
                    (None, Some(task)) => return Ok(self.ended(task)),
                    (None, None) => {}
                },
                step = ended.next(), if end.is_none() => {
                    let Step::Done(mut waited) = step?;
                    let lost = || Failure::broken("the daemon waited for something else");
                    end = Some(Box::new(waited.ended.pop().ok_or_else(lost)?));
                }
                Some(()) = self.interrupts.recv() => {
                    self.interrupt();
                    if self.asked == Asked::ToLeave {
                        return Ok(Attended::Left);
                    }
                    stop = self.stop(client)?;
                }
                // Asked beside the output, which must be taken for the answer to come through.
                step = next(&mut stop) => {
                    step?;
                    stop = None;
                }
                renewed = renew(&mut self.lease, client) => match renewed {
                    // There is nothing to hold any more.
                    Err(ClientError::Refused(_)) => self.lease = None,
                    renewed => renewed?,
                },
                () = over(self.until) => {
                    let _ = tokio::time::timeout(LAST_PAGE, ready(&mut self.printing)).await;
                    return Ok(Attended::GoesOn);
                }
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

    fn ended(&mut self, task: Box<TaskInfo>) -> Attended {
        match self.printing.as_ref().map_or(0, Printing::lost) {
            0 => Attended::Ended(task),
            _ if !self.is_lossless => Attended::Ended(task),
            lost => Attended::EndedWithGaps(task, lost),
        }
    }

    /// Begins to write what came. True when nothing follows.
    fn show(&mut self, step: Paged) -> Result<bool, Failure> {
        match step {
            Ok(Step::Item(page)) => {
                self.output = Showing::From(page.next);
                if let Some(lease) = &mut self.lease {
                    lease.note_read(&page);
                }
                self.begin(Some(page));
                Ok(false)
            }
            Ok(Step::Done(())) => {
                self.begin(None);
                Ok(true)
            }
            Err(ClientError::Refused(refusal)) if is_gone(refusal.kind) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    fn begin(&mut self, page: Option<OutputPage>) {
        if let Some(printing) = &mut self.printing {
            printing.begin(page);
        }
    }

    /// First kindly, then firmly, then not any more.
    fn interrupt(&mut self) {
        self.asked = match self.asked {
            Asked::Nothing => {
                self.tell(Notice::Stopping);
                Asked::ToStop
            }
            Asked::ToStop => {
                self.tell(Notice::Forcing);
                Asked::ToDie
            }
            Asked::ToDie | Asked::ToLeave => Asked::ToLeave,
        };
    }

    fn tell(&self, notice: Notice) {
        if let Some(aside) = &self.aside {
            let _ = aside.send(notice);
            return;
        }
        note(&notice.text("the command goes on, looking for the next daemon", &self.target.task));
    }

    /// The stop that was asked for, if one was.
    fn stop(&self, client: &Client) -> Result<Option<Answers<Stop>>, Failure> {
        let grace_ms = match self.asked {
            Asked::Nothing => return Ok(None),
            Asked::ToStop => None,
            Asked::ToDie | Asked::ToLeave => Some(0),
        };
        let reason = Some("interrupted".to_owned());
        Ok(Some(client.stream(Stop { target: self.target.clone(), reason, grace_ms })?))
    }
}

impl Notice {
    /// In words: what becomes of the work without a daemon, and who is to end.
    pub(crate) fn text(self, without: &str, whom: &str) -> String {
        match self {
            Self::DaemonLost => format!("the daemon went away; {without}"),
            Self::Stopping => format!("stopping {whom}; Ctrl-C again to force it"),
            Self::Forcing => format!("forcing {whom}; Ctrl-C again to leave without its end"),
        }
    }
}

/// The output may be pruned, or was never made.
fn is_gone(kind: RefusalKind) -> bool {
    matches!(kind, RefusalKind::NotFound | RefusalKind::Invalid)
}

/// The next page, when the one before it is written. None when that was the last.
async fn next_page(
    printing: &mut Option<Printing>,
    output: &mut Option<Answers<Follow>>,
) -> io::Result<Option<Paged>> {
    ready(printing).await?;
    match output {
        Some(output) => Ok(Some(output.next().await)),
        None => Ok(None),
    }
}

async fn ready(printing: &mut Option<Printing>) -> io::Result<()> {
    match printing {
        Some(printing) => printing.ready().await,
        None => Ok(()),
    }
}

async fn next<A: Ask>(
    answers: &mut Option<Answers<A>>,
) -> Result<Step<A::Item, A::Done>, ClientError> {
    match answers {
        Some(answers) => answers.next().await,
        None => std::future::pending().await,
    }
}

async fn renew(lease: &mut Option<ReaderLease>, client: &Client) -> Result<(), ClientError> {
    match lease {
        Some(lease) => lease.renew(client).await,
        None => std::future::pending().await,
    }
}

async fn over(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}
