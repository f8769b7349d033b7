//! Tests the output reader against a writer that imitates a shim.

#![expect(clippy::unwrap_used, reason = "a test that cannot write its files has failed")]

mod follow;
mod pages;
mod race;
mod search;
mod text;
mod writer;
