//! Tests of the HTTP API over real sockets, with server and clients in this process.
//!
//! Bad input, and the tests of it:
//!
//! - wrong tokens: `access::every_route_needs_a_valid_token`
//! - expired tokens, used and expired codes: `expiry`, `access::a_login_code_is_valid_once`
//! - foreign tokens, tasks of other sessions: `scopes`, `confinement`, `mcp_access`
//! - other origins and hosts: `requests::other_hosts_and_origins_are_refused`,
//!   `raw_requests::a_whole_url_as_the_target_names_this_server`
//! - tricks with paths: `raw_requests::tricks_with_paths_find_nothing`
//! - huge headers and bodies: `requests::large_requests_are_refused`,
//!   `mcp_access::large_messages_are_refused`
//! - endless headers and bodies: `raw_requests::headers_and_bodies_without_an_end_are_refused`
//! - slow headers and bodies: `raw_requests::slow_headers_lose_their_connection`,
//!   `raw_requests::a_slow_body_is_told_and_its_connection_closed`
//! - idle connections: `requests::slow_clients_do_not_hold_others_up`, `idle_connections`, and ten
//!   thousand and floods in the stories of brigade-cli, `http_connections`
//! - wrong cursors: `events::wrong_cursors_are_refused`
//! - invalid UTF-8: `raw_requests::text_that_is_not_utf_8_is_refused`
//! - deep JSON: `requests::large_requests_are_refused`
//! - malformed and deep JSON-RPC: `mcp_access::wrong_messages_get_an_error`
//! - several lengths, wrong chunks: `raw_requests::a_body_has_one_length`,
//!   `raw_requests::wrong_chunks_are_refused`
//! - other methods and versions: `raw_requests::head_and_options_are_answered_everywhere`,
//!   `raw_requests::older_and_newer_versions_of_http`
//! - a browser that sleeps: `sleeping_reader`, and `web_tests/sleep.test.js`
//! - wrong messages, tasks and versions of A2A: `a2a`
//! - half lines, readers that stop, and too many connections: `connection`
//! - generated requests: `schemathesis`

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod a2a;
mod a2a_interop;
mod a2a_messages;
mod a2a_server;
mod access;
mod approving;
mod authors;
mod confinement;
mod connection;
mod events;
mod expiry;
mod idle_connections;
mod listeners;
mod listing;
mod live_output;
mod mcp;
mod mcp_access;
mod mcp_client;
mod mcp_interop;
mod messaging;
mod nodes;
mod openapi;
mod output;
mod raw_requests;
mod requests;
mod revocation;
mod routes;
mod schemathesis;
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
