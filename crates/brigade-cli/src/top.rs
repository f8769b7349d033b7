//! The full-screen view: `board` is what is shown and what keys do to it, `draw` how it looks.

pub(crate) mod board;
pub(crate) mod draw;
