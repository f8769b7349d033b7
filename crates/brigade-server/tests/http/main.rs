//! Tests of the HTTP API over real sockets, with server and clients in this process.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod access;
mod approving;
mod authors;
mod confinement;
mod events;
mod listeners;
mod listing;
mod live_output;
mod mcp;
mod mcp_access;
mod mcp_client;
mod mcp_interop;
mod messaging;
mod openapi;
mod output;
mod raw_requests;
mod requests;
mod revocation;
mod routes;
mod scopes;
mod sleeping_reader;
mod sse_client;
mod starting;
mod steering;
mod support;
mod task_server;
mod tls;
mod transcripts;
mod waiting;
