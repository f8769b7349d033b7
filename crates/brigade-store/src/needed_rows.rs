//! Loads the rows that a command needs before it is decided.

use brigade_model::needs::NeededRow;
use brigade_model::task::StoredTask;
use brigade_model::task_tree::TaskTree;

use crate::error::StoreError;
use crate::store::Store;

/// Loads needed rows into a tree. A row that the store does not have is no error: `decide` refuses
/// the command.
pub async fn load_needed_rows(
    store: &dyn Store,
    tree: &mut TaskTree,
    needed: &[NeededRow],
) -> Result<(), StoreError> {
    let id = tree.id();
    for row in needed {
        let task = match row {
            NeededRow::Task(no) => store.task(id, *no).await?.map(|row| StoredTask::new(*no, row)),
            NeededRow::Named { owner, name } => store.task_named(id, *owner, name).await?,
            NeededRow::Message(no) => {
                if let Some(row) = store.message(id, *no).await? {
                    tree.insert_message(row.message);
                }
                None
            }
            NeededRow::MessageKey { scope, key } => {
                if let Some(mark) = store.message_key(id, *scope, key).await? {
                    tree.insert_found_message_key(mark);
                }
                None
            }
        };
        if let Some(task) = task {
            tree.insert_loaded(task);
        }
    }
    Ok(())
}
