//! Lists all trusted definitions.

use brigade_model::refusal::Refusal;
use serde::{Deserialize, Serialize};

use crate::ask::{Ask, Items, Never};
use crate::desk::Desk;
use crate::trust::TrustedRepository;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ListTrust {}

impl Ask for ListTrust {
    type Done = Vec<TrustedRepository>;
    type Item = Never;

    async fn answer(self, desk: &Desk, _: &Items<Never>) -> Result<Self::Done, Refusal> {
        desk.operator_only("see what is trusted")?;
        Ok(desk.trust()?.list())
    }
}
