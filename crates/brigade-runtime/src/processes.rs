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
mod enclosure;
mod environment;
pub mod options;
mod origin;
mod places;
pub mod report;
mod service;
mod session;
mod settle;

pub use driver::sandbox_of;
pub use options::ProcessOptions;
pub use origin::PeerOrigin;
pub use report::{ProcessReport, SandboxPart};
pub(crate) use service::{ProcessPerformer, Processes};
pub use session::InputPiece;
