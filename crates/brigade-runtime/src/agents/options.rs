//! The settings of a program for its agents.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use brigade_agent::definition::{Definition, DefinitionDir, DefinitionError, DefinitionSet};
use brigade_agent::permission::{PermissionRules, Permissions};
use brigade_agent::{Backend, Plugin, Tool};
use brigade_file_tools::PrivateDirectory;
use brigade_llm::prices::TokenPrice;
use brigade_llm::{Model, Recorder, SharedLimits, TokenUsage};
use brigade_model::limits::{Money, Usage};
use brigade_model::refusal::Refusal;

use super::backend_source::BackendSource;
use super::trust::{DefinitionTrust, TrustNothing};

use super::mcp_client::McpServerConfig;
#[cfg(feature = "mcp")]
use super::mcp_client::{McpServerError, McpServers};

/// A source of models by name.
pub trait ModelSource: Debug + Send + Sync + 'static {
    /// Returns the model of this name. If it is refused as unavailable, an agent waits for a
    /// runtime that has it.
    fn find(&self, name: &str) -> Result<ChosenModel, Refusal>;

    /// Refuses a model that lacks something, such as a key, before an agent starts with it.
    fn check_ready(&self, _name: &str) -> Result<(), Refusal> {
        Ok(())
    }

    /// Returns true if the name is a file that is read or written. Such a model is for callers who
    /// could use the file themselves, not for a workspace definition or a sandboxed process.
    fn is_file(&self, _name: &str) -> bool {
        false
    }

    /// Returns the price of a model that another program calls, by the name that the program uses.
    fn price(&self, _name: &str) -> ModelCost {
        ModelCost::Unknown
    }

    /// Divides the limits of providers with other processes from now on: the nodes of a fleet.
    fn share_limits(&self, _shared: Arc<dyn SharedLimits>) {}
}

/// A model and its known facts.
#[derive(Clone, Debug)]
pub struct ChosenModel {
    pub model: Arc<dyn Model>,
    /// The provider's name for the model.
    pub name: Arc<str>,
    /// The largest number of tokens of input and output together.
    pub context_window: u64,
    /// The largest number of tokens in one reply.
    pub max_output: u32,
    pub cost: ModelCost,
}

/// The price of tokens.
#[derive(Clone, Copy, Debug)]
pub enum ModelCost {
    Free,
    Known(TokenPrice),
    /// The price is not known. A guess would make a money budget wrong.
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

/// One model for every name, for tests, scripts and demos.
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

/// Models whose calls are recorded, to be replayed in tests.
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

    fn price(&self, name: &str) -> ModelCost {
        self.source.price(name)
    }

    fn share_limits(&self, shared: Arc<dyn SharedLimits>) {
        self.source.share_limits(shared);
    }
}

/// A function that returns the definition folders for a directory.
pub type DefinitionFolderLookup = fn(Option<&Path>) -> Vec<DefinitionDir>;

/// The settings for agents: models, definitions, tools, plugins, permissions.
///
/// ```
/// use std::sync::Arc;
///
/// use brigade_llm::{Script, ScriptedModel};
/// use brigade_runtime::{AgentOptions, NewTask, OneModel, Runtime};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let model = ScriptedModel::new(Script::parse("cook", "agent *\nturn\n  say Soup.\n")?);
/// let agents = AgentOptions::new(OneModel(Arc::new(model))).model("scripted");
/// let runtime = Runtime::builder().agents(agents).start().await?;
/// let session = runtime.session("today").await?;
/// let cook = session.spawn(NewTask::agent("What do we eat?")).await?;
/// assert_eq!(cook.result().await?, "Soup.");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct AgentOptions {
    pub(crate) models: Arc<dyn ModelSource>,
    pub(crate) model: Option<Arc<str>>,
    pub(crate) definitions: DefinitionSet,
    pub(crate) definition_dirs: DefinitionFolderLookup,
    pub(crate) trust: Arc<dyn DefinitionTrust>,
    pub(crate) tools: Vec<Tool>,
    pub(crate) plugins: Vec<Arc<dyn Plugin>>,
    pub(crate) backends: HashMap<Arc<str>, Arc<dyn Backend>>,
    pub(crate) backend_source: Option<Arc<dyn BackendSource>>,
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
            definition_dirs: |_| Vec::new(),
            trust: Arc::new(TrustNothing),
            tools: Vec::new(),
            plugins: Vec::new(),
            backends: HashMap::new(),
            backend_source: None,
            mcp_servers: BTreeMap::new(),
            permissions: Permissions::of("this program", PermissionRules::all()),
            private_directories: Arc::default(),
        }
    }

    /// Sets directories that file tools cannot enter.
    #[must_use]
    pub fn private_directories(mut self, private: Vec<PrivateDirectory>) -> Self {
        self.private_directories = private.into();
        self
    }

    /// Sets the model of agents whose definition names none.
    #[must_use]
    pub fn model(mut self, name: &str) -> Self {
        self.model = Some(name.into());
        self
    }

    /// Adds a definition, which takes precedence over files.
    pub fn definition(mut self, definition: Definition) -> Result<Self, DefinitionError> {
        self.definitions.add(definition)?;
        Ok(self)
    }

    /// Sets the lookup of definition folders for a directory. It is called at each spawn.
    #[must_use]
    pub fn definition_dirs(mut self, folders: DefinitionFolderLookup) -> Self {
        self.definition_dirs = folders;
        self
    }

    /// Sets which workspace definitions are trusted. Without this, none are, and their agents only
    /// read.
    #[must_use]
    pub fn definition_trust(mut self, trust: Arc<dyn DefinitionTrust>) -> Self {
        self.trust = trust;
        self
    }

    /// Adds a tool of the program. It replaces a built-in tool of the same name.
    #[must_use]
    pub fn tool(mut self, tool: impl Into<Tool>) -> Self {
        self.tools.push(tool.into());
        self
    }

    /// Adds a plugin.
    #[must_use]
    pub fn plugin(mut self, plugin: impl Plugin) -> Self {
        self.plugins.push(Arc::new(plugin));
        self
    }

    /// Adds a backend, which replaces the agent loop for agents that name it.
    #[must_use]
    pub fn backend(mut self, name: &str, backend: impl Backend) -> Self {
        self.backends.insert(name.into(), Arc::new(backend));
        self
    }

    /// Sets the source of backends that are not registered by name.
    #[must_use]
    pub fn backend_source(mut self, source: Arc<dyn BackendSource>) -> Self {
        self.backend_source = Some(source);
        self
    }

    /// Adds an MCP server. Agents that may use it get its tools as `NAME__TOOL`.
    #[cfg(feature = "mcp")]
    pub fn mcp_server(
        mut self,
        name: &str,
        server: McpServerConfig,
    ) -> Result<Self, McpServerError> {
        McpServers::new([(name.to_owned(), server.clone())])?;
        self.mcp_servers.insert(name.to_owned(), server);
        Ok(self)
    }

    /// Sets the permissions of top-level agents.
    #[must_use]
    pub fn permissions(mut self, permissions: Permissions) -> Self {
        self.permissions = permissions;
        self
    }
}
