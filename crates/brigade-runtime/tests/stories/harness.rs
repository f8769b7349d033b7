//! Tells a story, cuts it at every commit, and compares how it ends.
//!
//! Each cut is a process that dies: its tokio runtime is dropped with everything in it, and another
//! opens the same SQLite file and tells the story again. The client's part of a story can be told
//! again because it spawns with a key.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use brigade_model::call::CallCompletion;
use brigade_model::event::{Event, EventRecord};
use brigade_model::ids::{Epoch, MessageNo, Owner, Position, TaskNo, Time};
use brigade_model::outcome::Outcome;
use brigade_model::task::TaskRow;
use brigade_model::task_tree::TaskTree;
use brigade_runtime::{Clock, ProcessOptions, Runtime, RuntimeBuilder, Session};
use brigade_sqlite::SqliteStore;
use brigade_store::{EventQuery, Store, TaskQuery};
use brigade_testkit::{CrashStore, CutMode, CutPoint, PausedClock, TestRuntime};

/// What the work did to the world: each step notes itself here.
pub(crate) type Log = Arc<Mutex<Vec<String>>>;
/// How steps begin that must not be repeated.
pub(crate) const ONCE: &str = "once: ";
pub(crate) type Act = fn(Session) -> Pin<Box<dyn Future<Output = ()>>>;

pub(crate) struct Story {
    pub(crate) build: fn(RuntimeBuilder, Log) -> RuntimeBuilder,
    /// The client's part, told again after each crash.
    pub(crate) act: Act,
    /// Whether what each task was told on its way is the same too. Not where a crash costs money
    /// (what was set aside when the process died counts as spent, so a budget may end sooner), nor
    /// where a stop may come before or after a child has parked.
    pub(crate) same_way: bool,
    pub(crate) pace: Pace,
}

/// How time passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// As soon as nobody has anything to do.
    Paused,
    /// As it does: for stories with real commands in them.
    Real,
}

/// What there is to compare in the end: without times, numbers and attempts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TheEnd {
    tasks: BTreeMap<String, String>,
    messages: BTreeMap<String, Vec<String>>,
    journal: BTreeMap<String, Vec<String>>,
    shared: BTreeMap<String, String>,
}

enum Told {
    ToTheEnd { commits: u64 },
    Cut { at: Time },
}

impl Story {
    /// Cuts at every commit, before and after it is durable.
    pub(crate) fn cut_everywhere(&self) {
        let log = Log::default();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("uncut.db");
        let Told::ToTheEnd { commits } = self.tell(&path, &log, TestRuntime::START, None) else {
            panic!("without a cut the story comes to its end")
        };
        let expect = self.the_end(&path);
        let steps = sorted(&log);
        assert!(commits >= 8, "a story of {commits} commits has not much to cut");
        for commit in 0..commits {
            for durable in [false, true] {
                let cut = CutPoint { commit, durable, mode: CutMode::Crash };
                let path = folder.path().join(format!("cut-{commit}-{durable}.db"));
                let log = Log::default();
                let at = match self.tell(&path, &log, TestRuntime::START, Some(cut)) {
                    Told::Cut { at } => at,
                    Told::ToTheEnd { .. } => panic!("{cut:?} was not reached"),
                };
                self.tell(&path, &log, at, None);
                assert_eq!(self.the_end(&path), expect, "after {cut:?}");
                check_steps(&steps, &sorted(&log), &cut);
            }
        }
    }

    /// Cuts at so many commits, spread over the story. On real time the number of commits differs a
    /// little each time, so a cut near the end may not be reached.
    pub(crate) fn cut_here_and_there(&self, cuts: u64) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("uncut.db");
        let log = Log::default();
        let Told::ToTheEnd { commits } = self.tell(&path, &log, TestRuntime::START, None) else {
            panic!("without a cut the story comes to its end")
        };
        let (expect, steps) = (self.the_end(&path), sorted(&log));
        for nth in 0..cuts {
            let commit = 2 + nth * (commits - 4) / cuts;
            let cut = CutPoint { commit, durable: nth % 2 == 0, mode: CutMode::Crash };
            let path = folder.path().join(format!("cut-{commit}.db"));
            let log = Log::default();
            if let Told::Cut { at } = self.tell(&path, &log, TestRuntime::START, Some(cut)) {
                self.tell(&path, &log, at, None);
            }
            assert_eq!(self.the_end(&path), expect, "after {cut:?}");
            check_steps(&steps, &sorted(&log), &cut);
        }
    }

    fn the_end(&self, path: &Path) -> TheEnd {
        let mut end = the_end(path);
        if !self.same_way {
            end.journal.clear();
        }
        end
    }

    /// One process's life.
    fn tell(&self, path: &Path, log: &Log, start: Time, cut: Option<CutPoint>) -> Told {
        let tokio = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(self.pace == Pace::Paused)
            .build()
            .unwrap();
        tokio.block_on(async {
            let sqlite = SqliteStore::open(path, Default::default()).unwrap();
            let store = CrashStore::new(Arc::new(sqlite), cut);
            let clock = PausedClock::starting_at(start);
            let builder = Runtime::builder().shared_store(store.clone()).max_batch(1);
            let builder = match self.pace {
                Pace::Paused => builder.clock(Arc::new(clock)),
                Pace::Real => {
                    builder.processes(ProcessOptions::new(path.with_extension("commands")))
                }
            };
            let told = async {
                let runtime = (self.build)(builder, log.clone()).start().await.unwrap();
                let session = runtime.session("story").await.unwrap();
                (self.act)(session).await;
                runtime.shutdown().await.unwrap();
            };
            tokio::select! {
                () = told => Told::ToTheEnd { commits: store.commits() },
                () = store.wait_crashed() => Told::Cut { at: clock.now() },
            }
        })
    }
}

/// A step runs once; the one whose record was cut may run once more.
fn check_steps(expect: &[String], got: &[String], cut: &CutPoint) {
    let mut left = got.to_vec();
    // What must not happen twice may not happen at all.
    left.retain(|step| !step.starts_with(ONCE));
    let once = got.len() - left.len();
    assert!(once <= expect.iter().filter(|step| step.starts_with(ONCE)).count(), "twice: {got:?}");
    for step in expect.iter().filter(|step| !step.starts_with(ONCE)) {
        let at = left.iter().position(|other| other == step);
        let at = at.unwrap_or_else(|| panic!("after {cut:?} the step {step:?} did not run"));
        left.remove(at);
    }
    // Steps under way at once share the cut.
    for step in &left {
        let twice = left.iter().filter(|other| *other == step).count();
        assert_eq!(twice, 1, "after {cut:?} the step {step:?} ran more than once again");
    }
}

fn sorted(log: &Log) -> Vec<String> {
    let mut all = log.lock().unwrap().clone();
    all.sort();
    all
}

/// Reads the file as a stranger would, checks what must hold, and takes what is compared.
fn the_end(path: &Path) -> TheEnd {
    let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
    tokio.block_on(async {
        let store = SqliteStore::open_read_only(path).unwrap();
        let tree = store.sessions().await.unwrap().pop().unwrap();
        let rows = store.tasks(tree.id, &TaskQuery::default()).await.unwrap();
        let rows: BTreeMap<TaskNo, TaskRow> = rows.into_iter().collect();
        let query = EventQuery { session: None, after: Position(0), limit: usize::MAX };
        let events = store.events(&query).await.unwrap().items;
        let events: Vec<Arc<EventRecord>> = events.into_iter().map(|item| item.record).collect();
        check_fold(&events, &rows);
        check_once(&events);
        // Order is promised for each sender and recipient.
        let mut messages: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for no in 1..=tree.last_message.0 {
            let row = store.message(tree.id, MessageNo(no)).await.unwrap().unwrap();
            let to = row.message.to.task().map_or("session".into(), |to| path_of(&rows, to));
            let told = format!("{} {:?}", row.message.body, row.receipt);
            messages.entry(to).or_default().push(told);
        }
        let mut journal = BTreeMap::new();
        for no in rows.keys() {
            let mut entries = store.journal(tree.id, *no).await.unwrap();
            entries.sort_by_key(|entry| entry.index);
            let told =
                entries.iter().map(|entry| format!("{}: {}", entry.label, word(&entry.completion)));
            journal.insert(path_of(&rows, *no), told.collect());
        }
        // Within a budget a call that was cut off counts as what it may have cost at the most.
        let mut limits = rows.values().filter_map(|row| row.limits.as_ref());
        let is_metered = limits.any(|limits| limits.tokens.is_some());
        let told = |(no, row): (&TaskNo, _)| (path_of(&rows, *no), told(row, is_metered));
        let tasks = rows.iter().map(told).collect();
        let shared = tree.shared_values.iter();
        let shared = shared.map(|(name, kept)| (name.to_owned(), kept.value.to_string())).collect();
        TheEnd { tasks, messages, journal, shared }
    })
}

fn told(row: &TaskRow, is_metered: bool) -> String {
    let ended = row.ended().expect("nothing goes on after the end");
    let result = match &*ended.outcome {
        Outcome::Succeeded { result } => result.to_string(),
        _ => String::new(),
    };
    let used = if is_metered { String::new() } else { row.usage().tokens.to_string() };
    format!("{} {result} {:?} {used}", ended.outcome, ended.delivery)
}

fn word(answer: &CallCompletion) -> String {
    match answer {
        CallCompletion::Value(value) => format!("{value}"),
        CallCompletion::Message(message) => format!("message {}", message.body),
        CallCompletion::Results(endings) => {
            let all: Vec<String> = endings.iter().map(|e| e.outcome.to_string()).collect();
            format!("{all:?}")
        }
        CallCompletion::Spawned(_) => "spawned".into(),
        CallCompletion::Sent(numbers) => format!("sent {}", numbers.len()),
        other => format!("{other:?}"),
    }
}

/// The names from the top down: numbers may differ after a crash, names do not.
fn path_of(rows: &BTreeMap<TaskNo, TaskRow>, no: TaskNo) -> String {
    let row = &rows[&no];
    let name = row.name.as_ref().map_or_else(|| format!("#{no}"), ToString::to_string);
    match row.owner {
        Owner::Session => name,
        Owner::Task(owner) => format!("{} > {name}", path_of(rows, owner)),
    }
}

fn check_fold(events: &[Arc<EventRecord>], rows: &BTreeMap<TaskNo, TaskRow>) {
    let mut folded = TaskTree::open(&events[0], Epoch(1)).unwrap();
    for event in &events[1..] {
        brigade_model::apply::apply(&mut folded, event);
    }
    for (no, row) in rows {
        assert_eq!(folded.get(*no), Some(row), "task {no} from its events");
    }
}

fn check_once(events: &[Arc<EventRecord>]) {
    let mut seen = BTreeMap::new();
    for record in events {
        let once: Vec<String> = match &record.event {
            Event::Ended { no, run, .. } => vec![format!("ending of {no}#{run}")],
            Event::Collected { runs } => {
                runs.iter().map(|(no, run)| format!("result of {no}#{run}")).collect()
            }
            Event::MessageRead { message, .. } => vec![format!("reading of message {message}")],
            Event::Recorded { no, index, .. } | Event::CallCompleted { no, index, .. } => {
                vec![format!("answer {index} of {no}")]
            }
            _ => Vec::new(),
        };
        for what in once {
            *seen.entry(what).or_insert(0) += 1;
        }
    }
    for (what, times) in seen {
        assert_eq!(times, 1, "{what} came {times} times");
    }
}
