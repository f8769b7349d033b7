//! Loading a tree: what has to be in memory of it.

use std::sync::Arc;

use brigade_model::ids::{Owner, RunNo, TaskNo, TreeId};
use brigade_model::message::Message;
use brigade_model::name::Key;
use brigade_model::task::TaskRow;
use brigade_model::tree::{KeyMark, MessageRow};
use brigade_store::standing::complete;
use brigade_store::{LoadedTree, codec};

use crate::error::{Result, corrupt};
use crate::read::{Reading, decode_task, stored_task, task_no};
use crate::write::{LIVING, PENDING, TreeKey};

impl Reading<'_> {
    pub(crate) fn load(&self, id: TreeId) -> Result<Option<LoadedTree>> {
        let Some((key, row)) = self.keyed_tree(id)? else { return Ok(None) };
        let mut living = Living::default();
        let mut tasks = self.open_tasks((key, id), &mut living)?;
        complete(&mut tasks, |no| stored_task(&self.tx, (key, id), no))?;
        let keys = self.keys(key, &living)?;
        let unread = self.unread((key, id))?;
        Ok(Some(LoadedTree { row, tasks, unread, keys }))
    }

    fn open_tasks(
        &self,
        (key, id): (TreeKey, TreeId),
        living: &mut Living,
    ) -> Result<Vec<(TaskNo, TaskRow)>> {
        let mut statement = self.tx.prepare_cached(self.way_to_open_tasks(key)?)?;
        let mut rows = statement.query([key])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let (no, phase): (i64, i64) = (row.get(0)?, row.get(2)?);
            if phase == LIVING {
                living.0.push(no);
            }
            if phase == PENDING && !living.has(row.get(1)?) {
                continue;
            }
            let no = task_no(no)?;
            found.push((no, decode_task(id, no, row.get_ref(3)?.as_blob()?)?));
        }
        Ok(found)
    }

    /// The index leads past tasks that are over, at the price of a search for each that is not. Where
    /// a good part of the tasks is open, going through all of them is cheaper.
    fn way_to_open_tasks(&self, key: TreeKey) -> Result<&'static str> {
        let sql = "SELECT count(*), (SELECT ifnull(max(no), 0) FROM tasks WHERE tree = ?1) \
                   FROM tasks INDEXED BY tasks_open WHERE tree = ?1 AND phase < 3";
        let (open, last): (i64, i64) =
            self.tx.prepare_cached(sql)?.query_row([key], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(if open >= last / 4 {
            "SELECT no, owner, phase, body FROM tasks NOT INDEXED \
             WHERE tree = ?1 AND phase < 3 ORDER BY no"
        } else {
            "SELECT no, owner, phase, body FROM tasks INDEXED BY tasks_open \
             WHERE tree = ?1 AND phase < 3 ORDER BY no"
        })
    }

    fn keys(&self, tree: TreeKey, living: &Living) -> Result<Vec<KeyMark>> {
        let sql = "SELECT owner, owner_run, key, no FROM tasks INDEXED BY tasks_keyed \
                   WHERE tree = ?1 AND key IS NOT NULL \
                   UNION ALL SELECT owner, owner_run, key, no FROM marks WHERE tree = ?1";
        let mut statement = self.tx.prepare_cached(sql)?;
        let mut rows = statement.query([tree])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let owner: i64 = row.get(0)?;
            if !living.has(owner) {
                continue;
            }
            let key: Key =
                row.get_ref(2)?.as_str()?.parse().map_err(|e| corrupt(format!("{e}")))?;
            let (run, no) = (RunNo(row.get(1)?), task_no(row.get(3)?)?);
            let owner = if owner == 0 { Owner::Session } else { Owner::Task(task_no(owner)?) };
            found.push(KeyMark::new(owner, run, &key, no));
        }
        Ok(found)
    }

    fn unread(&self, (key, id): (TreeKey, TreeId)) -> Result<Vec<Arc<Message>>> {
        let sql = "SELECT no, body FROM messages INDEXED BY messages_unread \
                   WHERE tree = ?1 AND unread = 1 ORDER BY no";
        let mut statement = self.tx.prepare_cached(sql)?;
        let mut rows = statement.query([key])?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let no: i64 = row.get(0)?;
            let what = format_args!("message {no} of {id:?}");
            let row: MessageRow = codec::decode(what, row.get_ref(1)?.as_blob()?)?;
            found.push(row.message);
        }
        Ok(found)
    }
}

/// The living tasks of a tree, in ascending order. Parents have smaller numbers than their
/// children, so while rows are read in order a task's owner has been seen before it.
#[derive(Debug, Default)]
struct Living(Vec<i64>);

impl Living {
    /// Whether this owner lives; the session, which is 0, always does.
    fn has(&self, owner: i64) -> bool {
        owner == 0 || self.0.binary_search(&owner).is_ok()
    }
}
