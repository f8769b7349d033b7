//! A naive reference of the model's rules, by full scans over all rows, without an index, a counter
//! or a queue.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use brigade_model::address::{TaskRef, TaskSelector};
use brigade_model::call::{ConditionRequest, WaitMode};
use brigade_model::command::{
    AnswerCommand, AttemptReport, Caller, ClientControl, CollectCommand, Command, GivenAnswer,
    ReportCommand, StopTarget, WorkResult,
};
use brigade_model::ids::{Attempt, MessageNo, Owner, RunNo, TaskNo, Time};
use brigade_model::limits::{DEPTH_MAX, Limits};
use brigade_model::message::Message;
use brigade_model::name::TaskName;
use brigade_model::outcome::Outcome;
use brigade_model::refusal::RefusalKind;
use brigade_model::spawn_rate::SpawnRate;
use brigade_model::spec::TaskSpec;
use brigade_model::task::{TaskRow, TaskState};
use brigade_model::task_tree::{SessionState, TaskTree};
use brigade_model::work::{InboxMode, ParentClosePolicy};

use crate::naive_messages::{NaiveMessageKey, takes_messages};
use crate::rows::*;

/// The predicted effect of a command.
#[derive(Debug, PartialEq)]
pub(crate) enum Expected {
    Refused(RefusalKind),
    Spawned {
        existing: Option<TaskNo>,
        queued: Option<Owner>,
    },
    Stopped {
        reached: BTreeSet<TaskNo>,
        already: bool,
    },
    Results(BTreeSet<(TaskNo, RunNo, bool)>),
    Pending(BTreeSet<TaskNo>),
    /// The number of the message that the key stands for.
    SentBefore(MessageNo),
    Accepted,
}

/// Everything that the rules depend on: all rows that ever existed, and the holders of keys and
/// totals.
#[derive(Clone, Copy)]
pub(crate) struct Naive<'a> {
    pub(crate) all: &'a TaskTree,
    pub(crate) keys: &'a BTreeMap<(Owner, RunNo, String), TaskNo>,
    pub(crate) message_keys: &'a BTreeMap<NaiveMessageKey, Arc<Message>>,
    pub(crate) totals: &'a BTreeMap<TaskNo, u32>,
    /// The times of spawns under a holder while it had a spawn rate.
    pub(crate) spawns: &'a BTreeMap<Owner, Vec<Time>>,
    pub(crate) now: Time,
}

pub(crate) type Prediction<T> = Result<T, RefusalKind>;

impl<'a> Naive<'a> {
    pub(crate) fn predict(self, command: &Command) -> Option<Expected> {
        let verdict = match command {
            Command::Spawn(spawn) => self.spawn(&spawn.caller, &spawn.spec),
            Command::Stop(stop) => self.stop(&stop.caller, &stop.target),
            Command::Collect(collect) => self.collect(collect),
            Command::Send(send) => self.send(send),
            Command::Resume(resume) => self
                .fence(&resume.caller)
                .and_then(|()| self.find_controllable(&resume.caller, &resume.task))
                .and_then(|no| self.check_loosening(&resume.caller, no, resume.limits.as_ref()))
                .and_then(|no| self.reopen(&resume.caller, no)),
            Command::SetLimits(set) => self.fence(&set.caller).and_then(|()| match &set.task {
                _ if is_confined(&set.caller) => Err(RefusalKind::Forbidden),
                None if matches!(set.caller, Caller::Task { .. }) => Err(RefusalKind::Forbidden),
                None => Ok(Expected::Accepted),
                Some(task) => {
                    let no = self.find_controllable(&set.caller, task)?;
                    let alive = self.row(no).is_some_and(is_alive);
                    let mut limited = self.limited(Owner::Task(no));
                    let is_holder = alive || limited.any(|(_, row)| is_alive(row));
                    if is_holder { Ok(Expected::Accepted) } else { Err(RefusalKind::Ended) }
                }
            }),
            Command::Revoke(revoke) => {
                self.fence(&revoke.caller).and_then(|()| self.revoke(revoke))
            }
            Command::Answer(
                given @ AnswerCommand { answer: GivenAnswer::Verdict(verdict), .. },
            ) => self.fence(&given.caller).and_then(|()| self.verdict(given, verdict)),
            Command::Answer(given) => {
                let found = self
                    .fence(&given.caller)
                    .and_then(|()| self.find_controllable(&given.caller, &given.task))
                    .map(|no| self.row(no).is_some_and(is_ending));
                match found {
                    Err(kind) => Err(kind),
                    Ok(true) => Err(RefusalKind::Ended),
                    // The tests that name a question check which one matches.
                    Ok(false) => return None,
                }
            }
            Command::Report(report) => return self.report(report),
            Command::Close(close) if !self.may_close(&close.caller) => Err(RefusalKind::Forbidden),
            Command::ReadInbox(read) if matches!(read.caller, Caller::Task { .. }) => {
                Err(RefusalKind::Forbidden)
            }
            _ => Ok(Expected::Accepted),
        };
        Some(verdict.unwrap_or_else(Expected::Refused))
    }

    pub(crate) fn row(self, no: TaskNo) -> Option<&'a TaskRow> {
        self.all.get(no)
    }

    pub(crate) fn rows(self) -> impl Iterator<Item = (TaskNo, &'a TaskRow)> {
        self.all.rows()
    }

    /// Returns the owners from `owner` up to the session.
    pub(crate) fn chain(self, owner: Owner) -> Vec<Owner> {
        let mut chain = vec![owner];
        while let Some(Owner::Task(no)) = chain.last() {
            chain.push(self.row(*no).map_or(Owner::Session, |row| row.owner));
        }
        chain
    }

    /// Returns the limit holders from `owner` up to the session. A kept task stays under its
    /// spawner.
    pub(crate) fn limit_chain(self, owner: Owner) -> Vec<Owner> {
        let mut chain = vec![owner];
        while let Some(Owner::Task(no)) = chain.last() {
            chain.push(self.row(*no).map_or(Owner::Session, limit_holder));
        }
        chain
    }

    /// Returns the limit holders whose total limits count: ended tasks do not.
    pub(crate) fn total_chain(self, owner: Owner) -> Vec<Owner> {
        let is_alive_no = |no: TaskNo| self.row(no).is_some_and(is_alive);
        let mut chain = self.limit_chain(owner);
        chain.retain(|holder| holder.task().is_none_or(is_alive_no));
        chain
    }

    /// Returns the deadline of agents and jobs under kept processes.
    pub(crate) fn process_deadline(self, owner: Owner) -> Option<Time> {
        let owners = self.chain(owner).into_iter().filter_map(Owner::task);
        let rows =
            owners.filter_map(|no| self.row(no)).take_while(|row| outlives_deadline(&row.spec));
        rows.filter_map(|row| Some(row.descendants_deadline()?.at)).next()
    }

    pub(crate) fn limits(self, holder: Owner) -> Limits {
        match holder {
            Owner::Session => self.all.row().limits,
            Owner::Task(no) => {
                self.row(no).and_then(|row| row.limits.as_deref().copied()).unwrap_or_default()
            }
        }
    }

    pub(crate) fn descendants(self, holder: Owner) -> impl Iterator<Item = (TaskNo, &'a TaskRow)> {
        self.rows().filter(move |(_, row)| self.chain(row.owner).contains(&holder))
    }

    fn limited(self, holder: Owner) -> impl Iterator<Item = (TaskNo, &'a TaskRow)> {
        self.rows().filter(move |(_, row)| self.limit_chain(limit_holder(row)).contains(&holder))
    }

    /// Returns whether no place is free. A task that queues for the runtime has its place.
    pub(crate) fn is_full(self, holder: Owner) -> bool {
        let has_place = |row: &TaskRow| holds_slot(row) || queues_for_runtime(row);
        let places = self.limited(holder).filter(|(_, row)| has_place(row)).count();
        self.limits(holder).running.is_some_and(|max| places >= max as usize)
    }

    /// Returns whether as many tasks run as may.
    pub(crate) fn has_no_slot(self, holder: Owner) -> bool {
        let slots = self.limited(holder).filter(|(_, row)| holds_slot(row)).count();
        self.limits(holder).running.is_some_and(|max| slots >= max as usize)
    }

    fn alive_children(self, owner: Owner) -> usize {
        self.rows().filter(|(_, row)| row.owner == owner && is_alive(row)).count()
    }

    pub(crate) fn fence(self, caller: &Caller) -> Prediction<()> {
        match caller {
            Caller::Operator | Caller::Client(_) => Ok(()),
            Caller::Task { no, attempt } => self.attempt(*no, *attempt),
        }
    }

    fn attempt(self, no: TaskNo, attempt: Attempt) -> Prediction<()> {
        let row = self.row(no).ok_or(RefusalKind::NotFound)?;
        let at_work = matches!(row.state, TaskState::Running | TaskState::Stopping(_));
        if at_work && row.attempt == attempt { Ok(()) } else { Err(RefusalKind::Ended) }
    }

    fn sees(self, caller: &Caller, row: &TaskRow) -> bool {
        match caller {
            Caller::Operator => true,
            Caller::Client(_) => row.owner == Owner::Session,
            Caller::Task { no, .. } => row.owner == Owner::Task(*no),
        }
    }

    pub(crate) fn find(self, caller: &Caller, task: &TaskRef) -> Prediction<TaskNo> {
        let no = match &task.selector {
            TaskSelector::Number(no) => *no,
            TaskSelector::KindAndNumber(kind, no) => {
                let row = self.row(*no).ok_or(RefusalKind::NotFound)?;
                if row.spec.work.kind() != *kind {
                    return Err(RefusalKind::NotFound);
                }
                *no
            }
            TaskSelector::Name(name) => self.named(caller, name)?,
        };
        let row = self.row(no).ok_or(RefusalKind::NotFound)?;
        if !self.sees(caller, row) {
            return Err(RefusalKind::Forbidden);
        }
        match task.run {
            Some(run) if run > row.run => Err(RefusalKind::NotFound),
            _ => Ok(no),
        }
    }

    /// Returns the task, if the caller may control it.
    pub(crate) fn find_controllable(self, caller: &Caller, task: &TaskRef) -> Prediction<TaskNo> {
        let no = self.find(caller, task)?;
        if self.may_control(caller, no) { Ok(no) } else { Err(RefusalKind::Forbidden) }
    }

    /// Returns the task, if no limit of a confined client is higher than one that is there.
    fn check_loosening(
        self,
        caller: &Caller,
        no: TaskNo,
        limits: Option<&Limits>,
    ) -> Prediction<TaskNo> {
        let now = self.row(no).and_then(|row| row.limits.as_deref().copied()).unwrap_or_default();
        let to = limits.copied().unwrap_or_default();
        fn is_looser<T: PartialOrd>(to: Option<T>, now: Option<T>) -> bool {
            to.zip(now).is_some_and(|(to, now)| to > now)
        }
        let looser = is_looser(to.running, now.running)
            || is_looser(to.width, now.width)
            || is_looser(to.depth, now.depth)
            || is_looser(to.total, now.total)
            || is_looser(to.inbox, now.inbox)
            || is_looser(to.tokens, now.tokens)
            || is_looser(to.money, now.money)
            || is_looser(to.time, now.time)
            || to.stall.is_some() && now.stall.is_some() && to.stall != now.stall
            || to.spawn_rate.zip(now.spawn_rate).is_some_and(|(to, now)| to.tighter_of(now) != to);
        if looser && is_confined(caller) { Err(RefusalKind::Forbidden) } else { Ok(no) }
    }

    fn may_control(self, caller: &Caller, no: TaskNo) -> bool {
        match caller {
            Caller::Operator | Caller::Task { .. } => true,
            Caller::Client(client) => {
                client.control == ClientControl::Shared || self.is_of_client(no, client)
            }
        }
    }

    fn may_close(self, caller: &Caller) -> bool {
        let mut top = self.rows().filter(|(_, row)| row.owner == Owner::Session && is_alive(row));
        !matches!(caller, Caller::Task { .. }) && top.all(|(no, _)| self.may_control(caller, no))
    }

    fn named(self, caller: &Caller, name: &TaskName) -> Prediction<TaskNo> {
        let has_name = |row: &TaskRow| row.name.as_ref().is_some_and(|other| same(other, name));
        let mine = match caller {
            Caller::Operator | Caller::Client(_) => Owner::Session,
            Caller::Task { no, .. } => Owner::Task(*no),
        };
        let seen = || self.rows().filter(|(_, row)| self.sees(caller, row) && has_name(row));
        let alive: Vec<TaskNo> =
            seen().filter(|(_, row)| is_alive(row)).map(|(no, _)| no).collect();
        let own = alive.iter().find(|no| self.row(**no).is_some_and(|row| row.owner == mine));
        match (own, alive.as_slice()) {
            (Some(no), _) => Ok(*no),
            (None, [one]) => Ok(*one),
            (None, []) => seen().map(|(no, _)| no).max().ok_or(RefusalKind::NotFound),
            (None, _) => Err(RefusalKind::Conflict),
        }
    }

    fn spawn(self, caller: &Caller, spec: &TaskSpec) -> Prediction<Expected> {
        self.fence(caller)?;
        let (owner, run) = match caller {
            Caller::Task { no, .. } => (Owner::Task(*no), self.row(*no).map(|row| row.run)),
            Caller::Operator | Caller::Client(_) => (Owner::Session, None),
        };
        if let Some(key) = &spec.key {
            let scope = (owner, run.unwrap_or(RunNo::FIRST), key.as_str().to_owned());
            if let Some(no) = self.keys.get(&scope) {
                let same = self.row(*no).is_some_and(|row| *row.spec == *spec);
                let found = Expected::Spawned { existing: Some(*no), queued: None };
                return if same { Ok(found) } else { Err(RefusalKind::Conflict) };
            }
        }
        self.check_open(owner)?;
        let taken = |row: &TaskRow| match (&row.name, &spec.name) {
            (Some(one), Some(other)) => is_alive(row) && row.owner == owner && same(one, other),
            _ => false,
        };
        if self.rows().any(|(_, row)| taken(row)) {
            return Err(RefusalKind::Conflict);
        }
        let is_late = self.process_deadline(owner).is_some_and(|at| at <= self.now);
        if self.beyond_a_limit(owner) || is_late && ends_by_deadline(spec) {
            return Err(RefusalKind::Limit);
        }
        let queued = self.limit_chain(owner).into_iter().find(|holder| self.is_full(*holder));
        Ok(Expected::Spawned { existing: None, queued })
    }

    /// Checks that a task may start under this owner.
    fn check_open(self, owner: Owner) -> Prediction<()> {
        if self.all.row().state != SessionState::Open {
            return Err(RefusalKind::Ended);
        }
        let closed = |holder: &Owner| {
            holder
                .task()
                .and_then(|no| self.row(no))
                .is_some_and(|row| being_stopped(row) || (*holder == owner && is_ending(row)))
        };
        if self.chain(owner).iter().any(closed) { Err(RefusalKind::Ended) } else { Ok(()) }
    }

    fn too_wide(self, owner: Owner) -> bool {
        let children = self.alive_children(owner);
        self.chain(owner)
            .into_iter()
            .any(|holder| self.limits(holder).width.is_some_and(|max| children >= max as usize))
    }

    fn beyond_a_limit(self, owner: Owner) -> bool {
        let counting = self.total_chain(owner);
        let top = counting.iter().rev().find_map(|holder| holder.task());
        let too_many = |holder: &Owner| {
            let total = holder.task().or(top).map(|no| self.totals.get(&no).copied().unwrap_or(0));
            self.limits(*holder).total.zip(total).is_some_and(|(max, total)| total >= max)
        };
        let holders = self.limit_chain(owner);
        let beyond = |(level, holder): (usize, &Owner)| {
            let limits = self.limits(*holder);
            limits.depth.is_some_and(|max| level + 1 > usize::from(max))
                || limits.spawn_rate.is_some_and(|rate| self.too_fast(*holder, rate))
        };
        self.too_wide(owner)
            || counting.iter().any(too_many)
            || self.is_spent(owner)
            || holders.len() > usize::from(DEPTH_MAX)
            || holders.iter().enumerate().any(beyond)
    }

    /// Returns whether a budget that applies here is exhausted.
    fn is_spent(self, holder: Owner) -> bool {
        self.limit_chain(holder).into_iter().any(|holder| {
            let limits = self.limits(holder);
            let (tokens, money) = self.committed(holder);
            limits.tokens.is_some_and(|max| tokens >= max)
                || limits.money.is_some_and(|max| money >= max.0)
        })
    }

    /// Returns whether a spawn exceeds a rate. Counted from any earlier spawn, a burst is allowed,
    /// and one more spawn for each whole share of the span that has passed.
    fn too_fast(self, holder: Owner, rate: SpawnRate) -> bool {
        let times = self.spawns.get(&holder).map_or(&[][..], Vec::as_slice);
        let share = rate.per.0 * 1_000 / u64::from(rate.count);
        (0..times.len()).any(|first| {
            let passed = (self.now.0 - times[first].0) * 1_000;
            let count = (times.len() - first) as u64;
            count >= u64::from(rate.count) + passed / share
        })
    }

    /// Returns the tokens and money that a holder and all tasks under its limits have used and
    /// reserved.
    fn committed(self, holder: Owner) -> (u64, u64) {
        let used = match holder {
            Owner::Session => self.all.row().usage,
            Owner::Task(no) => self.row(no).map(TaskRow::usage).unwrap_or_default(),
        };
        let own = holder.task().and_then(|no| self.row(no)).map(TaskRow::reserved);
        let others = self.limited(holder).map(|(_, row)| row.reserved());
        let all = others.chain(own).fold(used, brigade_model::limits::Usage::plus);
        (all.tokens, all.money.0)
    }

    fn stop(self, caller: &Caller, target: &StopTarget) -> Prediction<Expected> {
        self.fence(caller)?;
        let targets: Vec<TaskNo> = match (target, caller) {
            (StopTarget::Task(task), _) => vec![self.find_controllable(caller, task)?],
            (StopTarget::Itself, Caller::Task { no, .. }) => vec![*no],
            (StopTarget::Itself, _) => return Err(RefusalKind::Invalid),
            (StopTarget::Children, _) => {
                let mine = self.rows().filter(|(_, row)| row.owner == caller.owner());
                mine.map(|(no, _)| no).filter(|no| self.may_control(caller, *no)).collect()
            }
        };
        let mut reached = BTreeSet::new();
        let mut already = true;
        for no in targets {
            let Some(row) = self.row(no).filter(|row| is_alive(row)) else { continue };
            already &= being_stopped(row);
            reached.insert(no);
            let descendants = self.descendants(Owner::Task(no)).filter(|(_, row)| is_alive(row));
            reached.extend(descendants.map(|(no, _)| no));
        }
        Ok(Expected::Stopped { reached, already })
    }

    fn collect(self, collect: &CollectCommand) -> Prediction<Expected> {
        let mut requested = Vec::new();
        for task in &collect.tasks {
            requested.push((self.find(&collect.caller, task)?, task.run));
        }
        match &collect.caller {
            Caller::Task { .. } => return Err(RefusalKind::Invalid),
            Caller::Client(client) if requested.is_empty() => {
                let open = |row: &TaskRow| is_alive(row) || !is_collected(row);
                let mine = self.rows().filter(|(_, row)| {
                    row.owner == Owner::Session
                        && row.client.as_ref().is_some_and(|starter| receives_from(client, starter))
                        && open(row)
                });
                requested.extend(mine.map(|(no, _)| (no, None)));
            }
            _ => {}
        }
        let mut results = BTreeSet::new();
        let mut pending = BTreeSet::new();
        for (no, run) in requested {
            let Some(row) = self.row(no) else { continue };
            let all = self.results(no);
            match run.filter(|run| *run != row.run) {
                Some(run) => {
                    let one = all.into_iter().find(|result| result.1 == run);
                    results.insert(one.ok_or(RefusalKind::NotFound)?);
                }
                None => {
                    results.extend(all);
                    if is_alive(row) {
                        pending.insert(no);
                    }
                }
            }
        }
        let ready = match collect.mode {
            WaitMode::Any => !results.is_empty() || pending.is_empty(),
            WaitMode::All => pending.is_empty(),
        };
        Ok(if ready { Expected::Results(results) } else { Expected::Pending(pending) })
    }

    /// Returns the results of a task: each run, and whether it was collected.
    pub(crate) fn results(self, no: TaskNo) -> Vec<(TaskNo, RunNo, bool)> {
        let Some(row) = self.row(no) else { return Vec::new() };
        let earlier = row.extras.iter().flat_map(|extra| &extra.earlier_runs);
        let mut all: Vec<_> = earlier.map(|earlier| (no, earlier.run, false)).collect();
        if !is_alive(row) {
            all.push((no, row.run, is_collected(row)));
        }
        all
    }

    pub(crate) fn reopen(self, caller: &Caller, no: TaskNo) -> Prediction<Expected> {
        let row = self.row(no).ok_or(RefusalKind::NotFound)?;
        let TaskState::Ended(ended) = &row.state else { return Err(RefusalKind::Conflict) };
        if ended.lingering {
            return Err(RefusalKind::Unavailable);
        }
        if matches!(*ended.outcome, Outcome::Cancelled(_)) && *caller != Caller::Operator {
            return Err(RefusalKind::Forbidden);
        }
        let owner = match row.owner {
            Owner::Task(parent) if self.row(parent).is_some_and(is_alive) => row.owner,
            _ => Owner::Session,
        };
        self.check_open(owner)?;
        let limited = self.too_wide(owner) || self.is_spent(limit_holder(row));
        if limited { Err(RefusalKind::Limit) } else { Ok(Expected::Accepted) }
    }

    fn report(self, report: &ReportCommand) -> Option<Expected> {
        let no = report.no;
        let attempt = report.attempt;
        let returns = matches!(report.report, AttemptReport::Ended(_));
        let lingers = self.row(no).is_some_and(|row| {
            row.attempt == attempt && row.ended().is_some_and(|ended| ended.lingering)
        });
        if lingers && returns {
            return Some(Expected::Accepted);
        }
        if let Err(kind) = self.attempt(no, attempt) {
            return Some(Expected::Refused(kind));
        }
        let row = self.row(no)?;
        if let AttemptReport::Ended(end) = &report.report {
            let uncollected =
                matches!(end.result, WorkResult::Returned(_)) && self.must_collect(no, row);
            return uncollected.then_some(Expected::Refused(RefusalKind::Conflict));
        }
        if matches!(report.report, AttemptReport::Ready) {
            let has_check = row.spec.work.readiness_check().is_some();
            let refused = Expected::Refused(RefusalKind::Invalid);
            return Some(if has_check { Expected::Accepted } else { refused });
        }
        let AttemptReport::Park { calls, .. } = &report.report else { return None };
        if matches!(row.state, TaskState::Stopping(_)) {
            return Some(Expected::Refused(RefusalKind::Ended));
        }
        for (_, request) in calls {
            let pushed = row.spec.work.policy().inbox_mode == InboxMode::Push;
            if pushed && takes_messages(request) {
                return Some(Expected::Refused(RefusalKind::Invalid));
            }
            let (tasks, until_ready) = match request {
                ConditionRequest::Tasks { tasks, .. } => (tasks, false),
                ConditionRequest::Ready { tasks, .. } => (tasks, true),
                _ => continue,
            };
            if until_ready && tasks.is_empty() {
                return Some(Expected::Refused(RefusalKind::Invalid));
            }
            for task in tasks {
                if let Err(kind) = self.may_wait(no, *task) {
                    return Some(Expected::Refused(kind));
                }
                let row = self.row(*task).filter(|row| row.spec.work.readiness_check().is_none());
                if until_ready && row.is_some() {
                    return Some(Expected::Refused(RefusalKind::Invalid));
                }
            }
        }
        Some(Expected::Accepted)
    }

    /// Returns whether work that collects its children has to continue for that.
    fn must_collect(self, no: TaskNo, row: &TaskRow) -> bool {
        let policy = row.spec.work.policy();
        let collects = policy.parent_close == ParentClosePolicy::CollectChildren
            && policy.inbox_mode == InboxMode::Pull
            && matches!(row.state, TaskState::Running);
        let mut children = self.all.rows().filter(|(_, row)| row.owner == Owner::Task(no));
        let has_children = children.any(|(_, child)| is_alive(child) && !child.spec.keep);
        collects && (has_children || self.has_inbox_items(no))
    }

    /// Returns whether the task has an unread message or an uncollected result.
    pub(crate) fn has_inbox_items(self, no: TaskNo) -> bool {
        let run = self.row(no).map(|row| row.run);
        let mut children = self.all.rows().filter(|(_, row)| row.owner == Owner::Task(no));
        let is_uncollected = |row: &TaskRow| {
            let earlier = row.extras.as_ref().is_some_and(|extra| !extra.earlier_runs.is_empty());
            Some(row.opened_by_run()) == run && (earlier || !is_alive(row) && !is_collected(row))
        };
        self.all.inbox(Owner::Task(no)).next().is_some()
            || children.any(|(_, row)| is_uncollected(row))
    }

    fn may_wait(self, no: TaskNo, task: TaskNo) -> Prediction<()> {
        let target = self.row(task).ok_or(RefusalKind::NotFound)?;
        if target.owner == Owner::Task(no) {
            Ok(())
        } else if self.chain(Owner::Task(no)).contains(&Owner::Task(task)) {
            Err(RefusalKind::Invalid)
        } else {
            Err(RefusalKind::Forbidden)
        }
    }
}

fn is_confined(caller: &Caller) -> bool {
    matches!(caller, Caller::Client(client) if client.control == ClientControl::Confined)
}
