//! Durable storage of sessions: the [`Store`] trait, the store in memory, and checks for any store.
//!
//! ```text
//! runtime loop ── Batch ──> Store::commit   one transaction: all of it or nothing
//!              <── rows ──  Store::load     at start; Store::task reloads evicted rows
//! readers      <── feed ──  Store::events   from a position, without gap or repeat
//! ```
//!
//! In reading order:
//! - [`store`]: the [`Store`] trait with the crash contract of each method.
//! - [`record_store`]: records with compare-and-set and expiry; [`record`]: their types and bounds.
//! - [`fleet`]: the [`Fleet`] trait for nodes that share a store: leases, claims and calls;
//!   [`provider_limits`]: their parts of providers' limits.
//! - [`batch`]: the rows and events that one commit writes.
//! - [`error`]: the errors of a store.
//! - [`needed_rows`]: the rows that a command needs in memory.
//! - [`residency`]: the tasks that must be in memory, and those that retention may remove.
//! - [`memory`], `memory_feed`, `memory_session`, `memory_records`, `memory_fleet`, `memory_hints`, `memory_limits`: the
//!   store in memory.
//! - [`store_copy`]: copies of whole stores.
//! - [`codec`]: the encoding of rows on disk; [`columns`]: the codes of their columns.
//! - `conformance` (feature `conformance`): checks that every store must pass.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod batch;
pub mod codec;
pub mod columns;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod error;
pub mod fleet;
pub mod memory;
mod memory_feed;
mod memory_fleet;
mod memory_hints;
mod memory_limits;
mod memory_records;
mod memory_session;
pub mod needed_rows;
pub mod provider_limits;
pub mod record;
pub mod record_store;
pub mod residency;
pub mod store;
pub mod store_copy;

pub use batch::{Batch, SessionBatch, SupersededRun};
pub use error::StoreError;
pub use fleet::{
    CallAnswer, CallId, CallPlace, CallResult, CallTarget, ClaimedSession, Fleet, JoinResult,
    JoinedNode, LeaseRenewal, NEXT_OWNER_TIME, NewCall, NewNode, NodeId, NodeLoad, NodeRow,
    OpenCall, OpenCallQuery, RequiredLabels, SessionClaim, SessionOwner, SessionRelease,
};
pub use memory::{MemoryOptions, MemorySnapshot, MemoryStore};
pub use needed_rows::load_needed_rows;
pub use provider_limits::{LimitAmounts, LimitGrant, LimitReport, NodeDemand, RateLevels};
pub use record::{
    ExpectedVersion, NewRecord, PutRecordResult, RECORD_KEY_BYTES_MAX, RECORD_KIND_BYTES_MAX,
    RECORD_PAGE_MAX, RECORD_VALUE_BYTES_MAX, RECORDS_PER_KIND_MAX, Record, RecordError, RecordItem,
    RecordKey, RecordKind, RecordPage, RecordQuery, RecordVersion, RemoveRecordResult,
};
pub use record_store::RecordStore;
pub use residency::Residency;
pub use store::{
    AcquireResult, AcquiredSession, BoxFuture, EventPage, EventQuery, JournalQuery, LoadedSession,
    MessagePage, MessageQuery, PruneResult, Retention, RunRow, Store, StoreFuture, TaskOrder,
    TaskQuery,
};
