//! Opens sessions, and says what became of the requested limits.

use std::fmt;
use std::future::IntoFuture;

use brigade_model::command::{Caller, ClientCaller};
use brigade_model::limits::Limits;
use brigade_model::name::SessionName;
use brigade_model::refusal::Refusal;
use brigade_store::BoxFuture;
use tokio::sync::oneshot;

use crate::error::{in_doubt_refusal, shutdown_refusal};
use crate::loop_input::{LoopInput, OpenReply, OpenedView};
use crate::runtime::Runtime;
use crate::session::Session;

/// A request for the open session of a name. Await it to open the session.
///
/// ```
/// use brigade_model::limits::Limits;
/// use brigade_runtime::Runtime;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), brigade_model::refusal::Refusal> {
/// let runtime = Runtime::builder().start().await?;
/// let two = Limits { running: Some(2), ..Limits::default() };
/// let opened = runtime.open_session("kitchen").limits(two).await?;
/// assert!(opened.opened && opened.limits_applied);
///
/// // The session is open, so its limits stay as they are.
/// let four = Limits { running: Some(4), ..Limits::default() };
/// let opened = runtime.open_session("kitchen").limits(four).await?;
/// assert!(!opened.opened && !opened.limits_applied);
/// opened.session.set_limits(four).await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a session opens when the request is awaited"]
pub struct OpenSession {
    runtime: Runtime,
    name: String,
    limits: Option<Limits>,
    client: Option<ClientCaller>,
}

/// A session, and the facts about how it was opened.
#[derive(Clone, Debug)]
pub struct OpenedSession {
    pub session: Session,
    /// True if this request opened the session, false if it was open before.
    pub opened: bool,
    /// True if the session has the limits of the request. A session that was open before keeps its
    /// limits: use [`Session::set_limits`] to change them. True if the request names no limits.
    pub limits_applied: bool,
}

impl OpenSession {
    /// Sets the limits with which the session opens, instead of those of
    /// [`RuntimeBuilder::session_limits`](crate::RuntimeBuilder::session_limits).
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = Some(limits);
        self
    }

    /// Opens the session as another client than this program.
    pub fn client(mut self, client: impl Into<ClientCaller>) -> Self {
        self.client = Some(client.into());
        self
    }

    async fn open(self) -> Result<OpenedSession, Refusal> {
        let name: SessionName = self.name.parse()?;
        self.runtime.check_lease()?;
        let inner = &self.runtime.inner;
        let limits = self.limits.unwrap_or(inner.session_limits);
        let mut inputs = inner.inputs.of_name(&name);
        let OpenedView { view, opened } = loop {
            let (reply, received) = oneshot::channel();
            let input = LoopInput::Open { name: name.clone(), limits, reply };
            inputs.send(input).await.map_err(|_| shutdown_refusal())?;
            match received.await.map_err(|_| in_doubt_refusal())?? {
                OpenReply::Opened(opened) => break opened,
                OpenReply::OfLoop(session) => inputs = inner.inputs.of(session),
            }
        };
        let caller = self.client.unwrap_or_else(|| inner.client.as_ref().into());
        let limits_applied = self.limits.is_none_or(|limits| limits == view.row().limits);
        let session = self.runtime.attach(view, Caller::Client(caller));
        Ok(OpenedSession { session, opened, limits_applied })
    }
}

impl IntoFuture for OpenSession {
    type Output = Result<OpenedSession, Refusal>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.open())
    }
}

impl fmt::Debug for OpenSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenSession")
            .field("name", &self.name)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl Runtime {
    /// Requests the open session of this name, or a new one. The result says which, and whether
    /// the requested limits apply.
    pub fn open_session(&self, name: impl Into<String>) -> OpenSession {
        OpenSession { runtime: self.clone(), name: name.into(), limits: None, client: None }
    }

    /// Returns the open session of this name, or opens a new one.
    pub async fn session(&self, name: &str) -> Result<Session, Refusal> {
        Ok(self.open_session(name).await?.session)
    }

    /// Returns the open session of this name if it has these limits, or opens a new one with them.
    ///
    /// A session that is open with other limits is refused as a conflict, and stays as it is. To get
    /// such a session, use [`Runtime::open_session`]; to change its limits,
    /// [`Session::set_limits`].
    pub async fn session_with(&self, name: &str, limits: Limits) -> Result<Session, Refusal> {
        let opened = self.open_session(name).limits(limits).await?;
        match opened.limits_applied {
            true => Ok(opened.session),
            false => Err(Refusal::conflict(format!(
                "the session {name} is open with other limits; open it without limits, and set \
                 them"
            ))),
        }
    }

    /// Returns the open session of this name, or opens a new one, as another client than this
    /// program.
    pub async fn session_as(
        &self,
        name: &str,
        client: impl Into<ClientCaller>,
    ) -> Result<Session, Refusal> {
        Ok(self.open_session(name).client(client).await?.session)
    }
}
