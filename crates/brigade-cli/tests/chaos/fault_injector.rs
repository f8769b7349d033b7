//! Injects faults into nodes and the database, and heals them.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::database::ReplicatedDatabase;
use crate::evidence::Takeover;
use crate::faults::{Fault, FaultDeck};
use crate::node::ChaosNode;
use crate::proxy::ProxyFault;
use crate::settings::ChaosSettings;

const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// The time after which a takeover that does not happen is a violation, beside ten leases.
const TAKEOVER_TIMEOUT: Duration = Duration::from_secs(60);

/// The nodes and the database of a run.
pub(crate) struct FaultInjector {
    pub(crate) settings: ChaosSettings,
    pub(crate) database: ReplicatedDatabase,
    pub(crate) nodes: Vec<ChaosNode>,
    pub(crate) token: String,
    pub(crate) deck: FaultDeck,
    pub(crate) takeovers: Vec<Takeover>,
    /// The injected faults by the name of their kind.
    pub(crate) counts: BTreeMap<String, u64>,
    /// The last fault of the database, after which no node is closed for one lease.
    pub(crate) database_fault_at: Instant,
    pub(crate) started_at: Instant,
}

impl FaultInjector {
    /// Injects faults until the time of the settings is over and each kind has happened.
    pub(crate) fn run(&mut self) {
        let end = Instant::now() + self.settings.duration;
        let mut is_first_round = true;
        loop {
            let (fault, is_new_round) = self.deck.next_fault();
            is_first_round &= !is_new_round || self.counts.is_empty();
            if !is_first_round && Instant::now() >= end {
                return;
            }
            println!("chaos: {:>6.1} s  {fault:?}", self.started_at.elapsed().as_secs_f64());
            self.inject(fault);
            let pause = self.deck.next_pause();
            self.pause(pause, None);
        }
    }

    fn inject(&mut self, fault: Fault) {
        let name = format!("{fault:?}");
        let name = name.split([' ', '{']).next().unwrap_or_default().to_owned();
        *self.counts.entry(name).or_default() += 1;
        match fault {
            Fault::Kill { node, pause } => {
                self.nodes[node].kill();
                self.pause_with_more(pause, node);
                self.nodes[node].start();
            }
            Fault::Pause { node, pause } => {
                self.nodes[node].pause();
                self.pause_with_more(pause, node);
                self.nodes[node].resume();
            }
            Fault::KillUntilTakeover { node } => {
                self.take_over(node, ChaosNode::kill);
                self.nodes[node].start();
            }
            Fault::PauseUntilTakeover { node } => {
                self.take_over(node, ChaosNode::pause);
                self.nodes[node].resume();
            }
            Fault::Disconnect { node, pause } => {
                self.change_proxies(node, ProxyFault::Refuse, pause)
            }
            Fault::HalfOpen { node, pause } => {
                self.change_proxies(node, ProxyFault::HalfOpen, pause)
            }
            Fault::Delay { node, delay, pause } => {
                self.change_proxies(node, ProxyFault::Delay(delay), pause);
            }
            Fault::CutCommits { node, direction, times } => {
                for _ in 0..times {
                    let bytes = self.deck.next_cut(direction);
                    for proxy in &self.nodes[node].proxies {
                        proxy.cut_after(direction, bytes);
                    }
                    self.pause(Duration::from_millis(250), None);
                }
            }
            Fault::TerminateBackends => self.terminate_backends(),
            Fault::PauseBackend { pause } => self.pause_backend(pause),
            Fault::LockLane { pause } => self.lock_lane(pause),
            Fault::RestartDatabase => {
                self.database.restart_primary();
                self.database_fault_at = Instant::now();
            }
            Fault::PromoteReplica => {
                self.database.promote_replica();
                self.database_fault_at = Instant::now();
                self.pause(self.settings.lease, None);
                self.database.add_replica();
            }
            Fault::PauseReplica { pause } => {
                self.database.pause_replica(pause);
                self.database_fault_at = Instant::now();
            }
            Fault::HoldTransaction { pause } => self.database.hold_transaction(pause),
            Fault::SkewClock { node, seconds } => {
                self.nodes[node].kill();
                self.nodes[node].skew = seconds;
                self.nodes[node].start();
            }
        }
    }

    /// Waits, and starts nodes again that have ended by themselves. One node is down on purpose.
    fn pause(&mut self, pause: Duration, down: Option<usize>) {
        let end = Instant::now() + pause;
        loop {
            for (index, node) in self.nodes.iter_mut().enumerate() {
                if Some(index) != down {
                    node.keep_running();
                }
            }
            let remaining = end.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                return;
            }
            std::thread::sleep(remaining.min(LOOK_INTERVAL));
        }
    }

    /// Waits during the fault of a node. Sometimes another fault happens meanwhile.
    fn pause_with_more(&mut self, pause: Duration, node: usize) {
        self.pause(pause / 2, Some(node));
        let other = (node + 1) % self.nodes.len();
        match self.deck.random().below(10) {
            0 => self.inject(Fault::TerminateBackends),
            1 => self.inject(Fault::RestartDatabase),
            2 if other != node => {
                self.nodes[other].kill();
                self.nodes[other].start();
            }
            _ => {}
        }
        self.pause(pause / 2, Some(node));
    }

    fn change_proxies(&mut self, node: usize, fault: ProxyFault, pause: Duration) {
        let set = |nodes: &[ChaosNode], fault| {
            nodes[node].proxies.iter().for_each(|proxy| proxy.set_fault(fault));
        };
        set(&self.nodes, fault);
        self.pause_with_more(pause, node);
        set(&self.nodes, ProxyFault::None);
    }

    fn terminate_backends(&mut self) {
        let percent = self.deck.random().between(20, 101);
        // It fails if the database does not run at this moment.
        let _ = self.database.query(&format!(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
             WHERE application_name = 'brigade' AND random() * 100 < {percent}"
        ));
    }

    fn pause_backend(&mut self, pause: Duration) {
        let sql = "SELECT pid FROM pg_stat_activity WHERE application_name = 'brigade' \
            ORDER BY state = 'active' DESC, random() LIMIT 1";
        let pid = self.database.query(sql).unwrap_or_default();
        let signal = |name: &str| Command::new("kill").args([name, &pid]).status();
        if !pid.is_empty() && signal("-STOP").is_ok_and(|status| status.success()) {
            self.pause(pause, None);
            let _ = signal("-CONT");
        }
    }

    fn lock_lane(&mut self, pause: Duration) {
        let seconds = pause.as_secs_f64();
        let _ = self.database.query(&format!(
            "BEGIN; SELECT lane FROM brigade.lanes WHERE open AND node <> 0 ORDER BY random() LIMIT 1 \
             FOR UPDATE; SELECT pg_sleep({seconds}); COMMIT"
        ));
    }

    /// Stops a node and measures the time until none of its sessions belongs to it. Nothing else happens
    /// meanwhile.
    fn take_over(&mut self, node: usize, stop: impl FnOnce(&mut ChaosNode)) {
        let lease = self.settings.lease;
        self.wait_until_ready();
        let since_fault = self.database_fault_at.elapsed();
        self.pause(lease.saturating_sub(since_fault), None);
        let name = self.nodes[node].name.clone();
        let sql = format!("SELECT node FROM brigade.nodes WHERE open AND name = '{name}'");
        let Ok(id) = self.database.query(&sql) else { return };
        if id.is_empty() {
            return;
        }
        let sql = format!(
            "SELECT count(*) FROM brigade.sessions s JOIN brigade.lanes l ON l.lane = s.lane \
             WHERE l.node = {id} AND s.state <> 2"
        );
        let owned = |database: &ReplicatedDatabase| -> Option<usize> {
            database.query(&sql).ok()?.parse().ok()
        };
        stop(&mut self.nodes[node]);
        let stopped_at = Instant::now();
        let stall = StallMeter::start();
        let sessions = owned(&self.database).unwrap_or(0);
        let deadline = stopped_at + 10 * lease + TAKEOVER_TIMEOUT;
        let mut slowest = Duration::ZERO;
        let took = loop {
            let asked_at = Instant::now();
            if owned(&self.database) == Some(0) {
                break Some(stopped_at.elapsed());
            }
            if Instant::now() >= deadline {
                break None;
            }
            slowest = slowest.max(asked_at.elapsed());
            std::thread::sleep(LOOK_INTERVAL);
        };
        let stall = stall.finish() + slowest + LOOK_INTERVAL;
        if sessions > 0 {
            let takeover = Takeover {
                node: name,
                sessions,
                lease_ms: millis(lease),
                took_ms: took.map(millis),
                stall_ms: millis(stall),
            };
            println!("chaos: {takeover:?}");
            self.takeovers.push(takeover);
        }
    }

    /// Waits until all nodes answer.
    pub(crate) fn wait_until_ready(&mut self) {
        for node in &mut self.nodes {
            node.wait_until_ready(&self.token);
        }
    }
}

/// Measures the time for which a thread that should run did not run.
struct StallMeter {
    is_over: Arc<AtomicBool>,
    stalled_micros: Arc<AtomicU64>,
}

impl StallMeter {
    fn start() -> Self {
        let meter = Self { is_over: Arc::default(), stalled_micros: Arc::default() };
        let (is_over, stalled) = (Arc::clone(&meter.is_over), Arc::clone(&meter.stalled_micros));
        std::thread::spawn(move || {
            let interval = Duration::from_millis(10);
            while !is_over.load(Ordering::Relaxed) {
                let slept_at = Instant::now();
                std::thread::sleep(interval);
                let late = slept_at.elapsed().saturating_sub(interval);
                let micros = u64::try_from(late.as_micros()).unwrap_or(u64::MAX);
                stalled.fetch_add(micros, Ordering::Relaxed);
            }
        });
        meter
    }

    fn finish(self) -> Duration {
        self.is_over.store(true, Ordering::Relaxed);
        Duration::from_micros(self.stalled_micros.load(Ordering::Relaxed))
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
