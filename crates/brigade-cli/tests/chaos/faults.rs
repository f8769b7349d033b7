//! The faults of a run, chosen by its seed.

use std::time::Duration;

use crate::proxy::ByteDirection;
use crate::random::ChaosRandom;

/// A fault. Nodes have indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// SIGKILL, and a start after the pause.
    Kill {
        node: usize,
        pause: Duration,
    },
    /// SIGSTOP for this time.
    Pause {
        node: usize,
        pause: Duration,
    },
    /// SIGKILL, and a start when other nodes have taken the sessions over. The takeover is measured.
    KillUntilTakeover {
        node: usize,
    },
    /// The same with SIGSTOP and SIGCONT.
    PauseUntilTakeover {
        node: usize,
    },
    /// The node cannot connect to the database.
    Disconnect {
        node: usize,
        pause: Duration,
    },
    /// The connections of the node stay open without data.
    HalfOpen {
        node: usize,
        pause: Duration,
    },
    Delay {
        node: usize,
        delay: Duration,
        pause: Duration,
    },
    /// Connections of the node are cut so many times, each after a number of bytes.
    CutCommits {
        node: usize,
        direction: ByteDirection,
        times: u64,
    },
    /// The database ends some connections of all nodes.
    TerminateBackends,
    /// SIGSTOP of one process of the database, for this time.
    PauseBackend {
        pause: Duration,
    },
    /// A transaction holds the row of a lane for this time.
    LockLane {
        pause: Duration,
    },
    RestartDatabase,
    PromoteReplica,
    /// The replica does not answer, so that commits wait.
    PauseReplica {
        pause: Duration,
    },
    /// A transaction that has read all tables stays open, while other faults happen.
    HoldTransaction {
        pause: Duration,
    },
    /// The node starts again with a clock that differs by so many seconds.
    SkewClock {
        node: usize,
        seconds: i64,
    },
}

/// The kinds of faults. Each is chosen once before one is chosen again.
const KINDS: u64 = 17;
/// The kind that needs libfaketime, the last one.
const SKEW_KIND: u64 = KINDS - 1;

/// Chooses faults.
#[derive(Debug)]
pub(crate) struct FaultDeck {
    random: ChaosRandom,
    nodes: usize,
    lease: Duration,
    /// True if the clock of a node can differ.
    has_skew: bool,
    kinds: Vec<u64>,
}

impl FaultDeck {
    pub(crate) fn new(random: ChaosRandom, nodes: usize, lease: Duration, has_skew: bool) -> Self {
        Self { random, nodes, lease, has_skew, kinds: Vec::new() }
    }

    /// Returns the next fault, and true if it begins a new round of all kinds.
    pub(crate) fn next_fault(&mut self) -> (Fault, bool) {
        let is_new_round = self.kinds.is_empty();
        if is_new_round {
            self.kinds = (0..KINDS).filter(|kind| *kind != SKEW_KIND || self.has_skew).collect();
        }
        let kind = self.kinds.swap_remove(self.random.index(self.kinds.len()));
        (self.fault(kind), is_new_round)
    }

    /// Returns a pause before the next fault. Some faults come at once.
    pub(crate) fn next_pause(&mut self) -> Duration {
        match self.random.is_hit(25) {
            true => Duration::ZERO,
            false => self.random.around(self.lease / 4),
        }
    }

    fn fault(&mut self, kind: u64) -> Fault {
        let node = self.random.index(self.nodes);
        let short = self.random.around(self.lease / 2);
        let long = self.lease + self.random.around(self.lease);
        let either = if self.random.is_hit(50) { short } else { long };
        match kind {
            0 => Fault::Kill { node, pause: either },
            1 => Fault::Pause { node, pause: either },
            2 => Fault::KillUntilTakeover { node },
            3 => Fault::PauseUntilTakeover { node },
            4 => Fault::Disconnect { node, pause: either },
            5 => Fault::HalfOpen { node, pause: either },
            6 => {
                let delay = Duration::from_millis(self.random.between(5, 120));
                Fault::Delay { node, delay, pause: short }
            }
            7 => self.cut_commits(node, ByteDirection::ToServer),
            8 => self.cut_commits(node, ByteDirection::ToClient),
            9 => Fault::TerminateBackends,
            10 => Fault::PauseBackend { pause: either },
            11 => Fault::LockLane { pause: short },
            12 => Fault::RestartDatabase,
            13 => Fault::PromoteReplica,
            14 => Fault::PauseReplica { pause: short },
            15 => Fault::HoldTransaction { pause: 6 * self.lease },
            SKEW_KIND.. => {
                let seconds = i64::try_from(self.random.below(41)).unwrap_or(0) - 20;
                Fault::SkewClock { node, seconds }
            }
        }
    }

    fn cut_commits(&mut self, node: usize, direction: ByteDirection) -> Fault {
        Fault::CutCommits { node, direction, times: self.random.between(5, 15) }
    }

    /// Returns the number of bytes after which a connection is cut. A commit has some thousands of bytes,
    /// and its answer some dozens.
    pub(crate) fn next_cut(&mut self, direction: ByteDirection) -> u64 {
        match direction {
            ByteDirection::ToServer => self.random.below(12_000),
            ByteDirection::ToClient => self.random.below(1_500),
        }
    }

    pub(crate) fn random(&mut self) -> &mut ChaosRandom {
        &mut self.random
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_names_its_faults() {
        let faults = |seed| {
            let random = ChaosRandom::new(seed);
            let mut deck = FaultDeck::new(random, 3, Duration::from_secs(4), true);
            (0..3 * KINDS).map(|_| deck.next_fault()).collect::<Vec<_>>()
        };
        assert_eq!(faults(7), faults(7));
        assert_ne!(faults(7), faults(8));
        let rounds = faults(7).iter().filter(|(_, is_new_round)| *is_new_round).count();
        assert_eq!(rounds, 3);
    }
}
