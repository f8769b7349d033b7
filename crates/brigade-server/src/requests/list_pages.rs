//! The tasks of a session, or of all, however many they are.

use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use super::list::{List, ListedPages};
use crate::ask::{Ask, Items};
use crate::desk::Desk;
use crate::info::TaskInfo;

/// The same as [`List`], in pages that come one after another.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ListPages {
    #[serde(flatten)]
    pub list: List,
}

impl Ask for ListPages {
    /// How many there were.
    type Done = u64;
    type Item = Vec<TaskInfo>;

    async fn answer(self, desk: &Desk, items: &Items<Vec<TaskInfo>>) -> Result<u64, Refusal> {
        let mut pages = ListedPages::new(self.list, desk).await?;
        let mut count = 0;
        while let Some(page) = pages.next().await? {
            count += page.len() as u64;
            items.send(&page).await?;
        }
        Ok(count)
    }
}
