//! Tests of the HTTP API over real sockets, with server and clients in this process.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod access;
mod listing;
mod openapi;
mod requests;
mod support;
mod tls;
