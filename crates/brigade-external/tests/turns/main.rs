//! Turns of the built-in agents, from output in the shape of each program.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod acp;
mod acp_bad_input;
mod acp_files;
mod acp_support;
mod adapter_files;
mod claude;
mod codex;
mod gemini;
mod opencode;
mod qwen;
mod support;
