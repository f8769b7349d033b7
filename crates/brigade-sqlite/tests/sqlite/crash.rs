//! Killed at any moment: what was acknowledged is there, and nothing is half there.

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
/// Tasks per commit: half a commit would be another number of them.
const EACH: usize = 7;

/// The process that is killed: it commits until then, and says each commit that was acknowledged.
/// Without the environment variable, as in an ordinary run of the tests, it does nothing.
#[tokio::test]
async fn commits_until_it_is_killed() {
    let Some(path) = std::env::var_os(FILE) else { return };
    let store = open(Path::new(&path)).unwrap();
    let mut session = match store.load(id(1)).await.unwrap() {
        Some(loaded) => Session::continued(loaded),
        None => {
            let (session, part) = Session::open(1);
            store.commit(&batch(part)).await.unwrap();
            session
        }
    };
    loop {
        store.commit(&batch(session.spawn(EACH))).await.unwrap();
        // Past the test harness, which would keep it until the test is over.
        let mut out = std::io::stdout().lock();
        writeln!(out, "acknowledged {}", session.tree.row().seq).unwrap();
        out.flush().unwrap();
    }
}

#[tokio::test]
async fn acknowledged_commits_survive_kills() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    let mut survived = 0;
    for round in 0..KILLS {
        let acknowledged = run_and_kill(&path, moment(round)).max(survived);
        let store = open(&path).expect("the lock went with its holder");
        let Some(row) = store.session(id(1)).await.unwrap() else {
            assert_eq!(acknowledged, 0);
            continue;
        };
        assert!(row.seq.0 >= acknowledged, "{acknowledged} was acknowledged, {} is there", row.seq);
        assert_eq!((row.seq.0 - 1) % EACH as u64, 0, "a commit is whole");
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
    assert!(survived > KILLS, "the process came to do something: {survived}");
}

/// How many acknowledged commits are waited for, and how long after the last of them the kill comes:
/// spread over the rounds, the first in the middle of making the file.
fn moment(round: u64) -> (u64, Duration) {
    let scattered = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (round * 3, Duration::from_micros(scattered % 8_000))
}

/// Returns the last event that the process said was committed.
fn run_and_kill(path: &Path, (commits, then): (u64, Duration)) -> u64 {
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
    for seq in lines.by_ref().filter_map(acknowledged).take(usize::try_from(commits).unwrap()) {
        last = seq;
    }
    std::thread::sleep(then);
    child.kill().unwrap();
    child.wait().unwrap();
    lines.filter_map(acknowledged).last().unwrap_or(last)
}
