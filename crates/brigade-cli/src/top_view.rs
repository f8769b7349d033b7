//! The full-screen task list: `state` holds its data and handles keys, `draw` renders it.

pub(crate) mod draw;
pub(crate) mod state;
