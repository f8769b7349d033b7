//! Acknowledged commits survive a kill at any moment, and no commit is stored in part.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::support::{Session, batch, id, open};
use brigade_store::{Store, TaskQuery};
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

#[tokio::test]
async fn acknowledged_commits_survive_kills() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("store.db");
    let mut survived = 0;
    for round in 0..KILLS {
        let acknowledged = run_and_kill(&path, kill_moment(round)).max(survived);
        let store = open(&path).expect("the lock ends with its holder");
        let Some(row) = store.session(id(1)).await.unwrap() else {
            assert_eq!(acknowledged, 0);
            continue;
        };
        assert!(row.seq.0 >= acknowledged, "{acknowledged} was acknowledged, {} is there", row.seq);
        assert_eq!((row.seq.0 - 1) % TASKS_PER_COMMIT as u64, 0, "a commit is whole");
        let tasks = store.tasks(id(1), &TaskQuery::default()).await.unwrap();
        assert_eq!(tasks.len() as u64, row.seq.0 - 1);
        assert_eq!(store.last_position().await.unwrap().0, row.seq.0);
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

/// Runs a process and kills it. Returns the last event that it reported as committed.
fn run_and_kill(path: &Path, moment: KillMoment) -> u64 {
    let mut child: Child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::commits_until_it_is_killed", "--nocapture"])
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
