//! One OS process: its own session, kept output, kind then firm stop, adoption after a crash.

pub mod shim;
