//! Tests of the HTTP API over real sockets, with server and clients in this process.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod access;
mod events;
mod listing;
mod live_output;
mod openapi;
mod requests;
mod sse_client;
mod support;
mod tls;
