//! One session of the editor, and its root task.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use agent_client_protocol::Error;
use agent_client_protocol::v1::schema::SessionId;
use brigade_model::refusal::Refusal;
use brigade_protocol::TaskTarget;
use brigade_protocol::random_bytes::random_bytes;
use brigade_protocol::workspace::session_name_of;
use tokio_util::sync::CancellationToken;

use crate::error_codes::{failed_run, invalid_params, invalid_request, refusal_error};
use crate::output_updates::OutputTracker;
use crate::task_updates::TaskTracker;

/// The start of the names of root tasks.
const NAME_PREFIX: &str = "acp-";

/// A session of the editor. Its id is the name of its root task, which the first prompt starts.
///
/// A name belongs to the alive task that has it, so another task can take it after the end of a run.
/// The root task is found by its name once, and is addressed by its number.
#[derive(Debug)]
pub(crate) struct AcpSession {
    pub(crate) id: SessionId,
    pub(crate) directory: PathBuf,
    /// The Brigade session.
    workspace: String,
    /// The address of the root task (`agent:3`), as soon as it is known.
    root: OnceLock<String>,
    /// True since the first prompt, which may have started the root task.
    has_prompted: AtomicBool,
    /// Notes for the person, which the next turn sends.
    notes: Mutex<Vec<String>>,
    turn: Mutex<TurnState>,
    /// The parts of the session that the editor has. A turn holds it.
    pub(crate) view: tokio::sync::Mutex<SessionView>,
}

/// The session as the editor has it.
#[derive(Debug, Default)]
pub(crate) struct SessionView {
    pub(crate) output: OutputTracker,
    pub(crate) tasks: TaskTracker,
    /// The number of the last message of the agent.
    pub(crate) last_note: u64,
}

#[derive(Debug, Default)]
enum TurnState {
    #[default]
    Idle,
    /// A turn without a prompt follows a run that was alive when the session was loaded. A prompt
    /// ends it and continues.
    Following(CancellationToken),
    Prompted(CancellationToken),
}

/// The turn of a prompt. Dropping it ends the turn.
#[derive(Debug)]
pub(crate) struct PromptGuard {
    session: Arc<AcpSession>,
    /// Cancelled by `session/cancel`.
    pub(crate) cancelled: CancellationToken,
}

impl Drop for PromptGuard {
    fn drop(&mut self) {
        *self.session.turn() = TurnState::Idle;
    }
}

impl AcpSession {
    /// Creates a session in a directory, which must be absolute and exist.
    pub(crate) fn new(
        id: SessionId,
        directory: &Path,
        workspace: Option<&str>,
    ) -> Result<Arc<Self>, Error> {
        if !directory.is_absolute() {
            let problem = format!("cwd must be an absolute path: {}", directory.display());
            return Err(invalid_params(problem));
        }
        if !directory.is_dir() {
            return Err(invalid_params(format!("{} is not a directory", directory.display())));
        }
        let workspace = match workspace {
            Some(workspace) => workspace.to_owned(),
            None => session_name_of(directory).map_err(|refusal| refusal_error(&refusal))?,
        };
        Ok(Arc::new(Self {
            id,
            directory: directory.to_owned(),
            workspace,
            root: OnceLock::new(),
            has_prompted: AtomicBool::new(false),
            notes: Mutex::default(),
            turn: Mutex::default(),
            view: tokio::sync::Mutex::default(),
        }))
    }

    /// Returns a new id, which no task has as its name.
    pub(crate) fn new_id() -> Result<SessionId, Error> {
        let random = random_bytes::<8>()
            .map_err(|error| failed_run(format!("no random bytes can be read: {error}")))?;
        let number = u64::from_be_bytes(random);
        Ok(SessionId::new(format!("{NAME_PREFIX}{number:016x}")))
    }

    /// Returns a new idempotency key.
    pub(crate) fn new_key() -> Result<String, Refusal> {
        let random = random_bytes::<16>()
            .map_err(|error| Refusal::internal(format!("no random bytes can be read: {error}")))?;
        Ok(format!("{NAME_PREFIX}{:032x}", u128::from_be_bytes(random)))
    }

    /// Returns true if a task of this name is the root of an ACP session.
    pub(crate) fn is_id(name: &str) -> bool {
        let digits = name.strip_prefix(NAME_PREFIX).unwrap_or_default();
        digits.len() == 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    }

    pub(crate) fn name(&self) -> &str {
        &self.id.0
    }

    pub(crate) fn workspace(&self) -> &str {
        &self.workspace
    }

    /// Returns the root task. Without one, no prompt has started it and none has found it.
    pub(crate) fn root(&self) -> Result<TaskTarget, Refusal> {
        match self.root.get() {
            Some(address) => Ok(self.target(address)),
            None => Err(Refusal::not_found("the session has no agent yet")),
        }
    }

    /// Returns true if no prompt of this connection can have started the root task, and it is not
    /// known from an earlier one.
    pub(crate) fn has_no_agent(&self) -> bool {
        self.root.get().is_none() && !self.has_prompted.load(Ordering::Relaxed)
    }

    /// Sets the address of the root task, which never changes.
    pub(crate) fn set_root(&self, address: &str) {
        self.root.get_or_init(|| address.to_owned());
    }

    /// Returns a task of the Brigade session.
    pub(crate) fn target(&self, task: &str) -> TaskTarget {
        TaskTarget { session: self.workspace.clone(), task: task.to_owned() }
    }

    /// Adds a note for the person.
    pub(crate) fn add_note(&self, note: String) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(note);
    }

    pub(crate) fn take_notes(&self) -> Vec<String> {
        std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Begins the turn of a prompt. Refuses it if one is running.
    pub(crate) fn begin_prompt(self: &Arc<Self>) -> Result<PromptGuard, Error> {
        let mut turn = self.turn();
        match &*turn {
            TurnState::Prompted(_) => {
                return Err(busy_error());
            }
            TurnState::Following(ended) => ended.cancel(),
            TurnState::Idle => {}
        }
        self.has_prompted.store(true, Ordering::Relaxed);
        let cancelled = CancellationToken::new();
        *turn = TurnState::Prompted(cancelled.clone());
        Ok(PromptGuard { session: self.clone(), cancelled })
    }

    /// Begins to follow a run without a prompt. The token is cancelled by the next prompt.
    pub(crate) fn begin_following(&self) -> CancellationToken {
        let ended = CancellationToken::new();
        let mut turn = self.turn();
        if matches!(*turn, TurnState::Idle) {
            *turn = TurnState::Following(ended.clone());
        } else {
            ended.cancel();
        }
        ended
    }

    /// Cancels the prompt. Returns false if there is none.
    pub(crate) fn cancel_prompt(&self) -> bool {
        match &*self.turn() {
            TurnState::Prompted(cancelled) => {
                cancelled.cancel();
                true
            }
            TurnState::Idle | TurnState::Following(_) => false,
        }
    }

    /// Ends following without a prompt. Refuses it while a prompt is running.
    pub(crate) fn end_following(&self) -> Result<(), Error> {
        match &*self.turn() {
            TurnState::Prompted(_) => return Err(busy_error()),
            TurnState::Following(ended) => ended.cancel(),
            TurnState::Idle => {}
        }
        Ok(())
    }

    fn turn(&self) -> MutexGuard<'_, TurnState> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn busy_error() -> Error {
    invalid_request("a prompt of this session is still running")
}
