//! Commands as tasks: each under a shim of its own that outlives this process.
//!
//! - [`options`]: where things are kept and what a command is given.
//! - `service`: the performer; `driver`: what watches over one command; `settle`: how a record or
//!   its absence becomes an ending.
//! - `session`: what a session does with commands beside what it does with every task.
//! - `origin`: from where a connected process comes.
//! - `environment`, `places`, `enclosure`: variables, directories, what a command is kept to.
//! - [`report`]: what is said of a command that ended.

mod driver;
mod environment;
mod execution_dirs;
pub mod options;
mod peer_origin;
mod performer;
mod prepared_sandbox;
mod probe;
pub mod report;
mod session;

pub use driver::sandbox_parts;
pub use options::ProcessOptions;
pub use peer_origin::PeerOrigin;
pub(crate) use performer::{ProcessPerformer, ProcessService};
pub use report::{ProcessReport, SandboxPart};
pub use session::InputPiece;
