//! The `main` of a peer, and the line that it prints.

use std::error::Error;
use std::future::Future;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use crate::{Sample, Work};

/// Any error of a work.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// The result of one work.
#[derive(Clone, Debug)]
pub enum Measured {
    Done(Sample),
    /// The peer has no such feature. The text says which one is missing.
    Unsupported(&'static str),
}

impl From<Sample> for Measured {
    fn from(sample: Sample) -> Self {
        Self::Done(sample)
    }
}

/// The line that a peer prints.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct PeerReport {
    pub peer: String,
    pub work: String,
    /// The items that were measured.
    pub count: usize,
    pub wall_ns: Option<u64>,
    pub cpu_ns: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resident_bytes: Option<u64>,
    /// The missing feature, if the peer cannot do the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsupported: Option<String>,
}

impl PeerReport {
    fn new(peer: &str, work: Work, count: usize, measured: &Measured) -> Self {
        let mut report = Self {
            peer: peer.to_owned(),
            work: work.name().to_owned(),
            count,
            wall_ns: None,
            cpu_ns: None,
            resident_bytes: None,
            unsupported: None,
        };
        match measured {
            Measured::Done(sample) => {
                report.wall_ns = Some(sample.wall.as_nanos() as u64);
                report.cpu_ns = Some(sample.cpu.as_nanos() as u64);
                report.resident_bytes = sample.resident_bytes;
                report.count = sample.count.unwrap_or(count);
            }
            Measured::Unsupported(feature) => report.unsupported = Some((*feature).to_owned()),
        }
        report
    }
}

/// Parses `WORK COUNT`, does the work once, and prints one line of JSON.
pub fn run_peer(
    peer: &str,
    measure: impl FnOnce(Work, usize) -> Result<Measured, BoxError>,
) -> ExitCode {
    let mut args = std::env::args().skip(1);
    let work = args.next().and_then(|name| Work::parse(&name));
    let count = args.next().and_then(|count| count.parse().ok());
    let (Some(work), Some(count)) = (work, count) else {
        let names: Vec<&str> = Work::ALL.into_iter().map(Work::name).collect();
        eprintln!("usage: peer-{peer} WORK COUNT\nworks: {}", names.join(", "));
        return ExitCode::from(2);
    };
    let line = measure(work, count).and_then(|measured| {
        Ok(serde_json::to_string(&PeerReport::new(peer, work, count, &measured))?)
    });
    match line {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("peer-{peer} {}: {error}", work.name());
            ExitCode::FAILURE
        }
    }
}

/// Runs a future on one of two workers, as a program does. A call from outside of the pool would
/// cost two thread switches.
pub fn run_on_worker<F, T>(future: F) -> Result<T, BoxError>
where
    F: Future<Output = Result<T, BoxError>> + Send + 'static,
    T: Send + 'static,
{
    let tokio =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let result = tokio.block_on(async { tokio.spawn(future).await });
    tokio.shutdown_background();
    result?
}
