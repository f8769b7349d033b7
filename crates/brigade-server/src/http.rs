//! The HTTP server: the API under `/v1`, MCP, and the dashboard.
//!
//! ```text
//! TcpListener ─ listener (connections, time and size limits)
//!                  └─ request_guard (Host, Origin) ─ caller (token) ─ routes ─ RequestContext
//! ```
//!
//! Nobody is the operator by the address from which a request comes: every route of the API needs a
//! token. Modules in reading order:
//!
//! - [`listener`], [`tls`]: one bound address and its connections. [`connection_slots`]: their
//!   bound. [`served_connection`], [`connection_activity`]: the requests of each, and the time in
//!   which it is idle. [`connection_stream`], [`write_timeout`]: its bytes. [`listeners`]: all
//!   addresses, also after a restart. [`shared_state`]: their shared state.
//! - [`upgraded_connection`]: a connection that carries the frames of the socket.
//! - [`base_path`]: the path at which a proxy serves all routes.
//! - [`request_guard`], [`caller`], [`workspace_scope`]: the checks before a route.
//!   [`access_token`], [`login_code`]: the secrets behind them. [`open_requests`]: the requests of
//!   each token. [`revocation`]: their end. [`client_keys`]: the keys of their tasks.
//! - [`problem`], [`extract`], [`body_budget`], [`request_headers`], [`store_cursor`]: errors,
//!   parameters and bodies, places in the feed. [`path_target`], [`task_view`]: the task of a path,
//!   and its answer.
//! - [`change_feed`], [`change_frames`], [`server_sent_events`]: the feed, and responses that follow
//!   it.
//! - [`local_requests`], [`mcp_sessions`]: the callers and the stored sessions of MCP clients.
//!   [`guarded_body`]: a value that lives until its response was sent, and bodies that end with a
//!   token.
//! - [`a2a`]: published agents for programs that speak A2A.
//! - [`routes`]: the routes, one file for each resource, and the OpenAPI document.

pub(crate) mod a2a;
pub(crate) mod access_token;
pub(crate) mod base_path;
pub(crate) mod body_budget;
pub(crate) mod caller;
pub(crate) mod change_feed;
pub(crate) mod change_frames;
pub(crate) mod client_keys;
pub(crate) mod connection_activity;
pub(crate) mod connection_slots;
pub(crate) mod connection_stream;
pub(crate) mod extract;
pub(crate) mod guarded_body;
pub(crate) mod listener;
pub(crate) mod listeners;
pub(crate) mod local_requests;
pub(crate) mod login_code;
pub(crate) mod mcp_sessions;
pub(crate) mod open_requests;
pub(crate) mod path_target;
pub(crate) mod problem;
pub(crate) mod request_guard;
pub(crate) mod request_headers;
pub(crate) mod revocation;
pub(crate) mod routes;
pub(crate) mod served_connection;
pub(crate) mod server_sent_events;
pub(crate) mod shared_state;
pub(crate) mod store_cursor;
pub(crate) mod task_pages;
pub(crate) mod task_view;
pub(crate) mod tls;
pub(crate) mod upgraded_connection;
pub(crate) mod workspace_scope;
pub(crate) mod write_timeout;

pub use a2a::published::A2aOptions;
pub use base_path::BasePath;
pub use listeners::{ListenOptions, ListenerPurpose, TlsFiles};
pub use routes::openapi_document;
