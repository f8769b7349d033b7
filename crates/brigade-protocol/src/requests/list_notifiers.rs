//! `list_notifiers`: lists the notifiers of the daemon, with what they have not delivered.

use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ListNotifiersRequest {}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListNotifiersReply {
    /// The configured notifiers, and others that have notifications in the store.
    pub notifiers: Vec<NotifierInfo>,
    /// The number of gaps: times at which retention had removed events before they were read.
    #[serde(default)]
    pub gaps: u64,
    /// In milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_gap_at: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotifierInfo {
    pub name: String,
    /// False if only the store has notifications for it.
    pub is_configured: bool,
    /// Notifications that are to be delivered.
    pub pending: u64,
    /// Notifications that were given up in the last seven days.
    pub dead_letters: u64,
    /// The problem of one of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

impl Call for ListNotifiersRequest {
    type Reply = ListNotifiersReply;
    type Item = NoItems;
}
