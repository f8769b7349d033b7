//! The checker. It finds each violation of a guarantee in the evidence of a run.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::evidence::{
    EffectKind, EventFact, EventPlace, Evidence, RunEnding, StoredEvent, StoredSession,
};
use crate::history::{
    OperationReply, OperationRequest, OperationResult, TaskNumber, keyed_commands,
};

/// A violation of a guarantee.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    /// The name of the guarantee.
    pub(crate) rule: &'static str,
    pub(crate) detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.detail)
    }
}

/// Returns all violations in the evidence.
pub(crate) fn check(evidence: &Evidence) -> Vec<Violation> {
    let mut checker = Checker::new(evidence);
    checker.check_sessions();
    checker.check_lanes();
    checker.check_feed();
    checker.check_commands();
    checker.check_answers();
    checker.check_runs();
    checker.check_collections();
    checker.check_attempts();
    checker.check_executions();
    checker.check_messages();
    checker.check_stops();
    checker.check_takeovers();
    checker.check_remains();
    checker.violations
}

/// The evidence by session.
struct Checker<'a> {
    evidence: &'a Evidence,
    sessions: BTreeMap<i64, SessionEvidence<'a>>,
    keys: BTreeMap<&'a str, i64>,
    violations: Vec<Violation>,
}

/// A session with its events in the order of their numbers.
struct SessionEvidence<'a> {
    session: &'a StoredSession,
    events: Vec<&'a StoredEvent>,
}

impl<'a> SessionEvidence<'a> {
    fn facts(&self) -> impl Iterator<Item = &'a EventFact> + '_ {
        self.events.iter().map(|event| &event.fact)
    }
}

impl<'a> Checker<'a> {
    fn new(evidence: &'a Evidence) -> Self {
        let mut sessions: BTreeMap<i64, SessionEvidence<'a>> = BTreeMap::new();
        let mut keys = BTreeMap::new();
        let mut violations = Vec::new();
        for session in &evidence.sessions {
            sessions.insert(session.key, SessionEvidence { session, events: Vec::new() });
            if keys.insert(session.name.as_str(), session.key).is_some() {
                let detail = format!("two sessions are named {}", session.name);
                violations.push(Violation { rule: "one session per name", detail });
            }
        }
        for event in &evidence.events {
            match sessions.get_mut(&event.session) {
                Some(session) => session.events.push(event),
                None => violations.push(Violation {
                    rule: "events have a session",
                    detail: format!("{:?}", event.place),
                }),
            }
        }
        for session in sessions.values_mut() {
            session.events.sort_by_key(|event| (event.seq, event.place));
        }
        Self { evidence, sessions, keys, violations }
    }

    fn report(&mut self, rule: &'static str, detail: String) {
        self.violations.push(Violation { rule, detail });
    }

    /// Reports what a function finds in each session.
    fn in_each_session(
        &mut self,
        rule: &'static str,
        find: impl Fn(&SessionEvidence<'a>) -> Vec<String>,
    ) {
        let found = self.sessions.values().flat_map(|session| {
            let name = &session.session.name;
            find(session).into_iter().map(move |detail| format!("{name}: {detail}"))
        });
        let found: Vec<Violation> = found.map(|detail| Violation { rule, detail }).collect();
        self.violations.extend(found);
    }

    /// The numbers of a session's events are contiguous, and each event continues the one before: one
    /// writer at a time.
    fn check_sessions(&mut self) {
        self.in_each_session("events of a session are numbered without gaps", |session| {
            let stored = session.events.iter().map(|event| event.seq);
            match stored.eq(1..=session.session.seq) {
                true => Vec::new(),
                false => {
                    let numbers: Vec<u64> = session.events.iter().map(|event| event.seq).collect();
                    vec![format!("1 to {} are {numbers:?}", session.session.seq)]
                }
            }
        });
        self.in_each_session("a session has one writer at a time", |session| {
            let pairs = session.events.windows(2);
            let broken = pairs.filter(|pair| {
                let (before, event) = (pair[0].place, pair[1].place);
                match pair[1].after {
                    Some(after) => before.lane == event.lane || after != before,
                    None => before.lane != event.lane || before.position >= event.position,
                }
            });
            let text = |pair: &[&StoredEvent]| {
                format!(
                    "{:?} (after {:?}) follows {:?}",
                    pair[1].place, pair[1].after, pair[0].place
                )
            };
            broken.map(text).collect()
        });
        self.in_each_session("an epoch has one lane", |session| {
            let pairs = session.events.windows(2);
            let moves = pairs.filter(|pair| pair[0].place.lane != pair[1].place.lane).count();
            let epoch = session.session.epoch;
            match u64::try_from(moves).is_ok_and(|moves| moves < epoch) {
                true => Vec::new(),
                false => vec![format!("{moves} moves in the epochs up to {epoch}")],
            }
        });
    }

    /// The positions of a lane are dense.
    fn check_lanes(&mut self) {
        let mut lanes: BTreeMap<i64, Vec<u64>> = BTreeMap::new();
        for event in &self.evidence.events {
            lanes.entry(event.place.lane).or_default().push(event.place.position);
        }
        for lane in &self.evidence.lanes {
            let mut positions = lanes.remove(&lane.lane).unwrap_or_default();
            positions.sort_unstable();
            if !positions.iter().copied().eq(1..=lane.head) {
                let found = positions.len();
                let detail = format!("lane {} has {found} of {} events", lane.lane, lane.head);
                self.report("lanes are dense", detail);
            }
        }
        for lane in lanes.into_keys() {
            self.report("lanes are dense", format!("lane {lane} has no row"));
        }
    }

    /// The feed has each event once, and those of a session in their order.
    fn check_feed(&mut self) {
        let stored: BTreeMap<EventPlace, &StoredEvent> =
            self.evidence.events.iter().map(|event| (event.place, event)).collect();
        let mut seen = BTreeSet::new();
        let mut last: BTreeMap<i64, u64> = BTreeMap::new();
        for place in &self.evidence.feed {
            let Some(event) = stored.get(place) else {
                self.report("the feed has the stored events", format!("{place:?} is not stored"));
                continue;
            };
            if !seen.insert(*place) {
                self.report("the feed has each event once", format!("{place:?}"));
            }
            let before = last.insert(event.session, event.seq).unwrap_or(0);
            if before + 1 != event.seq {
                let detail = format!("session {}: {} after {before}", event.session, event.seq);
                self.report("the feed keeps the order of a session", detail);
            }
        }
        let missing = stored.keys().filter(|place| !seen.contains(place)).count();
        if missing > 0 {
            self.report("the feed has the stored events", format!("{missing} are missing"));
        }
    }

    /// Every acknowledged command is stored once, one in doubt at most once, a refused one never.
    fn check_commands(&mut self) {
        for ((session, recipient, key), command) in keyed_commands(&self.evidence.operations) {
            let stored = self.find_keyed(session, recipient, key);
            let expected = match (command.acknowledged.is_empty(), command.is_in_doubt) {
                (false, _) => 1..=1,
                (true, true) => 0..=1,
                (true, false) => 0..=0,
            };
            if !expected.contains(&stored.len()) {
                let detail = format!(
                    "{session}: {key} is stored {} times, not {expected:?}: {command:?}",
                    stored.len()
                );
                self.report("a command happens as its client knows", detail);
            }
            let wrong = command.acknowledged.iter().flatten().find(|task| !stored.contains(task));
            if let Some(wrong) = wrong {
                let detail = format!("{session}: {key} was answered with {wrong}, not {stored:?}");
                self.report("a key names one task", detail);
            }
        }
    }

    /// Returns the numbers of the stored tasks, or messages, of a key.
    fn find_keyed(
        &self,
        session: &str,
        recipient: Option<TaskNumber>,
        key: &str,
    ) -> Vec<TaskNumber> {
        let find = |fact: &EventFact| match fact {
            EventFact::Spawned { task, key: Some(found), parent: None, .. }
                if recipient.is_none() && found == key =>
            {
                Some(*task)
            }
            EventFact::MessageSent { message, to, key: Some(found) }
                if recipient.is_some() && *to == recipient && found == key =>
            {
                Some(*message)
            }
            _ => None,
        };
        self.facts_of(session).into_iter().filter_map(find).collect()
    }

    fn facts_of(&self, session: &str) -> Vec<&'a EventFact> {
        let session = self.keys.get(session).and_then(|key| self.sessions.get(key));
        session.into_iter().flat_map(SessionEvidence::facts).collect()
    }

    /// Nodes answer with success, or with a refusal that the operation can have.
    fn check_answers(&mut self) {
        for operation in &self.evidence.operations {
            let OperationResult::Failed { code } = &operation.result else { continue };
            let is_expected = match &operation.request {
                _ if code == "unavailable" || code == "not sent" => true,
                OperationRequest::Send { .. } | OperationRequest::Stop { .. } => code == "ended",
                _ => false,
            };
            if !is_expected {
                self.report("nodes know each other's changes", format!("{operation:?}"));
            }
        }
    }

    /// Each run ends once, and nothing fails by itself.
    fn check_runs(&mut self) {
        self.in_each_session("each run ends once", |session| {
            let mut opened: BTreeMap<TaskNumber, u64> = BTreeMap::new();
            let mut ended: BTreeMap<TaskNumber, Vec<u64>> = BTreeMap::new();
            for fact in session.facts() {
                match fact {
                    EventFact::Spawned { task, .. } | EventFact::RunOpened { task } => {
                        *opened.entry(*task).or_default() += 1;
                    }
                    EventFact::Ended { task, run, .. } => {
                        ended.entry(*task).or_default().push(*run)
                    }
                    _ => {}
                }
            }
            let is_wrong = |(task, runs): &(&TaskNumber, &u64)| {
                let ended = ended.get(task).map_or(&[][..], Vec::as_slice);
                !ended.iter().copied().eq(1..=**runs)
            };
            let wrong = opened.iter().filter(is_wrong);
            let text = |(task, runs): (&TaskNumber, &u64)| {
                format!("task {task} has {runs} runs, and ended in {:?}", ended.get(task))
            };
            wrong.map(text).collect()
        });
        self.in_each_session("no run fails by itself", |session| {
            let failed = session.facts().filter_map(|fact| match fact {
                EventFact::Ended { task, ending: RunEnding::Failed(text), .. } => {
                    Some(format!("task {task}: {text}"))
                }
                _ => None,
            });
            failed.collect()
        });
    }

    /// Each result is collected at most once, and each that a client has got once.
    fn check_collections(&mut self) {
        self.in_each_session("a result is collected once", |session| {
            let mut seen = BTreeSet::new();
            let runs = session.facts().filter_map(|fact| match fact {
                EventFact::Collected { runs } => Some(runs),
                _ => None,
            });
            let repeated = runs.flatten().filter(|run| !seen.insert(**run));
            repeated.map(|(task, run)| format!("run {run} of task {task}")).collect()
        });
        let mut first: BTreeSet<(&str, TaskNumber)> = BTreeSet::new();
        for operation in &self.evidence.operations {
            let OperationResult::Ok(OperationReply::Waited { ended }) = &operation.result else {
                continue;
            };
            for collected in ended {
                let task = collected.task;
                let session = operation.session.as_str();
                if collected.is_first && !first.insert((session, task)) {
                    let detail = format!("{session}: task {task} was returned twice as new");
                    self.violations.push(Violation { rule: "a result is collected once", detail });
                }
                if !self.is_collected(session, task) {
                    let detail = format!("{session}: task {task}, which a wait has returned");
                    let rule = "a returned result is stored as collected";
                    self.violations.push(Violation { rule, detail });
                }
            }
        }
    }

    fn is_collected(&self, session: &str, task: TaskNumber) -> bool {
        self.facts_of(session).into_iter().any(|fact| match fact {
            EventFact::Collected { runs } => runs.iter().any(|(collected, _)| *collected == task),
            _ => false,
        })
    }

    /// The attempts of a task are numbered upwards, and an agent's call starts one process.
    fn check_attempts(&mut self) {
        self.in_each_session("attempts are numbered upwards", |session| {
            let mut last: BTreeMap<TaskNumber, u64> = BTreeMap::new();
            let mut found = Vec::new();
            for fact in session.facts() {
                let EventFact::Started { task, attempt } = fact else { continue };
                let before = last.insert(*task, *attempt);
                if before.is_some_and(|before| before >= *attempt) {
                    found.push(format!("task {task}: {attempt} after {before:?}"));
                }
            }
            found
        });
        self.in_each_session("a call of an agent has one effect", |session| {
            let mut children: BTreeMap<TaskNumber, u64> = BTreeMap::new();
            for fact in session.facts() {
                if let EventFact::Spawned { parent: Some(parent), .. } = fact {
                    *children.entry(*parent).or_default() += 1;
                }
            }
            let wrong = children.iter().filter(|(_, count)| **count > 1);
            wrong.map(|(task, count)| format!("agent {task} has {count} processes")).collect()
        });
    }

    /// Each process is executed at most once, on one host, and a successful one from begin to end.
    fn check_executions(&mut self) {
        let mut begins: BTreeMap<(&str, TaskNumber), u64> = BTreeMap::new();
        let mut ends: BTreeMap<(&str, TaskNumber), u64> = BTreeMap::new();
        for effect in &self.evidence.effects {
            let place = (effect.session.as_str(), effect.task);
            match effect.kind {
                EffectKind::Began => *begins.entry(place).or_default() += 1,
                EffectKind::Ended => *ends.entry(place).or_default() += 1,
                EffectKind::Read(_) => {}
            }
        }
        for (lines, what) in [(&begins, "begins"), (&ends, "ends")] {
            for ((session, task), count) in lines.iter().filter(|(_, count)| **count > 1) {
                let detail = format!("{session}: task {task} {what} {count} times");
                let rule = "a process is executed once";
                self.violations.push(Violation { rule, detail });
            }
        }
        self.in_each_session("a process reports its end truthfully", |session| {
            let name = session.session.name.as_str();
            let processes: BTreeSet<TaskNumber> = session
                .facts()
                .filter_map(|fact| match fact {
                    EventFact::Spawned { task, is_process: true, .. } => Some(*task),
                    _ => None,
                })
                .collect();
            let succeeded = session.facts().filter_map(|fact| match fact {
                EventFact::Ended { task, ending: RunEnding::Succeeded, .. } => Some(*task),
                _ => None,
            });
            let succeeded = succeeded.filter(|task| processes.contains(task));
            let wrong = succeeded.filter(|task| {
                !begins.contains_key(&(name, *task)) || !ends.contains_key(&(name, *task))
            });
            wrong.map(|task| format!("task {task} succeeded without its lines")).collect()
        });
    }

    /// Each message reaches its recipient at most once.
    fn check_messages(&mut self) {
        self.in_each_session("a message is delivered once", |session| {
            let mut seen = BTreeSet::new();
            let delivered = session.facts().filter_map(|fact| match fact {
                EventFact::MessageDelivered { message } => Some(*message),
                _ => None,
            });
            let repeated = delivered.filter(|message| !seen.insert(*message));
            repeated.map(|message| format!("message {message}")).collect()
        });
        let mut seen = BTreeSet::new();
        for effect in &self.evidence.effects {
            let EffectKind::Read(text) = &effect.kind else { continue };
            if !seen.insert((effect.session.as_str(), effect.task, text.as_str())) {
                let detail = format!("{}: task {} read {text}", effect.session, effect.task);
                self.violations.push(Violation { rule: "a message is read once", detail });
            }
        }
    }

    /// An acknowledged stop is stored, or its task had ended.
    fn check_stops(&mut self) {
        for operation in &self.evidence.operations {
            let OperationRequest::Stop { task: stopped } = operation.request else { continue };
            if !matches!(operation.result, OperationResult::Ok(_)) {
                continue;
            }
            let mut facts = self.facts_of(&operation.session).into_iter();
            let is_stored = facts.any(|fact| match fact {
                EventFact::StopRequested { task } | EventFact::Ended { task, .. } => {
                    *task == stopped
                }
                _ => false,
            });
            if !is_stored {
                self.report("an acknowledged stop is stored", format!("{operation:?}"));
            }
        }
    }

    /// The sessions of a dead node have another owner within twice the lease.
    fn check_takeovers(&mut self) {
        for takeover in &self.evidence.takeovers {
            let bound = 2 * takeover.lease_ms + takeover.stall_ms;
            if takeover.took_ms.is_none_or(|took| took > bound) {
                let detail = format!("bound {bound} ms: {takeover:?}");
                self.report("a takeover takes at most twice the lease", detail);
            }
        }
    }

    /// Nothing runs or waits at the end, and no node reported a defect.
    fn check_remains(&mut self) {
        let evidence = self.evidence;
        for (rule, found) in [
            ("every task ends", &evidence.alive_tasks),
            ("no process outlives its task", &evidence.stray_processes),
            ("no node reports a defect", &evidence.defects),
        ] {
            for detail in found {
                self.report(rule, detail.clone());
            }
        }
    }
}
