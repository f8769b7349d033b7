//! Brigade's store on PostgreSQL, which several nodes share.
//!
//! ```text
//! commit ────────── one call of commit_batch ──┐
//! reads, prune ──── a pool of connections ─────┼── a schema in a database
//! leases, hints ─── connections of their own ──┘
//! ```
//!
//! A commit is one statement, which leaves no open transaction when its connection is lost. No statement
//! depends on the state of a connection, except LISTEN, so a pooler may stand in front of the database.
//!
//! In reading order:
//! - `store`: [`PostgresStore`] opens a schema and forwards the calls of `Store`.
//! - `options`: the URL and the other settings of a store. `tls`: encrypted connections.
//! - `connections`: the pool.
//! - `schema`: the tables, their version, and the checks before a database is changed.
//! - `write`: commits. `read`: reads of rows. `events`: reads of events. `load`: loads of sessions.
//!   `prune`: retention.
//! - `fleet`: the calls of `Fleet`. `nodes`: leases. `claims`: owners of sessions. `calls`: requests between
//!   nodes. `provider_limits`: their parts of providers' limits. `hints`: NOTIFY and LISTEN.
//! - `records`: records with compare-and-set and expiry.
//! - [`PostgresCopySource`] and [`PostgresCopyTarget`]: a schema as the source or target of a copy of a
//!   whole store.
//! - `inspect`: [`DatabaseReport`] for operators.
//! - [`test_server`]: a private server for tests, with the feature of the same name.
//! - `error`: the mapping of PostgreSQL's errors.

mod calls;
mod claims;
mod connections;
mod copy_rows;
mod copy_target;
mod error;
mod events;
mod fleet;
mod hints;
mod inspect;
mod lanes;
mod load;
mod nodes;
mod options;
mod provider_limits;
mod prune;
mod read;
mod records;
mod schema;
mod store;
#[cfg(feature = "test-server")]
pub mod test_server;
mod tls;
mod write;

pub use copy_rows::PostgresCopySource;
pub use copy_target::PostgresCopyTarget;
pub use inspect::{ClockSkew, DatabaseReport, DatabaseTimeout, TableState};
pub use options::{DEFAULT_SCHEMA, InvalidUrl, PostgresOptions};
pub use store::PostgresStore;
