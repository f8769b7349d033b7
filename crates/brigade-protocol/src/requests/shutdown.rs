//! `shutdown`: asks the daemon to shut down. Processes keep running.

use serde::{Deserialize, Serialize};

use crate::call::{Call, NoItems};

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct ShutdownRequest {}

impl Call for ShutdownRequest {
    type Reply = ();
    type Item = NoItems;
}
