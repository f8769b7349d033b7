//! Files of every version that was ever released are opened, with what is in them.

use std::path::Path;

use crate::support::{Session, batch, id, open};
use brigade_model::ids::TaskNo;
use brigade_store::{EventQuery, Store, codec};
use rusqlite::{Connection, params};
use tempfile::TempDir;

/// Version 1 as it was released. It does not follow changes of the program.
const VERSION_1: &str = "
CREATE TABLE meta(name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO meta VALUES('pruned_to', 0);
CREATE TABLE trees(
    key INTEGER PRIMARY KEY AUTOINCREMENT, id BLOB NOT NULL UNIQUE, name TEXT NOT NULL,
    state INTEGER NOT NULL, epoch INTEGER NOT NULL, seq INTEGER NOT NULL,
    opened INTEGER NOT NULL, now INTEGER NOT NULL, body BLOB NOT NULL);
CREATE INDEX trees_name ON trees(name);
CREATE TABLE tasks(
    tree INTEGER NOT NULL, no INTEGER NOT NULL, owner INTEGER NOT NULL, owner_run INTEGER NOT NULL,
    phase INTEGER NOT NULL, name TEXT, key TEXT, ended_at INTEGER, body BLOB NOT NULL,
    PRIMARY KEY(tree, no)) WITHOUT ROWID;
CREATE INDEX tasks_open ON tasks(tree, no) WHERE phase < 3;
CREATE INDEX tasks_over ON tasks(ended_at) WHERE phase = 3;
CREATE INDEX tasks_owner ON tasks(tree, owner);
CREATE INDEX tasks_name ON tasks(tree, name) WHERE name IS NOT NULL;
CREATE INDEX tasks_keyed ON tasks(tree, owner, owner_run, key) WHERE key IS NOT NULL;
CREATE TABLE marks(
    tree INTEGER NOT NULL, owner INTEGER NOT NULL, no INTEGER NOT NULL, owner_run INTEGER NOT NULL,
    key TEXT NOT NULL, PRIMARY KEY(tree, owner, no)) WITHOUT ROWID;
CREATE TABLE events(
    position INTEGER PRIMARY KEY, tree INTEGER NOT NULL, seq INTEGER NOT NULL,
    at INTEGER NOT NULL, body BLOB NOT NULL, UNIQUE(tree, seq));
CREATE TABLE journal(
    tree INTEGER NOT NULL, task INTEGER NOT NULL, ord INTEGER NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY(tree, task, ord)) WITHOUT ROWID;
CREATE TABLE runs(
    tree INTEGER NOT NULL, task INTEGER NOT NULL, run INTEGER NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY(tree, task, run)) WITHOUT ROWID;
CREATE TABLE messages(
    tree INTEGER NOT NULL, no INTEGER NOT NULL, recipient INTEGER NOT NULL,
    unread INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY(tree, no)) WITHOUT ROWID;
CREATE INDEX messages_unread ON messages(tree, no) WHERE unread = 1;
CREATE INDEX messages_recipient ON messages(tree, recipient);
PRAGMA application_id = 0x62726764;
PRAGMA user_version = 1;
";

/// Fills a file of version 1 with a session and a task.
fn make_version_1(path: &Path) -> Session {
    let conn = Connection::open(path).unwrap();
    conn.execute_batch(VERSION_1).unwrap();
    let (mut session, opened) = Session::open(1);
    let spawned = session.spawn(1);
    let row = session.tree.row();
    conn.execute(
        "INSERT INTO trees VALUES(1, ?1, ?2, 0, ?3, ?4, ?5, ?6, ?7)",
        params![
            row.id.as_uuid().as_bytes(),
            row.name.as_str(),
            row.epoch.0 as i64,
            row.seq.0 as i64,
            row.opened_at.0 as i64,
            row.now.0 as i64,
            codec::encode(row).unwrap()
        ],
    )
    .unwrap();
    let (no, task) = &spawned.tasks[0];
    conn.execute(
        "INSERT INTO tasks VALUES(1, ?1, 0, 1, 0, NULL, NULL, NULL, ?2)",
        params![no.get(), codec::encode(task).unwrap()],
    )
    .unwrap();
    for record in opened.events.iter().chain(&spawned.events) {
        let (seq, at) = (record.seq.0 as i64, record.at.0 as i64);
        let body = codec::encode(record).unwrap();
        conn.execute("INSERT INTO events VALUES(?1, 1, ?1, ?2, ?3)", params![seq, at, body])
            .unwrap();
    }
    session
}

#[tokio::test]
async fn version_1_is_opened_and_written_on() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("store.db");
    let mut session = make_version_1(&path);
    let store = open(&path).unwrap();
    assert!(store.load(id(1)).await.unwrap().unwrap().into_tree() == session.tree);
    store.commit(&batch(session.spawn(1))).await.unwrap();
    store.commit(&batch(session.finish(TaskNo::FIRST))).await.unwrap();
    let query = EventQuery { session: Some(id(1)), after: Default::default(), limit: 10 };
    let page = store.events(&query).await.unwrap();
    let numbers: Vec<u64> = page.items.iter().map(|item| item.record.seq.0).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
}

/// What is made anew today is what files of older versions become.
#[test]
fn old_and_new_files_have_the_same_tables() {
    let folder = TempDir::new().unwrap();
    let (old, new) = (folder.path().join("old.db"), folder.path().join("new.db"));
    make_version_1(&old);
    for path in [&old, &new] {
        open(path).unwrap();
    }
    assert_eq!(tables(&old), tables(&new));
}

fn tables(path: &Path) -> Vec<String> {
    let conn = Connection::open(path).unwrap();
    let sql = "SELECT type || ' ' || name || ' ' || ifnull(sql, '') FROM sqlite_schema ORDER BY 1";
    let mut statement = conn.prepare(sql).unwrap();
    let rows = statement.query_map([], |row| row.get::<_, String>(0)).unwrap();
    let plain = |text: String| text.split_whitespace().collect::<String>();
    rows.map(|row| plain(row.unwrap())).collect()
}
