//! The works of the comparison by bare rusqlite: the least writes that tasks need, one transaction
//! for all tasks in flight. Nothing runs and nobody is notified.

use std::process::ExitCode;

use peers_harness::{BoxError, IN_FLIGHT, Measured, STEPS_PER_TASK, Stopwatch, Work, run_peer};
use rusqlite::Connection;

/// The size of a small row of a task.
const BODY: [u8; 200] = [7; 200];

fn main() -> ExitCode {
    run_peer("rusqlite", measure)
}

fn measure(work: Work, count: usize) -> Result<Measured, BoxError> {
    match work {
        Work::Durable => durable(count),
        Work::Steps => steps(count),
        _ => Ok(Measured::Unsupported("a database runs no tasks")),
    }
}

/// Opens a database with the settings of Brigade's store.
fn open(dir: &tempfile::TempDir) -> Result<Connection, BoxError> {
    let db = Connection::open(dir.path().join("bare.db"))?;
    db.pragma_update(None, "journal_mode", "wal")?;
    db.pragma_update(None, "synchronous", "normal")?;
    db.execute_batch(
        "create table tasks(no integer primary key, status text, body blob);
         create table steps(task integer, step integer, body blob, primary key (task, step));",
    )?;
    Ok(db)
}

/// Inserts the tasks of a batch and sets their status: two writes per task in one transaction.
fn durable(count: usize) -> Result<Measured, BoxError> {
    let dir = tempfile::tempdir()?;
    let mut db = open(&dir)?;
    let numbers: Vec<usize> = (1..=count).collect();
    let watch = Stopwatch::start();
    for batch in numbers.chunks(IN_FLIGHT) {
        let transaction = db.transaction()?;
        insert_tasks(&transaction, batch)?;
        end_tasks(&transaction, batch)?;
        transaction.commit()?;
    }
    Ok(watch.stop().into())
}

/// Does the same with five more writes per task. Each step of a batch is a transaction, because a
/// step must be stored before the next one begins.
fn steps(count: usize) -> Result<Measured, BoxError> {
    let dir = tempfile::tempdir()?;
    let mut db = open(&dir)?;
    let numbers: Vec<usize> = (1..=count).collect();
    let watch = Stopwatch::start();
    for batch in numbers.chunks(IN_FLIGHT) {
        let transaction = db.transaction()?;
        insert_tasks(&transaction, batch)?;
        transaction.commit()?;
        for step in 0..STEPS_PER_TASK {
            let transaction = db.transaction()?;
            insert_steps(&transaction, batch, step)?;
            transaction.commit()?;
        }
        let transaction = db.transaction()?;
        end_tasks(&transaction, batch)?;
        transaction.commit()?;
    }
    Ok(watch.stop().into())
}

fn insert_tasks(db: &Connection, batch: &[usize]) -> rusqlite::Result<()> {
    let mut insert =
        db.prepare_cached("insert into tasks(no, status, body) values (?1, 'running', ?2)")?;
    for no in batch {
        insert.execute((*no as i64, &BODY))?;
    }
    Ok(())
}

fn insert_steps(db: &Connection, batch: &[usize], step: usize) -> rusqlite::Result<()> {
    let mut insert =
        db.prepare_cached("insert into steps(task, step, body) values (?1, ?2, ?3)")?;
    for no in batch {
        insert.execute((*no as i64, step as i64, &BODY[..20]))?;
    }
    Ok(())
}

fn end_tasks(db: &Connection, batch: &[usize]) -> rusqlite::Result<()> {
    let mut update = db.prepare_cached("update tasks set status = 'ended' where no = ?1")?;
    for no in batch {
        update.execute([*no as i64])?;
    }
    Ok(())
}
