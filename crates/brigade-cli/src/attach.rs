//! Stays with a task until it ends: prints its output, returns its outcome, and handles Ctrl-C.

use std::io;
use std::time::Duration;

use brigade_model::call::WaitMode;
use brigade_model::refusal::RefusalKind;
use brigade_protocol::call::Call;
use brigade_protocol::daemon_client::DaemonClient;
use brigade_protocol::daemon_connection::{ReplyStream, ReplyStreamPart};
use brigade_protocol::requests::{
    FollowOutputRequest, OutputOffset, OutputPageItem, StopRequest, StreamSelection, WaitRequest,
    WaitUntil,
};
use brigade_protocol::{ClientError, DaemonConnection, TaskInfo, TaskTarget};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use crate::context::follow_over;
use crate::exit_code::CliError;
use crate::output_printer::PrinterThread;
use crate::reader_lease::ReaderLease;
use crate::render::{output_error, print_note};

/// The time to release the lease when we detach.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// The time to finish printing a page after the timeout.
const LAST_PAGE_TIMEOUT: Duration = Duration::from_millis(500);

/// The result of an attachment.
#[derive(Debug)]
pub(crate) enum AttachResult {
    Ended(Box<TaskInfo>),
    /// The task ended. Some bytes of its output were lost, although the lease should prevent that.
    EndedWithGaps(Box<TaskInfo>, u64),
    /// The timeout came first.
    StillRunning,
    /// A third Ctrl-C detached before the end.
    Detached,
}

/// An attachment to one task.
#[derive(Debug)]
pub(crate) struct TaskAttachment {
    target: TaskTarget,
    display: OutputDisplay,
    /// `None` if no output is printed.
    printer: Option<PrinterThread>,
    deadline: Option<Instant>,
    interrupts: Signal,
    interrupt_level: InterruptLevel,
    /// The receiver of notices; without it they go to stderr.
    notice_sender: Option<UnboundedSender<AttachNotice>>,
    /// The lease that prevents lost output. `None` without one, or after it ended.
    lease: Option<ReaderLease>,
    /// A lease was requested, even if it has ended.
    is_lossless: bool,
}

/// A notice beside the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttachNotice {
    DaemonLost,
    Stopping,
    Forcing,
}

/// The display of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OutputDisplay {
    /// Each stream is printed to ours, from this position in both.
    From(u64),
    Hidden,
}

/// The stop that the Ctrl-C presses so far requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InterruptLevel {
    NoStop,
    Graceful,
    Forced,
    Detach,
}

/// The next page of the output.
type PageResult = Result<ReplyStreamPart<OutputPageItem, ()>, ClientError>;

/// Listens for Ctrl-C. A caller listens before it starts a task: a Ctrl-C between the start and the
/// attachment then stops the task, and does not leave it running without this program.
pub(crate) fn listen_for_interrupts() -> Result<Signal, CliError> {
    Ok(signal(SignalKind::interrupt())?)
}

impl TaskAttachment {
    pub(crate) fn new(
        target: TaskTarget,
        display: OutputDisplay,
        timeout: Option<Duration>,
        interrupts: Signal,
    ) -> Self {
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        Self {
            target,
            display,
            printer: None,
            deadline,
            interrupts,
            interrupt_level: InterruptLevel::NoStop,
            notice_sender: None,
            lease: None,
            is_lossless: false,
        }
    }

    /// Sends notices to this receiver instead of stderr.
    pub(crate) fn with_notice_sender(self, sender: UnboundedSender<AttachNotice>) -> Self {
        Self { notice_sender: Some(sender), ..self }
    }

    /// Prints the output with this printer.
    pub(crate) fn with_printer(self, printer: PrinterThread) -> Self {
        Self { printer: Some(printer), ..self }
    }

    /// Makes the process wait instead of losing output, while this client renews a lease of this
    /// duration.
    pub(crate) fn with_lease(self, duration: Duration) -> Self {
        let lease = Some(ReaderLease::new(self.target.clone(), duration));
        Self { lease, is_lossless: true, ..self }
    }

    /// Stays until the end, even if the daemon is replaced or killed.
    pub(crate) async fn run(mut self, client: DaemonClient) -> Result<AttachResult, CliError> {
        follow_over(&client, async |connection| {
            let result = self.watch_once(&connection).await;
            match &result {
                Err(error) if error.is_lost_daemon() => {
                    self.send_notice(AttachNotice::DaemonLost);
                    if let Some(lease) = &mut self.lease {
                        lease.reset();
                    }
                }
                // An ended process waits for nobody.
                Ok(AttachResult::Ended(_) | AttachResult::EndedWithGaps(..)) => {}
                _ => self.release_lease(&connection).await,
            }
            result
        })
        .await
    }

    /// Releases the lease, so that the process does not wait for a reader.
    async fn release_lease(&mut self, client: &DaemonConnection) {
        if let Some(lease) = &mut self.lease {
            let _ = tokio::time::timeout(RELEASE_TIMEOUT, lease.release(client)).await;
        }
    }

    async fn watch_once(&mut self, client: &DaemonConnection) -> Result<AttachResult, CliError> {
        let mut output = self.follow_output(client)?;
        let mut ended = client.call_streaming(self.wait_request())?;
        // The last daemon may not have received the stop.
        let mut stop = self.request_stop(client)?;
        let mut end = None;
        loop {
            let is_complete = output.is_none() && end.is_some();
            tokio::select! {
                page = next_page(&mut self.printer, &mut output),
                    if output.is_some() || is_complete => match (page.map_err(output_error)?, end.take()) {
                    (Some(part), task) => {
                        end = task;
                        if self.print_part(part)? {
                            output = None;
                        }
                    }
                    (None, Some(task)) => return Ok(self.finish_result(task)),
                    (None, None) => {}
                },
                step = ended.next_part(), if end.is_none() => {
                    let ReplyStreamPart::Reply(mut waited) = step?;
                    let lost = || CliError::internal("the daemon's reply names no ended task");
                    end = Some(Box::new(waited.ended.pop().ok_or_else(lost)?));
                }
                Some(()) = self.interrupts.recv() => {
                    self.escalate_stop();
                    if self.interrupt_level == InterruptLevel::Detach {
                        return Ok(AttachResult::Detached);
                    }
                    stop = self.request_stop(client)?;
                }
                // Polled beside the output: the reply arrives only while the output is read.
                step = next_part(&mut stop) => {
                    step?;
                    stop = None;
                }
                renewed = renew_lease(&mut self.lease, client) => match renewed {
                    // The output has no lease any more.
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
        Ok(Some(client.call_streaming(FollowOutputRequest {
            target: self.target.clone(),
            streams: StreamSelection::Combined,
            from: OutputOffset::At(position),
        })?))
    }

    fn wait_request(&self) -> WaitRequest {
        let TaskTarget { session, task } = self.target.clone();
        WaitRequest {
            session,
            tasks: vec![task],
            mode: WaitMode::All,
            timeout_ms: None,
            until: WaitUntil::Ended,
        }
    }

    fn finish_result(&mut self, task: Box<TaskInfo>) -> AttachResult {
        match self.printer.as_ref().map_or(0, PrinterThread::lost_bytes) {
            0 => AttachResult::Ended(task),
            _ if !self.is_lossless => AttachResult::Ended(task),
            lost => AttachResult::EndedWithGaps(task, lost),
        }
    }

    /// Starts to print a part. Returns true after the last one.
    fn print_part(&mut self, part: PageResult) -> Result<bool, CliError> {
        match part {
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
        if let Some(printer) = &mut self.printer {
            printer.start_page(page);
        }
    }

    /// Escalates the stop: graceful, forced, detach.
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
        if let Some(sender) = &self.notice_sender {
            let _ = sender.send(notice);
            return;
        }
        print_note(
            &notice.render(
                "the process keeps running, connecting to the next daemon",
                &self.target.task,
            ),
        );
    }

    /// Sends the requested stop, if there is one.
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
    /// Renders the notice. `effect` says what happens without a daemon; `tasks` names the tasks to
    /// stop.
    pub(crate) fn render(self, effect: &str, tasks: &str) -> String {
        match self {
            Self::DaemonLost => format!("lost the daemon; {effect}"),
            Self::Stopping => format!("stopping {tasks}; Ctrl-C again to force it"),
            Self::Forcing => format!("forcing {tasks}; Ctrl-C again to detach"),
        }
    }
}

/// Returns true if the output was pruned or never existed.
fn is_output_missing(kind: RefusalKind) -> bool {
    matches!(kind, RefusalKind::NotFound | RefusalKind::Invalid)
}

/// Returns the next page after the last one was printed; `None` after the end.
async fn next_page(
    printer: &mut Option<PrinterThread>,
    output: &mut Option<ReplyStream<FollowOutputRequest>>,
) -> io::Result<Option<PageResult>> {
    wait_printed(printer).await?;
    match output {
        Some(output) => Ok(Some(output.next_part().await)),
        None => Ok(None),
    }
}

async fn wait_printed(printer: &mut Option<PrinterThread>) -> io::Result<()> {
    match printer {
        Some(printer) => printer.wait_idle().await,
        None => Ok(()),
    }
}

async fn next_part<A: Call>(
    replies: &mut Option<ReplyStream<A>>,
) -> Result<ReplyStreamPart<A::Item, A::Reply>, ClientError> {
    match replies {
        Some(replies) => replies.next_part().await,
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

async fn wait_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
