//! Brigade's store on one SQLite file.
//!
//! ```text
//! commit, prune ── one writer connection, behind a mutex ──┐
//! reads ────────── a few read-only connections ────────────┴── file.db (WAL), file.db.lock
//! ```
//!
//! A commit survives the end of the process. Whether it survives a power cut is said by
//! [`Synchronous`]: with `Normal` the last commits before it can be missing, never half of one.
//! Calls do their work on the thread that polls them; within a multi-threaded tokio runtime that
//! thread's other tasks are moved away first.
//!
//! In reading order:
//! - `store`: [`SqliteStore`], how it is opened and what it hands on.
//! - `schema`: the tables, their version, and what is looked at before a file is touched.
//! - `lock`: one owner per file.
//! - `write`, `read`, `load`, `prune`: what the names say.
//! - `error`: what SQLite's errors mean to a caller.

mod error;
mod load;
mod lock;
mod prune;
mod read;
mod schema;
mod store;
mod write;

pub use store::{SqliteOptions, SqliteStore, SynchronousMode};
