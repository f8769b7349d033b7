//! One OS process under a shim, its output, and the shim's companion binary.

pub use brigade_process::companion::{ShimCommand, run_shim_if_requested};
pub use brigade_process::control_group::ControlGroups;
pub use brigade_process::doctor::{HealthFinding, HealthState, check_host};
pub use brigade_process::landlock_rules::{LandlockSupport, LayerAccess, SandboxError};
pub use brigade_process::output::{
    LineMatch, OutputFollower, OutputRead, OutputSearch, OutputTotals, OutputView, PagePiece,
    ReadStart, SearchBounds, SearchCursor, SearchError, SearchResult, StdStream, ViewPage,
};
pub use brigade_process::peer::{PeerLineage, PeerProcess};
pub use brigade_process::process_identity::read_boot_id;
pub use brigade_process::sandbox::{NamespaceStatus, NamespaceSupport, SandboxPlan, SandboxScope};
pub use brigade_process::seccomp::{FilterError, NetworkAccess};
pub use brigade_process::shim::boot_id::BootId;
pub use brigade_process::shim::record::{Claimer, ProcessId, ShimStopPhase, StartStep};
pub use brigade_process::shim::sandbox::SandboxParts;
pub use brigade_process::{
    Companion, ProcessExit, ProcessLimits, ProcessOutput, PtySize, Shim, ShimLaunch, ShimOrder,
    ShimPhase, ShimRecord, ShimTiming, Survivor,
};
