//! The store on PostgreSQL, tested with a private server.

mod conformance;
mod opening;
mod support;
