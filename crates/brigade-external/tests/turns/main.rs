//! Turns of the built-in adapters, from output in the shape of each program.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod adapter_files;
mod claude;
mod codex;
mod gemini;
mod opencode;
mod qwen;
mod support;
