//! The daemon's protocol: its frames, its requests with their replies, and the client's side.
//!
//! ```text
//!   a client ─ DaemonClient ─ DaemonConnection ─ Unix socket, one JSON value per line ─ the daemon
//!                                             └─ a stream that a server accepted ─ the same lines
//! ```
//!
//! This crate knows no runtime. The daemon's side is in `brigade-server`. Modules in reading order:
//!
//! - [`frames`]: the lines of both sides. [`bounded_line_reader`], [`flow_window`]: their bounds.
//! - [`call`], [`requests`]: the trait of a request, and each request with its reply.
//! - [`task_info`], [`task_target`]: a task as clients see it, and as they name it.
//! - [`request_client`]: the traits of a client, with or without a socket.
//! - [`daemon_connection`], [`daemon_launcher`], [`daemon_client`]: one connection, the start of a
//!   daemon if none runs, and a client that reconnects. [`remote_daemon`], [`daemon_connector`]:
//!   servers in place of the socket, and the choice between both. `conversation_presence`: a
//!   connection without requests.
//! - [`state_dir`], [`daemon_lock`], [`operator_key`]: the files by which both sides meet.
//!   [`workspace`]: the session of a directory. [`random_bytes`]: the bytes of secrets.
//! - [`http`]: the types of the HTTP API.

pub mod bounded_line_reader;
pub mod call;
mod conversation_presence;
pub mod daemon_client;
pub mod daemon_connection;
pub mod daemon_connector;
pub mod daemon_launcher;
pub mod daemon_lock;
pub mod flow_window;
pub mod frames;
pub mod http;
pub mod operator_key;
pub mod random_bytes;
pub mod remote_daemon;
pub mod request_client;
pub mod requests;
pub mod state_dir;
pub mod task_info;
pub mod task_target;
pub mod workspace;
pub mod worktree_info;

pub use daemon_connection::{ClientError, DaemonConnection};
pub use request_client::{RequestClient, RequestClientFactory};
pub use state_dir::StateDir;
pub use task_info::{InheritedLimits, RetryInfo, TaskInfo};
pub use task_target::TaskTarget;
pub use worktree_info::WorktreeInfo;
