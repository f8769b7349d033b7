//! The runs: each round gives each peer one turn at each work.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use peers_harness::{BRIGADE_VARIABLE, PeerReport, RUN_LIMIT, Work};

use crate::figures::{Figures, PeerWork};
use crate::options::Options;
use crate::peer_programs::PeerProgram;

/// Runs all rounds. A run that fails is a note in the results, not the end of the program.
/// `brigade` is the path of the program `brigade`.
pub(crate) fn run(options: &Options, programs: &[PeerProgram], brigade: &Path) -> Figures {
    let mut figures = Figures::default();
    for round in 1..=options.rounds {
        println!("round {round} of {}", options.rounds);
        for work in options.works.iter().copied() {
            for program in programs {
                let Ok(path) = &program.program else { continue };
                let key = PeerWork { peer: program.peer.name, work };
                if figures.is_excluded(key) {
                    continue;
                }
                match run_once(path, work, brigade) {
                    Ok(report) => figures.add(key, &report),
                    Err(error) => {
                        eprintln!("  {} {}: {error}", program.peer.name, work.name());
                        figures.exclude(key, format!("failed: {error}"));
                    }
                }
            }
        }
    }
    figures
}

/// Runs a program and parses its last line.
fn run_once(program: &Path, work: Work, brigade: &Path) -> Result<PeerReport, String> {
    let mut command = Command::new(program);
    command.args([work.name(), &work.count().to_string()]);
    command.env(BRIGADE_VARIABLE, brigade);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let succeeded = wait_with_limit(&mut child)?;
    if !succeeded {
        let text = read_all(child.stderr.take());
        return Err(text.lines().last().unwrap_or("no message").to_owned());
    }
    let text = read_all(child.stdout.take());
    let line = text.lines().last().unwrap_or_default();
    serde_json::from_str(line).map_err(|error| format!("{error}: {line}"))
}

/// Waits for the end of a program, and returns whether it succeeded. The output of a peer is far
/// smaller than a pipe, so that nobody needs to read meanwhile.
fn wait_with_limit(child: &mut Child) -> Result<bool, String> {
    let started_at = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(|error| error.to_string())? {
            return Ok(status.success());
        }
        if started_at.elapsed() > RUN_LIMIT {
            child.kill().and_then(|()| child.wait()).map_err(|error| error.to_string())?;
            return Err(format!("no end within {} s", RUN_LIMIT.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn read_all(pipe: Option<impl Read>) -> String {
    let mut text = String::new();
    if let Some(mut pipe) = pipe {
        let _ = pipe.read_to_string(&mut text);
    }
    text
}
