//! The size of a run, from variables that `cargo xtask chaos` sets.

use std::time::Duration;

/// The seed of the first run of the short version.
const FIXED_SEED: u64 = 20_261_118;

/// The size and the seed of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChaosSettings {
    pub(crate) seed: u64,
    pub(crate) nodes: usize,
    pub(crate) sessions: usize,
    /// The time in which faults happen.
    pub(crate) duration: Duration,
    pub(crate) lease: Duration,
}

impl ChaosSettings {
    /// Returns the runs: one with the fixed seed and one with a fresh one. Variables change them:
    /// with a seed there is one run, and with `BRIGADE_CHAOS_RUNS` only the one with a fresh seed.
    pub(crate) fn runs() -> Vec<Self> {
        let sizes = |seed| Self {
            seed,
            nodes: read_number("NODES").map_or(3, |count| usize::try_from(count).unwrap_or(3)),
            sessions: read_number("SESSIONS")
                .map_or(24, |count| usize::try_from(count).unwrap_or(24)),
            duration: Duration::from_secs(read_number("SECONDS").unwrap_or(40)),
            lease: Duration::from_millis(read_number("LEASE_MS").unwrap_or(4_000)),
        };
        match read_number("SEED") {
            Some(seed) => vec![sizes(seed)],
            None if std::env::var_os("BRIGADE_CHAOS_RUNS").is_some() => vec![sizes(fresh_seed())],
            None => vec![sizes(FIXED_SEED), sizes(fresh_seed())],
        }
    }
}

/// Reads the variable `BRIGADE_CHAOS_…`.
fn read_number(name: &str) -> Option<u64> {
    let text = std::env::var(format!("BRIGADE_CHAOS_{name}")).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("BRIGADE_CHAOS_{name}: {text:?} is not a number")))
}

fn fresh_seed() -> u64 {
    u64::from(uuid::Uuid::new_v4().as_fields().0)
}
