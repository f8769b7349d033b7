//! Values that the tasks of a session share. A value is written in the commit of the step that
//! changed it, and only over the version that the writer has seen.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ids::Seq;
use crate::json::Json;
use crate::refusal::Refusal;

/// The maximum size of all names and values together, in bytes. They are part of the session's row.
pub const SHARED_MAX: usize = 64 * 1024;

/// All shared values of a session, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SharedValues(Arc<BTreeMap<Arc<str>, SharedValue>>);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedValue {
    pub value: Json,
    /// The sequence number of the event that wrote it.
    pub version: Seq,
}

/// A requested write of one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedWrite {
    pub name: Arc<str>,
    pub value: Json,
    /// The version that the writer has seen. `None` if there was no value.
    pub expected_version: Option<Seq>,
}

impl SharedValues {
    pub fn get(&self, name: &str) -> Option<&SharedValue> {
        self.0.get(name)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &SharedValue)> {
        self.0.iter().map(|(name, value)| (&**name, value))
    }

    /// Refuses writes over versions that the writer has not seen, and writes that exceed the size
    /// limit.
    pub(crate) fn check(&self, writes: &[SharedWrite]) -> Result<(), Refusal> {
        for write in writes {
            let now = self.get(&write.name).map(|kept| kept.version);
            if now != write.expected_version {
                return Err(Refusal::conflict(format!(
                    "the session's state {:?} was changed by somebody else meanwhile",
                    write.name
                )));
            }
        }
        let kept = |name: &str| !writes.iter().any(|write| *write.name == *name);
        let old = self.iter().filter(|(name, _)| kept(name));
        let old: usize = old.map(|(name, kept)| name.len() + kept.value.as_str().len()).sum();
        let new: usize = writes.iter().map(|w| w.name.len() + w.value.as_str().len()).sum();
        if old + new > SHARED_MAX {
            return Err(Refusal::limit(format!(
                "the session's shared values would have {} bytes; the most is {SHARED_MAX}",
                old + new
            )));
        }
        Ok(())
    }

    pub(crate) fn set(&mut self, name: &Arc<str>, value: &Json, version: Seq) {
        let value = SharedValue { value: value.clone(), version };
        Arc::make_mut(&mut self.0).insert(name.clone(), value);
    }
}
