//! One OS process: its own session, kept output, kind then firm stop, adoption after a crash.
//!
//! ```text
//!  runtime ──posix_spawn──> shim ──posix_spawn──> command ──> whatever it starts
//!     │                      │  inherits every orphan of the tree below it
//!     │   signals: stop,     │
//!     └── kill, close input ─┤
//!                            ▼
//!                directory: claim (the record), stdout, stderr, order, stdin
//! ```
//!
//! The shim outlives the runtime; everything that the next runtime needs is in the directory. Who
//! creates the claim file decides whether the command is executed: the shim executes only if it won,
//! a recovering runtime that wins knows that it never was and never will be.
//!
//! Reading order: [`shim`] (the small process in the middle), [`companion`] (where its binary comes
//! from), [`confine`], [`filter`] and [`sandbox`] (what a command is kept to), [`control_group`] (what it is
//! ended with), [`launch`] and [`handle`] (starting and holding one), [`find`] (what became of it),
//! [`orphans`] (when the shim itself was killed), [`input`] and [`spool`] (messages and bytes to a command), [`output`] and [`lease`] (a reader who must not miss anything); [`peer`] and `lineage` tell below
//! which shim a connected process runs, [`hardening`] protects the daemon's own process.
//!
//! Linux is complete. Elsewhere there is no way to inherit orphans or to hold a process that is not
//! one's child: a stop reaches the command's process group, a shim is known by the lock it holds, and
//! what left the group is out of reach.

/// Whether this system lets a shim reach everything that came of its command.
pub const IS_COMPLETE: bool = cfg!(full_linux);

pub mod companion;
pub mod control_group;
pub mod doctor;
pub mod find_execution;
pub mod hardening;
pub mod input;
pub mod input_spool;
pub mod landlock_rules;
pub mod launch;
pub mod lease;
mod lineage;
pub mod machine_identity;
pub mod orphans;
pub mod output;
pub mod peer;
pub mod private_file;
pub mod remove_tree;
pub mod sandbox;
pub mod seccomp;
pub mod shim;
pub mod shim_handle;

pub use companion::Companion;
pub use control_group::ControlGroups;
pub use find_execution::{FoundExecution, find_execution};
pub use input::ProcessInput;
pub use landlock_rules::{LandlockSupport, LayerAccess};
pub use launch::ShimLaunch;
pub use output::ProcessOutput;
pub use peer::{PeerLineage, PeerProcess};
pub use sandbox::{NamespaceStatus, NamespaceSupport, SandboxPlan, SandboxScope};
pub use seccomp::NetworkAccess;
pub use shim::launch_settings::{ProcessLimits, PtySize};
pub use shim::record::{ProcessExit, ProcessId, ShimPhase, ShimRecord, StartStep, Survivor};
pub use shim::sandbox::SandboxParts;
pub use shim::timing::ShimTiming;
pub use shim_handle::{Shim, ShimOrder};
