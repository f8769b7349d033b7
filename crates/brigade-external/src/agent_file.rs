//! The file that describes the agent of another vendor: an adapter for its command line, or its
//! program if it speaks the Agent Client Protocol.

use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::acp::AcpAgent;
use crate::adapter::{AdapterFault, CliAdapter};
use crate::external_agent::ExternalAgent;

/// Parses the file of an agent. A file with the field `protocol` describes an ACP agent, any other
/// file is an adapter.
pub fn parse_agent_file(text: &str) -> Result<Arc<dyn ExternalAgent>, AdapterFault> {
    let table: toml::Table = parse_toml(text)?;
    match table.contains_key("protocol") {
        true => Ok(Arc::new(AcpAgent::parse(text)?)),
        false => Ok(Arc::new(CliAdapter::parse(text)?)),
    }
}

/// Parses TOML. The fault names the field that is wrong.
pub(crate) fn parse_toml<T: DeserializeOwned>(text: &str) -> Result<T, AdapterFault> {
    let fault = |field: String, problem: String| AdapterFault { field, problem };
    let deserializer = toml::Deserializer::parse(text)
        .map_err(|error| fault(".".into(), error.message().to_owned()))?;
    serde_path_to_error::deserialize(deserializer).map_err(|error| {
        let field = error.path().to_string();
        fault(field, error.into_inner().message().to_owned())
    })
}
