//! `RESULTS.md`: the machine, the figures, and their honest reading.

use std::fmt::Write;
use std::fs;

use jiff::Timestamp;
use peers_harness::Work;

use crate::chart;
use crate::figures::Figures;
use crate::machine::Machine;
use crate::peer_programs::{PeerProgram, peers_dir};
use crate::tables;

/// How to read the figures: the differences between the peers that no column shows.
const READING: &str = include_str!("reading.md");

/// A complete run.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) programs: Vec<PeerProgram>,
    pub(crate) rounds: usize,
    pub(crate) figures: Figures,
}

/// Writes `RESULTS.md` and `results.svg`.
pub(crate) fn write(report: &Report) -> Result<(), String> {
    let dir = peers_dir();
    for (name, text) in
        [("RESULTS.md", render(report)), ("results.svg", chart::render(&report.figures))]
    {
        fs::write(dir.join(name), text).map_err(|error| format!("{name}: {error}"))?;
        println!("wrote {name}");
    }
    Ok(())
}

fn render(report: &Report) -> String {
    let mut text = String::from("# The same work by Brigade and by its peers\n\n");
    text.push_str("`cargo run --release` in `bench/peers` writes this file. Do not edit it.\n\n");
    text.push_str("![Bars of all figures, on a logarithmic scale](results.svg)\n\n");
    text.push_str("## Figures\n\n");
    let _ = writeln!(
        text,
        "Medians of {} rounds, for one item; lower is better. The time is wall time.\n\
         `-`: the peer has no such feature, or its run took more than 20 s; the last table says which.\n\
         `(n = 500)`: the peer did 500 items, because the count of the row would take too long.\n",
        report.rounds
    );
    text.push_str(&tables::summary(&report.figures));
    text.push_str("\n| work | one item |\n|---|---|\n");
    for work in Work::ALL {
        let _ = writeln!(text, "| `{}` | {} |", work.name(), work.description());
    }
    text.push_str("\n## Losses\n\nEach row is a work at which a peer needs less than Brigade.\n\n");
    text.push_str(&tables::losses(&report.figures));
    text.push('\n');
    text.push_str(READING);
    text.push_str("\n## The run\n\n");
    text.push_str(&render_run(report));
    text.push_str(
        "\n## CPU time\n\nUser and system time of all processes of the peer, for one item.\n\n",
    );
    text.push_str(&tables::cpu_times(&report.figures));
    text.push_str("\n## Spread\n\nThe lowest and the highest round.\n\n");
    text.push_str(&tables::spreads(&report.figures));
    text.push_str("\n## Missing figures\n\n");
    text.push_str(&tables::missing(&report.figures));
    text
}

fn render_run(report: &Report) -> String {
    let machine = &report.machine;
    let now = Timestamp::now().strftime("%Y-%m-%d %H:%M UTC");
    let mut text = String::from("| | |\n|---|---|\n");
    let _ = writeln!(text, "| date | {now} |");
    let _ = writeln!(text, "| command | `cargo run --release` in `bench/peers` |");
    let _ = writeln!(text, "| rounds | {}, in turns, a process per run |", report.rounds);
    let _ = writeln!(text, "| cores | {} ({}) |", machine.cores, machine.processor);
    let _ = writeln!(text, "| memory | {} GiB |", machine.memory_gib);
    let _ = writeln!(text, "| kernel | {} |", machine.kernel);
    let _ = writeln!(text, "| load before the run | {} |", machine.load_at_start);
    let _ = writeln!(text, "| compiler | {} |", machine.compiler);
    let _ = writeln!(text, "| commit of Brigade | `{}` |", machine.commit);
    for program in &report.programs {
        let _ = writeln!(text, "| {} | {} |", program.peer.name, program.state());
    }
    text
}
