//! Where trees live.
//!
//! ```text
//! runtime loop ── Batch ──> Store::commit   one transaction: all of it or nothing
//!              <── rows ──  Store::load     on start, and for rows that left memory
//! readers      <── feed ──  Store::events   from a position, without gap or repeat
//! ```
//!
//! In reading order:
//! - [`store`]: the [`Store`] trait; each method says what survives a crash.
//! - [`batch`]: what one commit writes.
//! - [`error`]: why it did not.
//! - [`standing`]: what has to be in memory, and what may be removed.
//! - [`memory`]: the store without a disk.
//! - [`codec`]: the bytes that stores on disk keep.
//! - `conformance` (feature `conformance`): what any store must do.

pub mod batch;
pub mod codec;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod error;
pub mod memory;
pub mod residency;
pub mod store;

pub use batch::{Batch, SessionBatch};
pub use error::StoreError;
pub use memory::{MemoryOptions, MemoryStore};
pub use residency::Residency;
pub use store::{
    BoxFuture, EventPage, EventQuery, LoadedSession, PruneResult, Retention, RunRow, Store,
    TaskQuery,
};
