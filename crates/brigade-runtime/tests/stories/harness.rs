//! Runs a story, cuts it at every commit, and compares the results.
//!
//! Each cut is a process that dies: its tokio runtime is dropped with everything in it. Another one
//! opens the same store and runs the story again. The client's part of a story can run again
//! because it spawns with a key.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, LazyLock, Mutex};

use brigade_model::call::{CallCompletion, JournalEntry};
use brigade_model::event::{Event, EventRecord};
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{Epoch, MessageNo, Owner, TaskNo, Time};
use brigade_model::outcome::Outcome;
use brigade_model::task::TaskRow;
use brigade_model::task_tree::TaskTree;
use brigade_postgres::test_server::TestServer;
use brigade_postgres::{PostgresOptions, PostgresStore};
use brigade_runtime::{Clock, ProcessOptions, Runtime, RuntimeBuilder, Session};
use brigade_sqlite::SqliteStore;
use brigade_store::{EventQuery, Store, TaskQuery};
use brigade_testkit::{
    CrashStore, CutMode, CutPoint, PausedClock, StoppedTime, TestRuntime, with_test_loops,
};

/// The effects of the work on the outside: each step logs itself here.
pub(crate) type Log = Arc<Mutex<Vec<String>>>;
/// The prefix of steps that must not be repeated.
pub(crate) const ONCE: &str = "once: ";
pub(crate) type Act = fn(Session) -> Pin<Box<dyn Future<Output = ()>>>;

pub(crate) struct Story {
    pub(crate) build: fn(RuntimeBuilder, Log) -> RuntimeBuilder,
    /// The client's part, which runs again after each crash.
    pub(crate) act: Act,
    /// True if the journals are compared too. False where a crash costs money, since a reservation
    /// of a dead process counts as spent and a budget may end sooner. False where a stop may come
    /// before or after a child has parked.
    pub(crate) compare_journals: bool,
    pub(crate) pace: Pace,
}

/// The passing of time in a story.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Time passes as soon as all tasks are idle.
    Paused,
    /// Time passes as usual, for stories with real processes.
    Real,
}

/// The state that is compared at the end, without times, numbers and attempts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FinalState {
    tasks: BTreeMap<String, String>,
    messages: BTreeMap<String, Vec<String>>,
    journal: BTreeMap<String, Vec<String>>,
    shared: BTreeMap<String, String>,
}

/// The store of the stories: SQLite, or PostgreSQL if the variable `BRIGADE_STORY_STORE` says so.
static STORE: LazyLock<StoryStore> =
    LazyLock::new(|| match std::env::var("BRIGADE_STORY_STORE").as_deref() {
        Err(_) | Ok("sqlite") => StoryStore::Sqlite,
        Ok("postgres") => StoryStore::Postgres,
        Ok(other) => panic!("BRIGADE_STORY_STORE is {other}, not sqlite or postgres"),
    });

static SERVER: LazyLock<TestServer> = LazyLock::new(TestServer::start);

#[derive(Clone, Copy, Debug)]
enum StoryStore {
    Sqlite,
    Postgres,
}

/// Opens the store of a path: a file, or a schema that is named after it.
async fn open_store(path: &Path) -> Arc<dyn Store> {
    match *STORE {
        StoryStore::Sqlite => Arc::new(SqliteStore::open(path).unwrap()),
        StoryStore::Postgres => {
            let options = PostgresOptions::from_url(&SERVER.url()).unwrap();
            let name: Vec<_> =
                path.iter().rev().take(2).map(|part| part.to_string_lossy()).collect();
            let options = options.schema(&name.join(" ")).unwrap();
            // The driver has timeouts, which would pass at once.
            let _stopped = StoppedTime::begin();
            Arc::new(PostgresStore::open(&options).await.unwrap())
        }
    }
}

enum StoryRun {
    Finished { commits: u64 },
    Cut { at: Time },
}

impl Story {
    /// Cuts at every commit, before and after it is durable.
    pub(crate) fn cut_everywhere(&self) {
        let log = Log::default();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("uncut.db");
        let StoryRun::Finished { commits } = self.run(&path, &log, TestRuntime::START, None) else {
            panic!("the story ends without a cut")
        };
        let expect = self.final_state(&path);
        let steps = sorted(&log);
        // During a commit that takes time, inputs come together and need fewer commits.
        let commits_min = if matches!(*STORE, StoryStore::Sqlite) { 8 } else { 5 };
        assert!(commits >= commits_min, "a story of {commits} commits has not much to cut");
        for commit in 0..commits {
            for durable in [false, true] {
                let cut = CutPoint { commit, durable, mode: CutMode::Crash };
                let path = dir.path().join(format!("cut-{commit}-{durable}.db"));
                let log = Log::default();
                match self.run(&path, &log, TestRuntime::START, Some(cut)) {
                    StoryRun::Cut { at } => {
                        self.run(&path, &log, at, None);
                    }
                    // The number of commits varies with the time that they take.
                    StoryRun::Finished { .. } if matches!(*STORE, StoryStore::Postgres) => {}
                    StoryRun::Finished { .. } => panic!("{cut:?} was not reached"),
                }
                assert_eq!(self.final_state(&path), expect, "after {cut:?}");
                check_steps(&steps, &sorted(&log), &cut);
            }
        }
    }

    /// Cuts at this many commits, spread over the story. On real time the number of commits varies
    /// a little, so a cut near the end may not be reached.
    pub(crate) fn cut_here_and_there(&self, cuts: u64) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("uncut.db");
        let log = Log::default();
        let StoryRun::Finished { commits } = self.run(&path, &log, TestRuntime::START, None) else {
            panic!("the story ends without a cut")
        };
        let expect = self.final_state(&path);
        let steps = sorted(&log);
        for nth in 0..cuts {
            let commit = 2 + nth * (commits - 4) / cuts;
            let cut = CutPoint { commit, durable: nth % 2 == 0, mode: CutMode::Crash };
            let path = dir.path().join(format!("cut-{commit}.db"));
            let log = Log::default();
            if let StoryRun::Cut { at } = self.run(&path, &log, TestRuntime::START, Some(cut)) {
                self.run(&path, &log, at, None);
            }
            assert_eq!(self.final_state(&path), expect, "after {cut:?}");
            check_steps(&steps, &sorted(&log), &cut);
        }
    }

    fn final_state(&self, path: &Path) -> FinalState {
        let mut end = final_state(path);
        if !self.compare_journals {
            end.journal.clear();
        }
        end
    }

    /// Runs the life of one process.
    fn run(&self, path: &Path, log: &Log, start: Time, cut: Option<CutPoint>) -> StoryRun {
        let tokio = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(self.pace == Pace::Paused)
            .build()
            .unwrap();
        tokio.block_on(async {
            let store = match *STORE {
                StoryStore::Sqlite => CrashStore::new(open_store(path).await, cut),
                StoryStore::Postgres => CrashStore::around_real_io(open_store(path).await, cut),
            };
            let clock = PausedClock::starting_at(start);
            let builder = with_test_loops(Runtime::builder(), &*store).await;
            let builder = builder.shared_store(store.clone()).max_batch(1);
            let builder = match self.pace {
                Pace::Paused => builder.clock(Arc::new(clock)),
                Pace::Real => {
                    builder.processes(ProcessOptions::new(path.with_extension("commands")))
                }
            };
            let story = async {
                let runtime = (self.build)(builder, log.clone()).start().await.unwrap();
                let session = runtime.session("story").await.unwrap();
                (self.act)(session).await;
                runtime.shutdown().await.unwrap();
            };
            tokio::select! {
                () = story => StoryRun::Finished { commits: store.commits() },
                () = store.wait_crashed() => StoryRun::Cut { at: clock.now() },
            }
        })
    }
}

/// Checks that each step ran once. The step whose record was cut may run once more.
fn check_steps(expect: &[String], got: &[String], cut: &CutPoint) {
    let mut remaining = got.to_vec();
    // A step that must not happen twice may not happen at all.
    remaining.retain(|step| !step.starts_with(ONCE));
    let once = got.len() - remaining.len();
    assert!(once <= expect.iter().filter(|step| step.starts_with(ONCE)).count(), "twice: {got:?}");
    for step in expect.iter().filter(|step| !step.starts_with(ONCE)) {
        let at = remaining.iter().position(|other| other == step);
        let at = at.unwrap_or_else(|| panic!("after {cut:?} the step {step:?} did not run"));
        remaining.remove(at);
    }
    // Steps that run at the same time share the cut.
    for step in &remaining {
        let twice = remaining.iter().filter(|other| *other == step).count();
        assert_eq!(twice, 1, "after {cut:?} the step {step:?} ran more than once again");
    }
}

fn sorted(log: &Log) -> Vec<String> {
    let mut all = log.lock().unwrap().clone();
    all.sort();
    all
}

/// Reads the store like a new process, checks its invariants, and returns the state to compare.
fn final_state(path: &Path) -> FinalState {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio.block_on(async {
        let store = open_store(path).await;
        let tree = store.sessions().await.unwrap().pop().unwrap();
        let rows = store.tasks(tree.id, &TaskQuery::default()).await.unwrap();
        let rows: BTreeMap<TaskNo, Arc<TaskRow>> =
            rows.into_iter().map(|task| (task.no, task.row)).collect();
        let query = EventQuery { session: None, after: FeedCursor::START, limit: usize::MAX };
        let events = store.events(&query).await.unwrap().items;
        let events: Vec<Arc<EventRecord>> = events.into_iter().map(|item| item.record).collect();
        check_fold(&events, &rows);
        check_once(&events);
        // Order is guaranteed for each sender and recipient.
        let mut messages: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for no in 1..=tree.last_message.0 {
            let row = store.message(tree.id, MessageNo(no)).await.unwrap().unwrap();
            let path = |no: Option<TaskNo>| no.map_or("session".into(), |no| path_of(&rows, no));
            let way =
                format!("{} to {}", path(row.message.from.task()), path(row.message.to.task()));
            let text = format!("{} {:?}", row.message.body, row.receipt);
            messages.entry(way).or_default().push(text);
        }
        let mut journal = BTreeMap::new();
        for no in rows.keys() {
            let mut entries = store.journal(tree.id, *no).await.unwrap();
            check_answers(*no, &entries);
            entries.sort_by_key(|entry| entry.index);
            journal.insert(path_of(&rows, *no), render_journal(&entries));
        }
        // Within a budget, a model call that was cut off counts as its maximum cost.
        let mut limits = rows.values().filter_map(|row| row.limits.as_ref());
        let is_metered = limits.any(|limits| limits.tokens.is_some());
        let tasks =
            rows.iter().map(|(no, row)| (path_of(&rows, *no), render_task(row, is_metered)));
        let tasks = tasks.collect();
        let shared = tree.shared_values.iter();
        let shared = shared.map(|(name, kept)| (name.to_owned(), kept.value.to_string())).collect();
        FinalState { tasks, messages, journal, shared }
    })
}

fn render_task(row: &TaskRow, is_metered: bool) -> String {
    let ended = row.ended().expect("every task has ended");
    let result = match &*ended.outcome {
        Outcome::Succeeded { result } => result.to_string(),
        _ => String::new(),
    };
    let used = if is_metered { String::new() } else { row.usage().tokens.to_string() };
    format!("{} {result} {:?} {used}", ended.outcome, ended.delivery)
}

fn render_journal(entries: &[JournalEntry]) -> Vec<String> {
    let mut texts = Vec::new();
    let mut outcomes = Vec::new();
    for entry in entries {
        match (&entry.completion.as_ref(), *STORE) {
            // Several tasks may end during one commit, so one wait may return what two waits returned
            // in another run.
            (CallCompletion::Results(results), StoryStore::Postgres) => {
                outcomes.extend(results.iter().map(|result| result.outcome.to_string()));
            }
            (completion, _) => {
                texts.push(format!("{}: {}", entry.label, render_completion(completion)));
            }
        }
    }
    texts.extend(outcomes);
    texts
}

fn render_completion(completion: &CallCompletion) -> String {
    match completion {
        CallCompletion::Value(value) => format!("{value}"),
        CallCompletion::Message(message) => format!("message {}", message.body),
        CallCompletion::Results(run_results) => {
            let all: Vec<String> = run_results.iter().map(|e| e.outcome.to_string()).collect();
            format!("{all:?}")
        }
        CallCompletion::Spawned(_) => "spawned".into(),
        CallCompletion::Sent(numbers) => format!("sent {}", numbers.len()),
        other => format!("{other:?}"),
    }
}

/// Returns the names from the top down. Numbers may differ after a crash, names do not.
fn path_of(rows: &BTreeMap<TaskNo, Arc<TaskRow>>, no: TaskNo) -> String {
    let row = &rows[&no];
    let name = row.name.as_ref().map_or_else(|| format!("#{no}"), ToString::to_string);
    match row.owner {
        Owner::Session => name,
        Owner::Task(owner) => format!("{} > {name}", path_of(rows, owner)),
    }
}

fn check_fold(events: &[Arc<EventRecord>], rows: &BTreeMap<TaskNo, Arc<TaskRow>>) {
    let mut folded = TaskTree::open(&events[0], Epoch(1)).unwrap();
    for event in &events[1..] {
        brigade_model::apply::apply(&mut folded, event);
    }
    for (no, row) in rows {
        assert_eq!(folded.get(*no), Some(&**row), "task {no} from its events");
    }
}

/// Checks that no call was answered twice. A call that failed may be made again.
fn check_answers(no: TaskNo, journal: &[JournalEntry]) {
    let failed = |completion: &CallCompletion| {
        matches!(completion, CallCompletion::Retried { .. } | CallCompletion::Error(_))
    };
    let mut seen = BTreeSet::new();
    for entry in journal.iter().filter(|entry| !failed(&entry.completion)) {
        assert!(seen.insert(entry.index), "call {} of {no} was answered twice", entry.index);
    }
}

fn check_once(events: &[Arc<EventRecord>]) {
    let mut seen = BTreeMap::new();
    for record in events {
        let once: Vec<String> = match &record.event {
            Event::Ended { no, run, .. } => vec![format!("ending of {no}#{run}")],
            Event::Collected { runs } => {
                runs.iter().map(|it| format!("result of {}#{}", it.no, it.run)).collect()
            }
            Event::MessageRead { message, .. } => vec![format!("reading of message {message}")],
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
