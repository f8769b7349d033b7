//! Acknowledged commits and records survive a kill at any moment, and no commit is stored in part.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{Session, batch, id, open};
use brigade_model::ids::{Lane, Time};
use brigade_sqlite::SqliteStore;
use brigade_store::{
    ExpectedVersion, NewRecord, PutRecordResult, RecordKey, RecordKind, RecordQuery, RecordStore,
    RemoveRecordResult, Store, TaskQuery,
};
use rusqlite::Connection;
use tempfile::TempDir;

const FILE: &str = "BRIGADE_SQLITE_CRASH_FILE";
const KILLS: u64 = 20;
/// The number of tasks of a commit. A part of a commit would show as another number.
const TASKS_PER_COMMIT: usize = 7;

/// Commits until the process is killed, and prints each acknowledged commit. Without the
/// environment variable, as in an ordinary test run, it does nothing.
#[tokio::test]
async fn commits_until_it_is_killed() {
    let Some(path) = std::env::var_os(FILE) else { return };
    let store = open(Path::new(&path)).unwrap();
    let mut session = match store.load(id(1)).await.unwrap() {
        Some(loaded) => Session::from_loaded(loaded),
        None => {
            let (session, part) = Session::open(1);
            store.commit(&batch(part)).await.unwrap();
            session
        }
    };
    loop {
        store.commit(&batch(session.spawn(TASKS_PER_COMMIT))).await.unwrap();
        // `println` would be captured until the test ends.
        let mut out = std::io::stdout().lock();
        writeln!(out, "acknowledged {}", session.tree.row().seq).unwrap();
        out.flush().unwrap();
    }
}

/// Creates a numbered record, then takes the one before it, until the process is killed. Prints each
/// acknowledged take. Without the environment variable it does nothing.
#[tokio::test]
async fn writes_records_until_it_is_killed() {
    let Some(path) = std::env::var_os(FILE) else { return };
    let store = open(Path::new(&path)).unwrap();
    let found = stored_numbers(&store).await;
    for number in found.last().map_or(1, |last| last + 1).. {
        let record = NewRecord::new(record_key(number), number.to_string()).unwrap();
        let put = store.put_record(&record, ExpectedVersion::Absent, Time(1)).await.unwrap();
        assert!(matches!(put, PutRecordResult::Stored(_)), "{put:?}");
        let before = record_key(number - 1);
        let taken = store.remove_record(&before, None, Time(1)).await.unwrap();
        let is_first = found.is_empty() && number == 1;
        assert_eq!(matches!(taken, RemoveRecordResult::Removed(_)), !is_first, "{taken:?}");
        let mut out = std::io::stdout().lock();
        writeln!(out, "acknowledged {number}").unwrap();
        out.flush().unwrap();
    }
}

#[tokio::test]
async fn acknowledged_records_survive_kills() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("store.db");
    let mut survived = 0;
    for round in 0..KILLS / 2 {
        let acknowledged =
            run_and_kill("crash::writes_records_until_it_is_killed", &path, kill_moment(round));
        let acknowledged = acknowledged.max(survived);
        let store = open(&path).expect("the lock ends with its holder");
        let found = stored_numbers(&store).await;
        let Some(last) = found.last().copied() else {
            assert_eq!(acknowledged, 0);
            continue;
        };
        assert!(last >= acknowledged, "{acknowledged} was acknowledged, {last} is there");
        assert!(found[0] >= acknowledged, "{acknowledged} was acknowledged, {} is back", found[0]);
        // Either the last take has happened, or it has not.
        assert!(found == [last] || found == [last - 1, last], "{found:?}");
        if let [before, _] = found[..] {
            store.remove_record(&record_key(before), None, Time(1)).await.unwrap();
        }
        survived = last;
    }
    assert!(survived > KILLS, "the processes wrote too little: {survived}");
}

fn record_key(number: u64) -> RecordKey {
    RecordKey::new(RecordKind::from_static("crash"), format!("{number:010}")).unwrap()
}

async fn stored_numbers(store: &SqliteStore) -> Vec<u64> {
    let query = RecordQuery::new(RecordKind::from_static("crash"));
    let page = store.records(&query, Time(1)).await.unwrap();
    page.items.iter().map(|item| item.key.parse().unwrap()).collect()
}

#[tokio::test]
async fn acknowledged_commits_survive_kills() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("store.db");
    let mut survived = 0;
    for round in 0..KILLS {
        let acknowledged =
            run_and_kill("crash::commits_until_it_is_killed", &path, kill_moment(round));
        let acknowledged = acknowledged.max(survived);
        let store = open(&path).expect("the lock ends with its holder");
        let Some(row) = store.session(id(1)).await.unwrap() else {
            assert_eq!(acknowledged, 0);
            continue;
        };
        assert!(row.seq.0 >= acknowledged, "{acknowledged} was acknowledged, {} is there", row.seq);
        assert_eq!((row.seq.0 - 1) % TASKS_PER_COMMIT as u64, 0, "a commit is whole");
        let tasks = store.tasks(id(1), &TaskQuery::default()).await.unwrap();
        assert_eq!(tasks.len() as u64, row.seq.0 - 1);
        assert_eq!(store.cursor().await.unwrap().number_in(Lane(0)), row.seq.0);
        survived = row.seq.0;
        drop(store);
        let conn = Connection::open(&path).unwrap();
        let check: String =
            conn.pragma_query_value(None, "integrity_check", |row| row.get(0)).unwrap();
        assert_eq!(check, "ok");
    }
    assert!(survived > KILLS, "the processes committed too little: {survived}");
}

/// The moment of a kill.
#[derive(Clone, Copy)]
struct KillMoment {
    /// The acknowledged commits to wait for.
    commits: u64,
    /// The time between the last of them and the kill.
    delay: Duration,
}

/// Spreads the kills over the rounds. The first one hits the creation of the file.
fn kill_moment(round: u64) -> KillMoment {
    let scattered = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    KillMoment { commits: round * 3, delay: Duration::from_micros(scattered % 8_000) }
}

/// Runs a test in a process and kills it. Returns the last number that it acknowledged.
fn run_and_kill(test: &str, path: &Path, moment: KillMoment) -> u64 {
    let mut child: Child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(FILE, path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let acknowledged =
        |line: String| -> Option<u64> { line.split_once("acknowledged ")?.1.parse().ok() };
    let mut last = 0;
    let commits = usize::try_from(moment.commits).unwrap();
    for seq in lines.by_ref().filter_map(acknowledged).take(commits) {
        last = seq;
    }
    std::thread::sleep(moment.delay);
    child.kill().unwrap();
    child.wait().unwrap();
    lines.filter_map(acknowledged).last().unwrap_or(last)
}
