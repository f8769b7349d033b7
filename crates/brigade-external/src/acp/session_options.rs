//! The options of a session that Brigade sets.

use agent_client_protocol_schema::v1::{
    SessionConfigId, SessionConfigKind, SessionConfigOption, SessionConfigOptionCategory,
    SessionConfigSelectOptions,
};
use serde::Deserialize;
use serde_json::Value;

/// Returns the option of a new or resumed session that chooses this model, if it is offered.
pub(super) fn find_model_option(session: &Value, model: &str) -> Option<SessionConfigId> {
    let options = session.get("configOptions")?.as_array()?;
    let options = options.iter().filter_map(|option| SessionConfigOption::deserialize(option).ok());
    let mut options = options.filter(|option| offers_model(option, model));
    options.next().map(|option| option.id)
}

fn offers_model(option: &SessionConfigOption, model: &str) -> bool {
    let SessionConfigKind::Select(select) = &option.kind else { return false };
    if option.category != Some(SessionConfigOptionCategory::Model) {
        return false;
    }
    match &select.options {
        SessionConfigSelectOptions::Ungrouped(values) => {
            values.iter().any(|value| *value.value.0 == *model)
        }
        SessionConfigSelectOptions::Grouped(groups) => {
            let mut values = groups.iter().flat_map(|group| &group.options);
            values.any(|value| *value.value.0 == *model)
        }
        _ => false,
    }
}
