//! Brigade's store on one SQLite file.
//!
//! ```text
//! writes, prune ── one writer connection, behind a mutex ──┐
//! reads ────────── a few read-only connections ────────────┴── file.db (WAL), file.db.lock
//! ```
//!
//! A commit survives the end of the process. [`SynchronousMode`] decides about a power cut: with
//! `Normal` the last commits can be missing, but never a part of one. Calls work on the thread that
//! polls them. A multi-threaded tokio runtime first moves the other tasks of that thread away.
//!
//! In reading order:
//! - `store`: [`SqliteStore`] opens files and forwards the calls of `Store`.
//! - `schema`: the tables, their version, and the checks before a file is changed.
//! - `lock`: one owner per file.
//! - `write`: commits. `read`: reads of rows and events. `load`: loads of sessions. `prune`:
//!   retention.
//! - `records`: records with compare-and-set and expiry.
//! - `lanes`: the feed of a file with events of several lanes, which only a copy makes.
//! - [`SqliteCopySource`] and [`SqliteCopyTarget`]: a file as the source or target of a copy of a whole
//!   store, with the modules `copy_rows` and `copy_merge`.
//! - `error`: the mapping of SQLite's errors.

mod copy_merge;
mod copy_rows;
mod copy_target;
mod error;
mod lanes;
mod load;
mod lock;
mod prune;
mod read;
mod records;
mod schema;
mod store;
mod write;

pub use copy_rows::SqliteCopySource;
pub use copy_target::SqliteCopyTarget;
pub use store::{SqliteOptions, SqliteStore, SynchronousMode};
