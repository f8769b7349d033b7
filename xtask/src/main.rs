//! What people and CI run: `cargo xtask test`, `tidy`, `bench`, `chaos`.
//!
//! - `test`: tidy, formatting, lints and all tests; `--only NAME` narrows it. It fails too when a process of
//!   the tests is left at their end.
//! - `tidy`: what no compiler checks: who depends on whom, licences and sources of dependencies, how files
//!   look.
//! - `chaos`: kills, at random moments and many times.
//! - `bench`: Brigade's figures beside plain tokio and plain rusqlite, as ratios.

mod bench;
mod chaos;
mod dependencies;
mod interop;
mod licence;
mod names;
mod test_run;
mod test_stages;
mod tidy;

use std::process::ExitCode;

const HELP: &str = "\
usage: cargo xtask COMMAND

  test [--only NAME]   tidy, format, clippy, tests, outside (MCP as other people's clients see it);
                       or only one of these, or only the tests of one crate (brigade-model, ...),
                       or what is tested only when asked for: model (agents with a real one, tiny),
                       attacks (on the daemon and the sandbox, a minute each), clients (coding agents
                       of others as MCP clients, offline)
  tidy                 check what the compiler does not: layers, licences and sources of dependencies,
                       file sizes, words
  chaos [KILLS]        kill runtimes and shims at random moments (100 and 1,000 times), and see
                       that nothing is lost, repeated or left behind
  bench [FILTER]       measure Brigade beside its baselines and print the ratios
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["test"] => test_stages::run_stages(None),
        ["test", "--only", name] => test_stages::run_stages(Some(name)),
        ["tidy"] => tidy::run(),
        ["chaos"] => chaos::run(None),
        ["chaos", kills] => chaos::run(Some(kills)),
        ["bench"] => bench::run(None),
        ["bench", filter] => bench::run(Some(filter)),
        [] | ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            Ok(())
        }
        _ => Err(format!("unknown command: {}\n\n{HELP}", words.join(" "))),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}
