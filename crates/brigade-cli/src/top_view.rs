//! The full-screen view: `board` is what is shown and what keys do to it, `draw` how it looks.

pub(crate) mod draw;
pub(crate) mod state;
