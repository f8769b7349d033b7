//! Staying with a command while it runs: its output as it comes, its end, and Ctrl-C.

use std::io;
use std::time::Duration;

use brigade_model::call::WaitMode;
use brigade_model::refusal::RefusalKind;
use brigade_server::call::Call;
use brigade_server::daemon_connection::{ReplyStream, ReplyStreamPart};
use brigade_server::requests::{
    FollowOutputRequest, OutputOffset, OutputPageItem, StopRequest, StreamSelection, WaitRequest,
};
use brigade_server::{ClientError, DaemonConnection, TaskInfo, TaskTarget};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use crate::context::CliContext;
use crate::exit_code::CliError;
use crate::output_printer::PrinterThread;
use crate::reader_lease::ReaderLease;
use crate::render::{output_error, print_note};

/// How long a command that goes on without us may have to wait until it does.
const RELEASE_TIMEOUT: Duration = Duration::from_millis(500);
/// How long what is being written may still take when patience is over.
const LAST_PAGE_TIMEOUT: Duration = Duration::from_millis(500);

/// How it came out.
#[derive(Debug)]
pub(crate) enum AttachResult {
    Ended(Box<TaskInfo>),
    /// The same, but so many bytes of its output could not be shown although none was to be dropped.
    EndedWithGaps(Box<TaskInfo>, u64),
    /// Patience was over first.
    StillRunning,
    /// Somebody would not wait for the end that was asked for twice.
    Detached,
}

/// A command that is being watched.
#[derive(Debug)]
pub(crate) struct TaskAttachment<'a> {
    context: &'a CliContext,
    target: TaskTarget,
    display: OutputDisplay,
    /// None when nothing is shown.
    printer: Option<PrinterThread>,
    deadline: Option<Instant>,
    interrupts: Signal,
    interrupt_level: InterruptLevel,
    /// Who says what is to be said beside the output, when it is not for us to say.
    notice_sender: Option<UnboundedSender<AttachNotice>>,
    /// Nothing of the output is to be dropped. None when that may happen.
    lease: Option<ReaderLease>,
    /// Whether there was a lease, which may be over.
    is_lossless: bool,
}

/// What is to be said beside the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttachNotice {
    DaemonLost,
    Stopping,
    Forcing,
}

/// What is done with the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputDisplay {
    /// Each stream goes on to ours, from this position in both.
    From(u64),
    Hidden,
}

/// How far Ctrl-C has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InterruptLevel {
    NoStop,
    Graceful,
    Forced,
    Detach,
}

/// What comes next of the output.
type PageResult = Result<ReplyStreamPart<OutputPageItem, ()>, ClientError>;

impl<'a> TaskAttachment<'a> {
    pub(crate) fn new(
        context: &'a CliContext,
        target: TaskTarget,
        output: OutputDisplay,
        patience: Option<Duration>,
    ) -> Result<Self, CliError> {
        let interrupts = signal(SignalKind::interrupt())?;
        let until = patience.map(|patience| Instant::now() + patience);
        let (printing, asked) = (None, InterruptLevel::NoStop);
        Ok(Self {
            context,
            target,
            display: output,
            printer: printing,
            deadline: until,
            interrupts,
            interrupt_level: asked,
            notice_sender: None,
            lease: None,
            is_lossless: false,
        })
    }

    /// Leaves it to another to say what is to be said.
    pub(crate) fn with_notice_sender(self, aside: UnboundedSender<AttachNotice>) -> Self {
        Self { notice_sender: Some(aside), ..self }
    }

    /// Has the output written by this.
    pub(crate) fn with_printer(self, printing: PrinterThread) -> Self {
        Self { printer: Some(printing), ..self }
    }

    /// Has the command wait rather than drop output that was not shown, while this client renews its lease of
    /// this time.
    pub(crate) fn with_lease(self, time: Duration) -> Self {
        let lease = Some(ReaderLease::new(self.target.clone(), time));
        Self { lease, is_lossless: true, ..self }
    }

    /// Stays until the end, also when the daemon is replaced or killed meanwhile.
    pub(crate) async fn run(
        mut self,
        mut client: DaemonConnection,
    ) -> Result<AttachResult, CliError> {
        loop {
            match self.watch_once(&client).await {
                Err(failure) if failure.is_lost_daemon() => {
                    self.send_notice(AttachNotice::DaemonLost);
                    client = self.context.connect_daemon().await?;
                    if let Some(lease) = &mut self.lease {
                        lease.reset();
                    }
                }
                watched => {
                    self.release_lease(&client).await;
                    return watched;
                }
            }
        }
    }

    /// What goes on in the background has nobody to wait for.
    async fn release_lease(&mut self, client: &DaemonConnection) {
        if let Some(lease) = &mut self.lease {
            let _ = tokio::time::timeout(RELEASE_TIMEOUT, lease.release(client)).await;
        }
    }

    async fn watch_once(&mut self, client: &DaemonConnection) -> Result<AttachResult, CliError> {
        let mut output = self.follow_output(client)?;
        let mut ended = client.call_streaming(self.wait_request())?;
        // A daemon that went away may not have heard it.
        let mut stop = self.request_stop(client)?;
        let mut end = None;
        loop {
            let all_is_there = output.is_none() && end.is_some();
            tokio::select! {
                page = next_page(&mut self.printer, &mut output),
                    if output.is_some() || all_is_there => match (page.map_err(output_error)?, end.take()) {
                    (Some(step), ending) => {
                        end = ending;
                        if self.print_part(step)? {
                            output = None;
                        }
                    }
                    (None, Some(task)) => return Ok(self.finish_result(task)),
                    (None, None) => {}
                },
                step = ended.next_part(), if end.is_none() => {
                    let ReplyStreamPart::Reply(mut waited) = step?;
                    let lost = || CliError::internal("the daemon waited for something else");
                    end = Some(Box::new(waited.ended.pop().ok_or_else(lost)?));
                }
                Some(()) = self.interrupts.recv() => {
                    self.escalate_stop();
                    if self.interrupt_level == InterruptLevel::Detach {
                        return Ok(AttachResult::Detached);
                    }
                    stop = self.request_stop(client)?;
                }
                // Asked beside the output, which must be taken for the answer to come through.
                step = next_part(&mut stop) => {
                    step?;
                    stop = None;
                }
                renewed = renew_lease(&mut self.lease, client) => match renewed {
                    // There is nothing to hold any more.
                    Err(ClientError::Refused(_)) => self.lease = None,
                    renewed => renewed?,
                },
                () = wait_until(self.deadline) => {
                    let _ = tokio::time::timeout(LAST_PAGE_TIMEOUT, wait_printed(&mut self.printer)).await;
                    return Ok(AttachResult::StillRunning);
                }
            }
        }
    }

    fn follow_output(
        &self,
        client: &DaemonConnection,
    ) -> Result<Option<ReplyStream<FollowOutputRequest>>, CliError> {
        let OutputDisplay::From(position) = self.display else { return Ok(None) };
        let (which, from) = (StreamSelection::Combined, OutputOffset::At(position));
        Ok(Some(client.call_streaming(FollowOutputRequest {
            target: self.target.clone(),
            streams: which,
            from,
        })?))
    }

    fn wait_request(&self) -> WaitRequest {
        let TaskTarget { session, task } = self.target.clone();
        WaitRequest { session, tasks: vec![task], mode: WaitMode::All, timeout_ms: None }
    }

    fn finish_result(&mut self, task: Box<TaskInfo>) -> AttachResult {
        match self.printer.as_ref().map_or(0, PrinterThread::lost_bytes) {
            0 => AttachResult::Ended(task),
            _ if !self.is_lossless => AttachResult::Ended(task),
            lost => AttachResult::EndedWithGaps(task, lost),
        }
    }

    /// Begins to write what came. True when nothing follows.
    fn print_part(&mut self, step: PageResult) -> Result<bool, CliError> {
        match step {
            Ok(ReplyStreamPart::Item(page)) => {
                self.display = OutputDisplay::From(page.next);
                if let Some(lease) = &mut self.lease {
                    lease.note_read(&page);
                }
                self.start_page(Some(page));
                Ok(false)
            }
            Ok(ReplyStreamPart::Reply(())) => {
                self.start_page(None);
                Ok(true)
            }
            Err(ClientError::Refused(refusal)) if is_output_missing(refusal.kind) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    fn start_page(&mut self, page: Option<OutputPageItem>) {
        if let Some(printing) = &mut self.printer {
            printing.start_page(page);
        }
    }

    /// First kindly, then firmly, then not any more.
    fn escalate_stop(&mut self) {
        self.interrupt_level = match self.interrupt_level {
            InterruptLevel::NoStop => {
                self.send_notice(AttachNotice::Stopping);
                InterruptLevel::Graceful
            }
            InterruptLevel::Graceful => {
                self.send_notice(AttachNotice::Forcing);
                InterruptLevel::Forced
            }
            InterruptLevel::Forced | InterruptLevel::Detach => InterruptLevel::Detach,
        };
    }

    fn send_notice(&self, notice: AttachNotice) {
        if let Some(aside) = &self.notice_sender {
            let _ = aside.send(notice);
            return;
        }
        print_note(
            &notice.render("the command goes on, looking for the next daemon", &self.target.task),
        );
    }

    /// The stop that was asked for, if one was.
    fn request_stop(
        &self,
        client: &DaemonConnection,
    ) -> Result<Option<ReplyStream<StopRequest>>, CliError> {
        let grace_ms = match self.interrupt_level {
            InterruptLevel::NoStop => return Ok(None),
            InterruptLevel::Graceful => None,
            InterruptLevel::Forced | InterruptLevel::Detach => Some(0),
        };
        let reason = Some("interrupted".to_owned());
        Ok(Some(client.call_streaming(StopRequest {
            target: self.target.clone(),
            reason,
            grace_ms,
        })?))
    }
}

impl AttachNotice {
    /// In words: what becomes of the work without a daemon, and who is to end.
    pub(crate) fn render(self, without: &str, whom: &str) -> String {
        match self {
            Self::DaemonLost => format!("the daemon went away; {without}"),
            Self::Stopping => format!("stopping {whom}; Ctrl-C again to force it"),
            Self::Forcing => format!("forcing {whom}; Ctrl-C again to leave without its end"),
        }
    }
}

/// The output may be pruned, or was never made.
fn is_output_missing(kind: RefusalKind) -> bool {
    matches!(kind, RefusalKind::NotFound | RefusalKind::Invalid)
}

/// The next page, when the one before it is written. None when that was the last.
async fn next_page(
    printing: &mut Option<PrinterThread>,
    output: &mut Option<ReplyStream<FollowOutputRequest>>,
) -> io::Result<Option<PageResult>> {
    wait_printed(printing).await?;
    match output {
        Some(output) => Ok(Some(output.next_part().await)),
        None => Ok(None),
    }
}

async fn wait_printed(printing: &mut Option<PrinterThread>) -> io::Result<()> {
    match printing {
        Some(printing) => printing.wait_idle().await,
        None => Ok(()),
    }
}

async fn next_part<A: Call>(
    answers: &mut Option<ReplyStream<A>>,
) -> Result<ReplyStreamPart<A::Item, A::Reply>, ClientError> {
    match answers {
        Some(answers) => answers.next_part().await,
        None => std::future::pending().await,
    }
}

async fn renew_lease(
    lease: &mut Option<ReaderLease>,
    client: &DaemonConnection,
) -> Result<(), ClientError> {
    match lease {
        Some(lease) => lease.renew(client).await,
        None => std::future::pending().await,
    }
}

async fn wait_until(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}
