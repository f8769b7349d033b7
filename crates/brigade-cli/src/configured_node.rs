//! The node that the daemon is, if its store is shared.

use brigade_model::duration::parse_duration;
use brigade_runtime::NodeOptions;
use serde::{Deserialize, Serialize};

/// The table `node` of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct NodeConfig {
    /// The name. Default: the machine, and a part of the id of the state directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// Labels that sessions can require.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) labels: Vec<String>,
    /// The most sessions that the node claims.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) capacity: Option<u64>,
    /// The number of loops, which commit at the same time. Default: what suits the store.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) loops: Option<usize>,
    /// The time after which other nodes take its sessions. Default: 10s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) lease: Option<String>,
    /// The time for which processes of another host wait for its return. Default: 10m.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) host_grace: Option<String>,
}

impl NodeConfig {
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Adds the name and the labels of a command line.
    pub(crate) fn with_args(&self, name: Option<String>, labels: Vec<String>) -> Self {
        let mut config = self.clone();
        config.name = name.or(config.name);
        config.labels.extend(labels);
        config
    }

    /// Returns the settings of the node, or the problem of one of them.
    pub(crate) fn options(&self) -> Result<NodeOptions, String> {
        let mut options = match &self.name {
            Some(name) => NodeOptions::new(name),
            None => NodeOptions::default(),
        };
        for label in &self.labels {
            options = options.label(label);
        }
        if let Some(capacity) = self.capacity {
            options = options.capacity(capacity);
        }
        if let Some(lease) = &self.lease {
            options = options.lease(parse_duration(lease)?);
        }
        if let Some(grace) = &self.host_grace {
            options = options.host_grace(parse_duration(grace)?);
        }
        options.check().map_err(|refusal| refusal.message)?;
        Ok(options)
    }
}
