//! `peers`: builds all peers, runs them in turns, and writes the results.
//!
//! ```text
//! build -> rounds (work by work, peer by peer) -> medians -> table, RESULTS.md, results.svg
//! ```
//!
//! 1. `peer_programs`: the peers and how each is built.
//! 2. `rounds`: the runs of a peer.
//! 3. `figures`: medians.
//! 4. `machine`, `tables`, `report`, `chart`: the results as text and as a picture.

mod chart;
mod figures;
mod machine;
mod options;
mod peer_programs;
mod report;
mod rounds;
mod tables;
mod units;

use std::process::ExitCode;

use options::Options;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("peers: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let options = Options::parse(std::env::args().skip(1))?;
    let machine = machine::Machine::read();
    let programs = peer_programs::prepare(options.build);
    let brigade = peer_programs::prepare_brigade(options.build);
    let figures = rounds::run(&options, &programs, &brigade);
    println!("\n{}", tables::summary(&figures));
    println!("CPU time:\n\n{}", tables::cpu_times(&figures));
    for program in programs.iter().filter(|program| program.program.is_err()) {
        println!("{}", program.state());
    }
    if options.is_complete() {
        report::write(&report::Report { machine, programs, rounds: options.rounds, figures })?;
    } else {
        println!("not all works, or fewer than five rounds: nothing was written");
    }
    Ok(())
}
