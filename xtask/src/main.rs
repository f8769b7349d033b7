//! The project's tasks for developers and CI: `cargo xtask test`, `tidy`, `api`, `chaos`,
//! `instructions`, `bench`, `dist`.
//!
//! - `test`: runs tidy, formatting, lints and all tests; `--only NAME` selects one stage. A process
//!   that outlives its tests is a failure too.
//! - `tidy`: checks layers, licences and sources of dependencies, names, and the form of files.
//! - `api`: writes the list of the facade's public API.
//! - `chaos`: kills runtimes and shims at random moments, or injects faults into a fleet.
//! - `instructions`: counts the instructions of the hottest paths; `--update` stores the counts.
//! - `bench`: compares Brigade with plain tokio and plain rusqlite, as ratios.
//! - `dist`: builds the program for old systems and packages it for several installers.

mod api_items;
mod bench;
mod cargo;
mod chaos;
mod crate_source;
mod dependencies;
mod dist;
mod instructions;
mod interop;
mod licence;
mod names;
mod package;
mod public_api;
mod sdk;
mod test_run;
mod test_stages;
mod tidy;
mod web;

use std::process::ExitCode;

const HELP: &str = "\
usage: cargo xtask COMMAND

  test [--only NAME]   run all stages: tidy, format, api (the facade's public API is as listed),
                       package (the crates can be published), clippy, features, tests, loops (the
                       runtime with several loops), postgres (the crash stories on it), interop (MCP
                       and A2A programs of other vendors), schemathesis (generated requests to the
                       HTTP API), web (the dashboard in a browser), sdk (the Python and TypeScript
                       clients), instructions (the hottest paths execute no more instructions than
                       stored). NAME is one stage, a crate (brigade-model, ...), or a stage that runs
                       only by name: http (all tests of the HTTP server), chaos (a fleet with faults,
                       for some minutes), fleet (the model and the simulations of a fleet, and
                       chaos), model (agents with a small real model),
                       attacks (on the daemon and the sandbox, a minute each), clients (coding
                       agents of other vendors, as MCP clients and as agents of Brigade, offline),
                       dist (each package of `cargo xtask dist`, installed and run)
  tidy                 check layers, licences and sources of dependencies, names, and the form of
                       files
  api                  write the public API of the facade to crates/brigade/public-api.txt
  chaos [KILLS]        kill runtimes (100 times, or KILLS) and shims (1,000 times) at random
                       moments, and check that nothing is lost, repeated or left behind
  chaos --store postgres [--nodes N] [--sessions N] [--seed N] [--minutes N]
                       inject faults into nodes (3) that share a private PostgreSQL server with a replica,
                       while clients of sessions (200) work, for at least that time (10), and check their
                       histories; the same seed chooses the same faults
  instructions [--update]
                       count the instructions of the hottest paths under valgrind and compare them
                       with crates/brigade-runtime/benches/instructions.toml, or write them there
  bench [FILTER]       measure Brigade and its baselines and print the ratios; FILTER is a part of the
                       name of a benchmark, or agents, processes, http, load or fleet
  dist [FORMAT...] [--out DIR] [--binary PATH]
                       build the program for an old glibc and write its packages to target/dist, or
                       package an existing program; FORMAT is archive, npm, wheel, deb, oci or
                       sbom (all)
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["test"] => test_stages::run_stages(None),
        ["test", "--only", name] => test_stages::run_stages(Some(name)),
        ["tidy"] => tidy::run(),
        ["api"] => public_api::write(),
        ["chaos", args @ ..] => chaos::run(args),
        ["instructions"] => instructions::check(),
        ["instructions", "--update"] => instructions::update(),
        ["bench"] => bench::run(None),
        ["bench", filter] => bench::run(Some(filter)),
        ["dist", args @ ..] => dist::run(args),
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
