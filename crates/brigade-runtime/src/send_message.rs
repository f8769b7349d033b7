//! Messages to tasks, with a key and a name.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use brigade_model::command::{Caller, Command, Recipient, SendCommand};
use brigade_model::ids::MessageNo;
use brigade_model::json::Json;
use brigade_model::name::IdempotencyKey;
use brigade_model::refusal::Refusal;
use brigade_store::BoxFuture;
use serde::Serialize;

use crate::jobs::SendCall;
use crate::session::{Session, first_message_no};

/// A message to a task. `send` makes it, and awaiting it sends it.
///
/// ```
/// use brigade_runtime::{Job, JobContext, JobError, Runtime};
///
/// const ORDER: Job<(), u32> = Job::new("order");
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let runtime = Runtime::builder()
///     .job(ORDER, |ctx: JobContext, ()| async move {
///         // Other messages stay in the inbox.
///         Ok::<_, JobError>(ctx.receive_as::<u32>("approval").await?)
///     })
///     .start()
///     .await?;
/// let session = runtime.session("demo").await?;
/// let order = session.spawn(ORDER.with(())).await?;
/// // Sent again after a crash or a lost reply, it is accepted once.
/// let first = order.send(17).named("approval").key("approval 17").await?;
/// assert_eq!(order.send(17).named("approval").key("approval 17").await?, first);
/// assert_eq!(order.result().await?, 17);
/// # Ok(())
/// # }
/// ```
#[must_use = "a message is sent when this is awaited"]
pub struct SendMessage {
    draft: Option<MessageDraft>,
    sending: Option<BoxFuture<'static, Result<MessageNo, Refusal>>>,
}

struct MessageDraft {
    sender: MessageOrigin,
    to: Recipient,
    body: Result<Json, Refusal>,
    name: Option<Arc<str>>,
    key: Option<Result<IdempotencyKey, Refusal>>,
    interrupt: bool,
    closes_input: bool,
    alive_only: bool,
}

/// The sender of a message: a session, or a job whose call is recorded.
pub(crate) enum MessageOrigin {
    Session(Session),
    Job(SendCall),
}

impl SendMessage {
    pub(crate) fn new(sender: MessageOrigin, to: Recipient, body: impl Serialize) -> Self {
        let body = Json::of(&body);
        let draft = MessageDraft {
            sender,
            to,
            body,
            name: None,
            key: None,
            interrupt: false,
            closes_input: false,
            alive_only: false,
        };
        Self { draft: Some(draft), sending: None }
    }

    fn update(mut self, change: impl FnOnce(&mut MessageDraft)) -> Self {
        if let Some(draft) = &mut self.draft {
            change(draft);
        }
        self
    }

    /// Sets an idempotency key: a message with the same key to the same run of the same task is
    /// accepted once. A repeat returns the number of the first, and another message with the same
    /// key is refused.
    pub fn key(self, key: &str) -> Self {
        self.update(|draft| draft.key = Some(key.parse()))
    }

    /// Sets a name, by which [`JobContext::receive_as`](crate::JobContext::receive_as) receives the
    /// message.
    pub fn named(self, name: &str) -> Self {
        self.update(|draft| draft.name = Some(name.into()))
    }

    /// Makes the message urgent: an agent interrupts its model's reply to read it. Running tools see
    /// their cancellation token cancelled.
    pub fn urgent(self) -> Self {
        self.update(|draft| draft.interrupt = true)
    }

    /// Refuses the message if its recipient has ended. Otherwise it begins the next run of an agent.
    pub fn alive_only(self) -> Self {
        self.update(|draft| draft.alive_only = true)
    }

    pub(crate) fn closing_input(self) -> Self {
        self.update(|draft| draft.closes_input = true)
    }
}

impl MessageDraft {
    async fn send(self) -> Result<MessageNo, Refusal> {
        let Self { sender, to, body, name, key, interrupt, closes_input, alive_only } = self;
        let body = body?;
        let key = key.transpose()?;
        let command = |caller: Caller| SendCommand {
            name,
            key,
            interrupt,
            closes_input,
            alive_only,
            ..SendCommand::new(caller, to, body)
        };
        match sender {
            MessageOrigin::Session(session) => {
                let command = Command::Send(command(session.caller.clone()));
                first_message_no(session.submit(command).await?)
            }
            MessageOrigin::Job(call) => call.send(command).await,
        }
    }
}

impl Future for SendMessage {
    type Output = Result<MessageNo, Refusal>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(draft) = self.draft.take() {
            self.sending = Some(Box::pin(draft.send()));
        }
        match &mut self.sending {
            Some(sending) => sending.as_mut().poll(context),
            None => Poll::Ready(Err(Refusal::internal("a message has no content"))),
        }
    }
}

// The draft is never pinned: the future that sends it is in a box.
impl Unpin for SendMessage {}

impl fmt::Debug for SendMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let to = self.draft.as_ref().map(|draft| &draft.to);
        f.debug_struct("SendMessage").field("to", &to).finish_non_exhaustive()
    }
}
