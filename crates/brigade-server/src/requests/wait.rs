//! Waits for tasks.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use brigade_model::address::{TaskRef, Who};
use brigade_model::call::{Condition, Ending, WaitMode};
use brigade_model::event::Event;
use brigade_model::ids::{RunNo, TaskNo};
use brigade_model::refusal::Refusal;
use brigade_model::task::TaskRow;
use brigade_runtime::{FeedMessage, Session, WaitResult};
use serde::{Deserialize, Serialize};

use super::PendingInfo;
use crate::ask::{Ask, Items, Never};
use crate::desk::{Desk, Located, Target};
use crate::info::TaskInfo;

/// The operator's wait consumes nothing, nor does that of a process below a command, which reads
/// results and has no inbox that they could come to. A client's takes the results.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Wait {
    /// Where addresses without a session are looked for.
    pub session: String,
    /// When there are none, what comes to the client unasked: its runs of this conversation, and of
    /// those that have lapsed.
    #[serde(default)]
    pub tasks: Vec<String>,
    pub mode: WaitMode,
    #[serde(default)]
    pub timeout_ms: Option<u64>,
}

/// What a wait is over with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    Ended,
    EndedOrAsked,
}

/// Why a wait is over before it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitEnd {
    Asked,
    TimedOut,
    /// There may be more to wait for by now.
    Lapsed,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Waited {
    /// In the order in which they were named.
    pub ended: Vec<TaskInfo>,
    /// Those that still go on. Not empty with an any-wait, when the time was up, or when one asks.
    pub going_on: Vec<TaskInfo>,
    pub timed_out: bool,
    /// The calls of these tasks and of all below them that wait for the user, where they end a wait.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<PendingInfo>,
}

impl Ask for Wait {
    type Done = Waited;
    type Item = Never;

    async fn answer(self, desk: &Desk, _: &Items<Never>) -> Result<Waited, Refusal> {
        self.carry_out(desk, Until::Ended).await
    }
}

impl Wait {
    pub(super) async fn carry_out(self, desk: &Desk, until: Until) -> Result<Waited, Refusal> {
        let (session, mut sought) = self.sought(desk).await?;
        let (endings, timed_out) = match desk.consumes() && sought.is_empty() {
            true => self.wait_unnamed(desk, &session, until).await?,
            false => self.wait((desk, &session), &sought, until).await?,
        };
        if sought.is_empty() {
            let mut told: Vec<TaskNo> = endings.iter().map(|ending| ending.no).collect();
            told.dedup();
            sought = told.into_iter().map(|no| Sought { no, run: None, told: None }).collect();
        }
        let mut waited = Waited { timed_out, ..Waited::default() };
        if until == Until::EndedOrAsked {
            let named: Vec<TaskNo> = match self.tasks.is_empty() {
                true => Vec::new(),
                false => sought.iter().map(|one| one.no).collect(),
            };
            waited.pending = Attention::new(desk, &session, named).await?.pending();
        }
        for one in sought {
            let (no, row) = session.get(one.no).await?;
            let mut info = TaskInfo::of(&session.row().name, no, &row);
            info.conversation = desk.conversation_of(&row);
            let heard = one.heard(&endings, (row.run, desk.consumes()));
            if heard.is_empty() && row.is_living() {
                waited.going_on.push(info);
            } else if heard.is_empty() {
                waited.ended.push(info);
            } else {
                waited.ended.extend(heard.into_iter().map(|ending| info.clone().of_run(ending)));
            }
        }
        Ok(waited)
    }
}

/// A task that is waited for.
#[derive(Debug)]
struct Sought {
    no: TaskNo,
    /// The latest, when nobody says.
    run: Option<RunNo>,
    /// How that run ended, where it was told long ago and another began since.
    told: Option<Ending>,
}

impl Sought {
    async fn of(found: &Located) -> Result<Self, Refusal> {
        let (no, run, row) = (found.no, found.run, &found.row);
        let Some(earlier) = run.filter(|run| *run < row.run) else {
            return Ok(Self { no, run, told: None });
        };
        let untold = row.extra.iter().flat_map(|extra| &extra.earlier);
        if untold.into_iter().any(|ended| ended.run == earlier) {
            return Ok(Self { no, run, told: None });
        }
        let told = Some(earlier_ending(found, earlier).await?);
        Ok(Self { no, run, told })
    }

    /// What is to be told of it. Who takes results is told of every run whose result he took, and
    /// everybody else of the latest, if that is over.
    fn heard<'a>(&'a self, all: &'a [Ending], (latest, takes): (RunNo, bool)) -> Vec<&'a Ending> {
        let of_it = all.iter().chain(&self.told).filter(|ending| ending.no == self.no);
        let of_it = of_it.filter(|ending| self.run.is_none_or(|run| run == ending.run));
        let of_it: Vec<&Ending> = of_it.collect();
        let last = of_it.iter().copied().find(|ending| ending.run == latest);
        match last {
            Some(last) if !takes => vec![last],
            _ => of_it,
        }
    }
}

/// How a run ended that another followed.
pub(super) async fn earlier_ending(found: &Located, run: RunNo) -> Result<Ending, Refusal> {
    let (no, row) = (found.no, &found.row);
    let untold = row.extra.iter().flat_map(|extra| &extra.earlier);
    let untold = untold.into_iter().find(|ended| ended.run == run);
    let collected_before = untold.is_none();
    let (outcome, at) = match untold {
        Some(ended) => (ended.outcome.clone(), ended.at),
        None => match found.session.earlier_run(no, run).await? {
            Some(kept) => (kept.outcome, kept.at),
            None => {
                let address = row.address(no);
                return Err(Refusal::not_found(format!("run {run} of {address} is not kept")));
            }
        },
    };
    let (kind, name) = (row.spec.work.kind(), row.name.clone());
    Ok(Ending { no, run, kind, name, outcome, at, collected_before })
}

impl Wait {
    async fn wait(
        &self,
        (desk, session): (&Desk, &Session),
        sought: &[Sought],
        until: Until,
    ) -> Result<(Vec<Ending>, bool), Refusal> {
        let untold = sought.iter().filter(|one| one.told.is_none());
        let untold = untold.map(|one| TaskRef { who: Who::No(one.no), run: one.run });
        let untold: Vec<TaskRef> = untold.collect();
        let is_told = untold.len() < sought.len();
        let patience = match self.timeout_ms.map(Duration::from_millis) {
            _ if is_told && untold.is_empty() => return Ok((Vec::new(), false)),
            // It is answered already, with whatever else has ended by now.
            _ if is_told && self.mode == WaitMode::Any => Some(Duration::ZERO),
            patience => patience,
        };
        if until == Until::EndedOrAsked {
            let (endings, is_up) = self.wait_or_hear(desk, session, (untold, patience)).await?;
            return Ok((endings, is_up && (!is_told || self.mode == WaitMode::All)));
        }
        Ok(match patience {
            None if self.mode == WaitMode::Any => (session.wait_any(untold).await?, false),
            None => (session.wait_all(untold).await?, false),
            Some(patience) => match session.wait_within(untold, self.mode, patience).await? {
                WaitResult::Ended(endings) => (endings, false),
                WaitResult::TimedOut(_) => (Vec::new(), !is_told || self.mode == WaitMode::All),
            },
        })
    }

    /// Waits for what comes to this client unasked, which grows when a conversation lapses.
    async fn wait_unnamed(
        &self,
        desk: &Desk,
        session: &Session,
        until: Until,
    ) -> Result<(Vec<Ending>, bool), Refusal> {
        if !desk.has_conversation() {
            return Err(Refusal::invalid(
                "name the tasks to wait for: a client without a conversation has none of its own",
            ));
        }
        let time_is_up = async {
            match self.timeout_ms.map(Duration::from_millis) {
                Some(patience) => tokio::time::sleep(patience).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(time_is_up);
        loop {
            let takeover = desk.takeover(session);
            let session = session.clone().taking_over(takeover.lapsed);
            let mut end = WaitEnd::TimedOut;
            let ends = async {
                end = tokio::select! {
                    biased;
                    () = asked(desk, &session, Vec::new()), if until == Until::EndedOrAsked => WaitEnd::Asked,
                    () = &mut time_is_up => WaitEnd::TimedOut,
                    () = desk.sleep_until(takeover.next) => WaitEnd::Lapsed,
                };
            };
            let endings = session.wait_until(Vec::new(), self.mode, ends).await?;
            match (endings, end) {
                (Some(endings), _) => return Ok((endings, false)),
                (None, WaitEnd::Lapsed) => {}
                (None, end) => return Ok((Vec::new(), end == WaitEnd::TimedOut)),
            }
        }
    }

    /// Whichever is first: the endings, a question, or the end of patience.
    async fn wait_or_hear(
        &self,
        desk: &Desk,
        session: &Session,
        (untold, patience): (Vec<TaskRef>, Option<Duration>),
    ) -> Result<(Vec<Ending>, bool), Refusal> {
        let mut timed_out = false;
        let end = async {
            let asked = asked(desk, session, numbers(&untold));
            match patience {
                Some(patience) => timed_out = tokio::time::timeout(patience, asked).await.is_err(),
                None => asked.await,
            }
        };
        let endings = session.wait_until(untold.clone(), self.mode, end).await?;
        Ok(endings.map_or((Vec::new(), timed_out), |endings| (endings, false)))
    }

    /// All in one session: a wait is one question to one tree.
    async fn sought(&self, desk: &Desk) -> Result<(Session, Vec<Sought>), Refusal> {
        let mut sought = Vec::new();
        let mut session: Option<Session> = None;
        for task in &self.tasks {
            let target = Target { session: self.session.clone(), task: task.clone() };
            let found = desk.find(&target).await?;
            if session.as_ref().is_some_and(|other| other.id() != found.session.id()) {
                return Err(Refusal::invalid("one wait is for tasks of one session; ask twice"));
            }
            sought.push(Sought::of(&found).await?);
            session = Some(found.session);
        }
        match session {
            Some(session) => Ok((desk.waiting_in(session).await?, sought)),
            None => Ok((desk.open(&self.session).await?, sought)),
        }
    }
}

fn numbers(tasks: &[TaskRef]) -> Vec<TaskNo> {
    let numbers = tasks.iter().filter_map(|task| match task.who {
        Who::No(no) => Some(no),
        Who::Kinded(..) | Who::Named(_) => None,
    });
    numbers.collect()
}

/// Until one of these tasks asks something, or one of them or of those below waits for an approval; any
/// whose results come to this client, when none are named.
async fn asked(desk: &Desk, session: &Session, tasks: Vec<TaskNo>) {
    let Ok(attention) = Attention::new(desk, session, tasks).await else {
        // The wait itself says what is wrong.
        return std::future::pending().await;
    };
    let mut feed = attention.all.subscribe(desk.runtime().position());
    loop {
        if attention.is_needed() {
            return;
        }
        loop {
            match feed.next().await {
                Ok(FeedMessage::Event(item))
                    if !matches!(item.record.event, Event::Parked { .. }) => {}
                Ok(_) => break,
                // The runtime is ending, and says so to the wait itself.
                Err(_) => std::future::pending().await,
            }
        }
    }
}

/// Looks for what ends a wait before its tasks end.
struct Attention<'a> {
    desk: &'a Desk,
    session: &'a Session,
    /// The same session with all that is below the tasks of this client.
    all: Session,
    /// Whatever comes to this client unasked, when there are none.
    tasks: Vec<TaskNo>,
}

impl<'a> Attention<'a> {
    async fn new(
        desk: &'a Desk,
        session: &'a Session,
        tasks: Vec<TaskNo>,
    ) -> Result<Self, Refusal> {
        let all = desk.runtime().operate(session.id()).await?;
        Ok(Self { desk, session, all, tasks })
    }

    fn is_needed(&self) -> bool {
        let rows = self.session.list();
        let asks = |row: &TaskRow| row.is_living() && asks(row);
        rows.iter().any(|(no, row)| asks(row) && self.is_meant(*no, row))
            || !self.pending().is_empty()
    }

    fn is_meant(&self, no: TaskNo, row: &TaskRow) -> bool {
        match self.tasks.as_slice() {
            [] => self.desk.takes_from(row),
            named => named.contains(&no),
        }
    }

    /// The calls that wait for an approval, in these tasks and below.
    fn pending(&self) -> Vec<PendingInfo> {
        let pending = self.session.approvals();
        if pending.is_empty() {
            return Vec::new();
        }
        let rows: HashMap<TaskNo, Arc<TaskRow>> = self.all.list().into_iter().collect();
        let is_meant = |no: TaskNo| {
            let owner = |no: &TaskNo| rows.get(no).and_then(|row| row.owner.task());
            let mut line = std::iter::successors(Some(no), owner);
            line.any(|no| rows.get(&no).is_some_and(|row| self.is_meant(no, row)))
        };
        let session = self.session.row().name.to_string();
        let meant = pending.into_iter().filter(|one| is_meant(one.task));
        meant.map(|one| PendingInfo::of(&session, one)).collect()
    }
}

fn asks(row: &TaskRow) -> bool {
    row.calls
        .iter()
        .any(|call| matches!(call.on, Condition::Answer { .. } | Condition::ClientTool { .. }))
}
