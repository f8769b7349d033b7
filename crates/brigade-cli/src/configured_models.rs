//! The models of the daemon: those of providers, scripts and recordings.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use brigade_agent::definition::{DefinitionDir, DefinitionSet};
use brigade_llm::{
    KeySource, Model, ModelName, ProviderKind, Recorder, ReplayModel, Script, ScriptedModel,
    SharedLimits,
};
use brigade_model::refusal::Refusal;
use brigade_model::suggestion::find_nearest;
use brigade_runtime::AgentOptions;
use brigade_runtime::agents::{ChosenModel, ModelCost, ModelProviders, ModelSource, OneModel};
use brigade_server::ExternalPrograms;

use crate::config::UserConfig;
use crate::exit_code::CliError;

/// The prefix of a model that plays a script; the file follows.
const SCRIPT_PREFIX: &str = "script:";
/// The prefix of a model that replays a recording; the file follows.
const REPLAY_PREFIX: &str = "replay:";
/// The prefix of a recorded model: `record:MODEL=/FILE` writes all calls of the model to the file.
const RECORD_PREFIX: &str = "record:";
const DEMO_HINT: &str = "`brigade demo` runs agents without a key";

/// Builds the options of the daemon's agents from the configuration.
pub(crate) fn agent_options(config: &UserConfig) -> Result<AgentOptions, CliError> {
    let mut providers = ModelProviders::new().prices(config.prices.clone());
    for (name, options) in &config.providers {
        providers = providers.provider(name, options.clone());
    }
    for (name, limit) in &config.limits {
        providers = providers.provider_rate_limit(name, limit.options());
    }
    let models =
        ConfiguredModels { providers, playbacks: Mutex::default(), recorders: Mutex::default() };
    let options = AgentOptions::new(models);
    let mut options = options.definition_dirs(definition_dirs);
    for (name, server) in &config.mcp_servers {
        let added = options.mcp_server(name, server.clone());
        options = added.map_err(|error| CliError::usage(error.to_string()))?;
    }
    Ok(match &config.model {
        Some(model) => options.model(model),
        None => options,
    })
}

/// Returns the environment variables that hold keys of providers.
pub(crate) fn key_variables(config: &UserConfig) -> Vec<String> {
    let known = ProviderKind::all().filter_map(ProviderKind::key_variable).map(str::to_owned);
    let configured = config.providers.values().filter_map(|options| match &options.key {
        KeySource::Env(variable) => Some(variable.clone()),
        KeySource::File(_) | KeySource::None => None,
    });
    known.chain(configured).collect()
}

/// Returns the agent programs of other vendors, with the user's adapter files.
pub(crate) fn external_programs() -> ExternalPrograms {
    ExternalPrograms::new(UserConfig::config_dir().as_deref())
}

pub(crate) fn definition_dirs(directory: Option<&Path>) -> Vec<DefinitionDir> {
    let user = UserConfig::config_dir();
    match directory {
        Some(directory) => DefinitionSet::directories(directory, user.as_deref()),
        None => user.as_deref().map(DefinitionDir::of_user).into_iter().collect(),
    }
}

#[derive(Debug)]
struct ConfiguredModels {
    providers: ModelProviders,
    /// Scripts and recordings by name. A playback keeps its position until its file changes.
    playbacks: Mutex<HashMap<String, LoadedPlayback>>,
    /// Recorders by file.
    recorders: Mutex<HashMap<PathBuf, Recorder>>,
}

/// A model name, parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NamedModel<'a> {
    Script(&'a Path),
    Replay(&'a Path),
    Recorded { model: &'a str, file: &'a Path },
    OfProvider(&'a str),
}

impl<'a> NamedModel<'a> {
    fn of(name: &'a str) -> Self {
        if let Some(path) = name.strip_prefix(SCRIPT_PREFIX) {
            return Self::Script(Path::new(path));
        }
        if let Some(path) = name.strip_prefix(REPLAY_PREFIX) {
            return Self::Replay(Path::new(path));
        }
        let recorded = name.strip_prefix(RECORD_PREFIX).and_then(|recording| {
            let at = recording.find("=/")?;
            Some(Self::Recorded { model: &recording[..at], file: Path::new(&recording[at + 1..]) })
        });
        recorded.unwrap_or(Self::OfProvider(name))
    }
}

#[derive(Debug)]
struct LoadedPlayback {
    modified_at: Option<SystemTime>,
    model: Arc<dyn Model>,
}

impl ModelSource for ConfiguredModels {
    fn find(&self, name: &str) -> Result<ChosenModel, Refusal> {
        match NamedModel::of(name) {
            NamedModel::OfProvider(name) => self.providers.find(name),
            NamedModel::Script(path) => {
                let play = |script| into_model(ScriptedModel::new(script).with_retry());
                let load = || Script::load(path).map(play);
                OneModel(self.load_playback(name, path, || load().map_err(unusable_model))?)
                    .find(name)
            }
            NamedModel::Replay(path) => {
                let load = || ReplayModel::load(path).map(into_model);
                OneModel(self.load_playback(name, path, || load().map_err(unusable_model))?)
                    .find(name)
            }
            NamedModel::Recorded { model, file } => {
                let found = self.find(model)?;
                Ok(ChosenModel { model: self.open_recorder(file)?.wrap(found.model), ..found })
            }
        }
    }

    fn price(&self, name: &str) -> ModelCost {
        self.providers.price(name)
    }

    fn share_limits(&self, shared: Arc<dyn SharedLimits>) {
        self.providers.share_limits(shared);
    }

    fn check_ready(&self, name: &str) -> Result<(), Refusal> {
        match NamedModel::of(name) {
            NamedModel::Script(_) | NamedModel::Replay(_) => Ok(()),
            NamedModel::Recorded { model, .. } => self.check_ready(model),
            NamedModel::OfProvider(name) => self.providers.check_ready(name),
        }
    }

    fn is_file(&self, name: &str) -> bool {
        !matches!(NamedModel::of(name), NamedModel::OfProvider(_))
    }
}

fn into_model(model: impl Model) -> Arc<dyn Model> {
    Arc::new(model)
}

fn unusable_model(error: impl std::error::Error) -> Refusal {
    Refusal::invalid(error.to_string())
}

impl ConfiguredModels {
    /// Returns the playback of a file. Loads it again after the file changed.
    fn load_playback(
        &self,
        name: &str,
        path: &Path,
        load: impl FnOnce() -> Result<Arc<dyn Model>, Refusal>,
    ) -> Result<Arc<dyn Model>, Refusal> {
        let mut playbacks = self.playbacks.lock().unwrap_or_else(PoisonError::into_inner);
        let modified_at = path.metadata().and_then(|found| found.modified()).ok();
        match playbacks.get(name) {
            Some(loaded) if loaded.modified_at == modified_at => Ok(loaded.model.clone()),
            _ => {
                let model = load()?;
                playbacks
                    .insert(name.to_owned(), LoadedPlayback { modified_at, model: model.clone() });
                Ok(model)
            }
        }
    }

    fn open_recorder(&self, file: &Path) -> Result<Recorder, Refusal> {
        let mut recorders = self.recorders.lock().unwrap_or_else(PoisonError::into_inner);
        // A removed file gets a new recorder.
        if let Some(recorder) = recorders.get(file).filter(|_| file.exists()) {
            return Ok(recorder.clone());
        }
        let recorder = Recorder::open(file).map_err(unusable_model)?;
        recorders.insert(file.to_owned(), recorder.clone());
        Ok(recorder)
    }
}

/// Makes the file of a model absolute, since the daemon has another working directory.
pub(crate) fn absolute_model(model: &str) -> Result<String, CliError> {
    let (prefix, path) = match NamedModel::of(model) {
        NamedModel::Script(path) => (SCRIPT_PREFIX, path),
        NamedModel::Replay(path) => (REPLAY_PREFIX, path),
        NamedModel::Recorded { .. } | NamedModel::OfProvider(_) => return Ok(model.to_owned()),
    };
    let path = std::path::absolute(path).map_err(|_| CliError::usage("the file has no name"))?;
    Ok(format!("{prefix}{}", path.display()))
}

/// Returns the name of a model whose calls are recorded to a file.
pub(crate) fn recording_model(model: &str, file: &Path) -> Result<String, CliError> {
    let model = absolute_model(model)?;
    let file = std::path::absolute(file).map_err(|_| CliError::usage("the file has no name"))?;
    Ok(format!("{RECORD_PREFIX}{model}={}", file.display()))
}

/// Checks that a model can be used: its provider, key, script or recording.
pub(crate) fn check_model(model: Option<&str>, config: &UserConfig) -> Result<(), CliError> {
    let Some(model) = model else {
        return Err(CliError::usage("no model is set")
            .with_hint("use --model PROVIDER/MODEL, or set `model` in the configuration")
            .add_hint(DEMO_HINT.to_owned()));
    };
    match NamedModel::of(model) {
        NamedModel::Recorded { model, .. } => return check_model(Some(model), config),
        NamedModel::Script(path) if !path.is_file() => {
            return Err(CliError::usage(format!("there is no script {}", path.display())));
        }
        NamedModel::Replay(path) if !path.is_file() => {
            return Err(CliError::usage(format!("there is no recording {}", path.display())));
        }
        NamedModel::Script(_) | NamedModel::Replay(_) => return Ok(()),
        NamedModel::OfProvider(_) => {}
    }
    let name: ModelName = model.parse().map_err(|error| CliError::usage(format!("{error}")))?;
    let key = match config.providers.get(&*name.provider) {
        Some(options) => options.key.clone(),
        None => {
            let kind: ProviderKind = name.provider.parse().map_err(|error| {
                let error = CliError::usage(format!("{error}"));
                let known = ProviderKind::all().map(|kind| -> &str { kind.name() });
                let known = known.chain(config.providers.keys().map(String::as_str));
                match find_nearest(&name.provider, known) {
                    Some(near) => error.with_hint(format!("did you mean {near}/{}?", name.model)),
                    None => error.with_hint("[providers.NAME] in the configuration adds one"),
                }
            })?;
            match kind.key_variable() {
                Some(variable) => KeySource::Env(variable.to_owned()),
                None => KeySource::None,
            }
        }
    };
    match key {
        KeySource::Env(variable) if std::env::var_os(&variable).is_none() => {
            let problem = format!("there is no key for {}: set {variable}", name.provider);
            Err(CliError::usage(problem).with_hint(DEMO_HINT))
        }
        KeySource::File(path) if !path.exists() => {
            let problem = format!("there is no key for {}: {}", name.provider, path.display());
            Err(CliError::usage(problem).with_hint(DEMO_HINT))
        }
        _ => Ok(()),
    }
}

/// Returns a hint for a model error.
pub(crate) fn model_failure_hint(detail: &str) -> Option<String> {
    detail.contains("set the environment variable").then(|| {
        "the daemon was started without it: run `brigade daemon stop`, then try again".to_owned()
    })
}
