//! One OS process: its own OS session, stored output, graceful and forced stop, adoption after a
//! crash.
//!
//! ```text
//!  runtime ──posix_spawn──> shim ──posix_spawn──> process ──> its descendants
//!     │                      │  inherits every orphan of its process tree
//!     │   signals: stop,     │
//!     └── kill, close input ─┤
//!                            ▼
//!                directory: claim (the record), stdout, stderr, order, stdin
//! ```
//!
//! The shim outlives the runtime. Its directory holds everything that the next runtime needs. Shim
//! and recovering runtime both try to create the claim file, and one succeeds. The shim executes
//! only if it wins. A recovering runtime that wins knows that nothing was executed and that nothing
//! will be.
//!
//! Reading order:
//!
//! * [`shim`]: the small program between the runtime and the process. [`companion`]: its binary.
//! * [`sandbox`] with [`landlock_rules`] and [`seccomp`]: restrictions. [`control_group`]: a cgroup
//!   for each process.
//! * [`launch`] and [`shim_handle`]: the start of a shim, and its handle. [`mod@find_execution`]:
//!   classifies an execution after a crash. [`orphans`]: ends the processes of a killed shim.
//! * [`input`] and [`input_spool`]: messages and bytes to a process. [`output`] and [`lease`]: its
//!   output, and readers that must not miss any of it.
//! * [`helper_program`]: a short program of the runtime itself, such as git.
//! * [`process_identity`]: boot, pid and start time, and a handle to a process.
//! * [`loopback_url`], [`loopback_probe`] and [`listening_port`]: asks a server of this machine, and
//!   finds its process.
//! * [`peer`] and `lineage`: the shim above a connected process. [`hardening`]: protects the
//!   daemon's own process. [`doctor`]: checks the host.
//!
//! Linux has all features. Other systems cannot inherit orphans or hold a process that is not their
//! child. There, a stop reaches the process group only, and the runtime identifies a shim by the
//! lock that it holds.

/// True if a shim of this system reaches all descendants of its process.
pub const IS_COMPLETE: bool = cfg!(full_linux);

pub mod companion;
pub mod control_group;
pub mod doctor;
pub mod find_execution;
pub mod hardening;
pub mod helper_program;
pub mod input;
pub mod input_spool;
pub mod landlock_rules;
pub mod launch;
pub mod lease;
mod lineage;
pub mod listening_port;
pub mod loopback_probe;
pub mod loopback_url;
pub mod orphans;
pub mod output;
pub mod peer;
pub mod private_file;
pub mod process_identity;
pub mod remove_tree;
pub mod sandbox;
pub mod seccomp;
pub mod shim;
pub mod shim_handle;
pub mod special_files;

pub use companion::Companion;
pub use control_group::ControlGroups;
pub use find_execution::{FoundExecution, find_execution};
pub use input::ProcessInput;
pub use landlock_rules::{LandlockSupport, LayerAccess};
pub use launch::ShimLaunch;
pub use output::ProcessOutput;
pub use peer::{PeerLineage, PeerProcess};
pub use process_identity::{BootId, HeldProcess, ProcessId};
pub use sandbox::{NamespaceStatus, NamespaceSupport, SandboxPlan, SandboxScope};
pub use seccomp::NetworkAccess;
pub use shim::launch_settings::{ProcessLimits, PtySize};
pub use shim::record::{ProcessExit, ShimPhase, ShimRecord, StartStep, Survivor};
pub use shim::sandbox::SandboxParts;
pub use shim::timing::ShimTiming;
pub use shim_handle::{Shim, ShimOrder};
