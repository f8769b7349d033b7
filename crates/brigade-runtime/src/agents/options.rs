//! What a program lets agents have.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use brigade_agent::definition::{Definition, DefinitionError, DefinitionFolder, DefinitionSet};
use brigade_file_tools::PrivateDirectory;
use brigade_mcp::client::{McpServerConfig, McpServerError, McpServers};
use brigade_agent::permission::{PermissionRules, Permissions};
use brigade_agent::{Backend, Plugin, Tool};
use brigade_llm::prices::TokenPrice;
use brigade_llm::{Model, Recorder, TokenUsage};
use brigade_model::limits::{Money, Usage};
use brigade_model::refusal::Refusal;

use super::trust::{DefinitionTrust, TrustNothing};

/// Models by name.
pub trait ModelSource: Debug + Send + Sync + 'static {
    /// The model that is meant. Refused as unavailable, an agent waits until a runtime has it.
    fn find(&self, name: &str) -> Result<ChosenModel, Refusal>;

    /// Says what is missing before an agent starts with it: a key, above all.
    fn check_ready(&self, _name: &str) -> Result<(), Refusal> {
        Ok(())
    }

    /// Whether the name is that of a file, to be read or written. Such a model is for whoever could use
    /// the file as well, and not for a definition in a workspace or a command that is confined.
    fn is_file(&self, _name: &str) -> bool {
        false
    }
}

/// A model, and what is known of it.
#[derive(Clone, Debug)]
pub struct ChosenModel {
    pub model: Arc<dyn Model>,
    /// The provider's name of it.
    pub name: Arc<str>,
    /// Tokens that it takes in all.
    pub context_window: u64,
    /// The most tokens of one reply.
    pub max_output: u32,
    pub cost: ModelCost,
}

/// What tokens cost.
#[derive(Clone, Copy, Debug)]
pub enum ModelCost {
    Free,
    Known(TokenPrice),
    /// A guess would make a budget of money a lie.
    Unknown,
}

impl ModelCost {
    pub(crate) fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown)
    }

    pub(crate) fn price_usage(&self, tokens: &TokenUsage) -> Usage {
        let money = match self {
            Self::Known(price) => price.cost(tokens),
            Self::Free | Self::Unknown => 0,
        };
        Usage { tokens: tokens.total(), money: Money(money) }
    }
}

/// One model, whatever is asked for: for tests, scripts and demonstrations.
#[derive(Clone, Debug)]
pub struct OneModel(pub Arc<dyn Model>);

impl ModelSource for OneModel {
    fn find(&self, name: &str) -> Result<ChosenModel, Refusal> {
        Ok(ChosenModel {
            model: self.0.clone(),
            name: name.into(),
            context_window: 200_000,
            max_output: 8_192,
            cost: ModelCost::Free,
        })
    }
}

/// Models whose calls are written down, to be played again in tests.
#[derive(Debug)]
pub struct RecordedModels<S> {
    pub source: S,
    pub recorder: Recorder,
}

impl<S: ModelSource> ModelSource for RecordedModels<S> {
    fn find(&self, name: &str) -> Result<ChosenModel, Refusal> {
        let found = self.source.find(name)?;
        Ok(ChosenModel { model: self.recorder.wrap(found.model), ..found })
    }

    fn check_ready(&self, name: &str) -> Result<(), Refusal> {
        self.source.check_ready(name)
    }
}

/// The folders with the definitions for a directory.
pub type DefinitionFolderLookup = fn(Option<&Path>) -> Vec<DefinitionFolder>;

/// What agents are made of.
#[derive(Clone, Debug)]
pub struct AgentOptions {
    pub(crate) models: Arc<dyn ModelSource>,
    pub(crate) model: Option<Arc<str>>,
    pub(crate) definitions: DefinitionSet,
    pub(crate) definition_folders: DefinitionFolderLookup,
    pub(crate) trust: Arc<dyn DefinitionTrust>,
    pub(crate) tools: Vec<Arc<dyn Tool>>,
    pub(crate) plugins: Vec<Arc<dyn Plugin>>,
    pub(crate) backends: HashMap<Arc<str>, Arc<dyn Backend>>,
    pub(crate) mcp_servers: BTreeMap<String, McpServerConfig>,
    pub(crate) permissions: Permissions,
    pub(crate) private_directories: Arc<[PrivateDirectory]>,
}

impl AgentOptions {
    pub fn new(models: impl ModelSource) -> Self {
        Self {
            models: Arc::new(models),
            model: None,
            definitions: DefinitionSet::default(),
            definition_folders: |_| Vec::new(),
            trust: Arc::new(TrustNothing),
            tools: Vec::new(),
            plugins: Vec::new(),
            backends: HashMap::new(),
            mcp_servers: BTreeMap::new(),
            permissions: Permissions::of("this program", PermissionRules::all()),
            private_directories: Arc::default(),
        }
    }

    /// Directories that file tools stay out of, wherever an agent works.
    #[must_use]
    pub fn private_directories(mut self, private: Vec<PrivateDirectory>) -> Self {
        self.private_directories = private.into();
        self
    }

    /// What agents use whose definition names no model.
    #[must_use]
    pub fn model(mut self, name: &str) -> Self {
        self.model = Some(name.into());
        self
    }

    /// An agent that is defined here, whatever the files say.
    pub fn definition(mut self, definition: Definition) -> Result<Self, DefinitionError> {
        self.definitions.add(definition)?;
        Ok(self)
    }

    /// Where the definitions are of agents that work in a directory. Asked at each spawn.
    #[must_use]
    pub fn definition_folders(mut self, folders: DefinitionFolderLookup) -> Self {
        self.definition_folders = folders;
        self
    }

    /// Which definitions of a workspace may do more than read. Without a word, none.
    #[must_use]
    pub fn definition_trust(mut self, trust: Arc<dyn DefinitionTrust>) -> Self {
        self.trust = trust;
        self
    }

    /// Something that agents can do in this program. It takes the place of a built-in one with the same
    /// name.
    #[must_use]
    pub fn tool(mut self, tool: impl Tool) -> Self {
        self.tools.push(Arc::new(tool));
        self
    }

    /// Something that has its say in the work of agents.
    #[must_use]
    pub fn plugin(mut self, plugin: impl Plugin) -> Self {
        self.plugins.push(Arc::new(plugin));
        self
    }

    /// Something else than our own loop that agents can be carried out by, when they are started
    /// with its name.
    #[must_use]
    pub fn backend(mut self, name: &str, backend: impl Backend) -> Self {
        self.backends.insert(name.into(), Arc::new(backend));
        self
    }

    /// A server whose tools agents have that are given it by this name, as `NAME__TOOL`.
    pub fn mcp_server(
        mut self,
        name: &str,
        server: McpServerConfig,
    ) -> Result<Self, McpServerError> {
        McpServers::new([(name.to_owned(), server.clone())])?;
        self.mcp_servers.insert(name.to_owned(), server);
        Ok(self)
    }

    /// What agents at top level may do, unless they are started with less.
    #[must_use]
    pub fn permissions(mut self, permissions: Permissions) -> Self {
        self.permissions = permissions;
        self
    }
}
