//! The shim: a small process between Brigade and a command.
//!
//! It outlives the runtime that started it, so that the command does too: it starts the command,
//! keeps its output and its ending, and ends it with all that came of it when asked. The same source
//! is the companion binary (one thread, standard library only) and, where that could not be built, a
//! second life of the main binary.
//!
//! Reading order: `record` and `layout` (the files it keeps), ...

pub mod layout;
pub mod record;
