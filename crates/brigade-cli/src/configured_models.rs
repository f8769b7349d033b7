//! Which models there are here: those of the providers, scripts and recordings.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use brigade_agent::definition::{DefinitionFolder, DefinitionSet};
use brigade_llm::suggestion::find_nearest;
use brigade_llm::{
    KeySource, Model, ModelName, ProviderKind, Recorder, ReplayModel, Script, ScriptedModel,
};
use brigade_model::refusal::Refusal;
use brigade_runtime::AgentOptions;
use brigade_runtime::agents::{ChosenModel, ModelProviders, ModelSource, OneModel};

use crate::config::UserConfig;
use crate::exit_code::CliError;

/// How the name of a model begins that plays a script, which is the file after it.
const SCRIPT_PREFIX: &str = "script:";
/// The same for one that says again what was recorded in a file.
const REPLAY_PREFIX: &str = "replay:";
/// `record:MODEL=/FILE`: the model, with all that it is asked and says written to the file.
const RECORD_PREFIX: &str = "record:";
const DEMO_HINT: &str = "`brigade demo` shows agents without any key";

/// What the daemon's agents are made of.
pub(crate) fn agent_options(config: &UserConfig) -> Result<AgentOptions, CliError> {
    let mut providers = ModelProviders::new().prices(config.prices.clone());
    for (name, options) in &config.providers {
        providers = providers.provider(name, options.clone());
    }
    let (played, recorders) = Default::default();
    let options = AgentOptions::new(ConfiguredModels { providers, playbacks: played, recorders });
    let mut options = options.definition_folders(definition_folders);
    for (name, server) in &config.mcp_servers {
        let added = options.mcp_server(name, server.clone());
        options = added.map_err(|error| CliError::usage(error.to_string()))?;
    }
    Ok(match &config.model {
        Some(model) => options.model(model),
        None => options,
    })
}

/// The variables that hold keys of providers.
pub(crate) fn key_variables(config: &UserConfig) -> Vec<String> {
    let known = ProviderKind::all().filter_map(ProviderKind::key_variable).map(str::to_owned);
    let configured = config.providers.values().filter_map(|options| match &options.key {
        KeySource::Env(variable) => Some(variable.clone()),
        KeySource::File(_) | KeySource::None => None,
    });
    known.chain(configured).collect()
}

fn definition_folders(directory: Option<&Path>) -> Vec<DefinitionFolder> {
    let user = UserConfig::config_dir();
    match directory {
        Some(directory) => DefinitionSet::folders(directory, user.as_deref()),
        None => user.as_deref().map(DefinitionFolder::of_user).into_iter().collect(),
    }
}

#[derive(Debug)]
struct ConfiguredModels {
    providers: ModelProviders,
    /// Scripts and recordings by their names. How often what was played is kept with them, until the
    /// file is changed.
    playbacks: Mutex<HashMap<String, LoadedPlayback>>,
    /// By their files.
    recorders: Mutex<HashMap<PathBuf, Recorder>>,
}

/// A model as its name says it.
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
        let recorded = name.strip_prefix(RECORD_PREFIX).and_then(|rest| {
            let at = rest.find("=/")?;
            Some(Self::Recorded { model: &rest[..at], file: Path::new(&rest[at + 1..]) })
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
    /// What plays a file, as long as that stays as it is.
    fn load_playback(
        &self,
        name: &str,
        path: &Path,
        load: impl FnOnce() -> Result<Arc<dyn Model>, Refusal>,
    ) -> Result<Arc<dyn Model>, Refusal> {
        let mut played = self.playbacks.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = path.metadata().and_then(|found| found.modified()).ok();
        match played.get(name) {
            Some(playing) if playing.modified_at == changed => Ok(playing.model.clone()),
            _ => {
                let model = load()?;
                played.insert(
                    name.to_owned(),
                    LoadedPlayback { modified_at: changed, model: model.clone() },
                );
                Ok(model)
            }
        }
    }

    fn open_recorder(&self, file: &Path) -> Result<Recorder, Refusal> {
        let mut recorders = self.recorders.lock().unwrap_or_else(PoisonError::into_inner);
        // One that was taken away is begun anew.
        if let Some(recorder) = recorders.get(file).filter(|_| file.exists()) {
            return Ok(recorder.clone());
        }
        let recorder = Recorder::open(file).map_err(unusable_model)?;
        recorders.insert(file.to_owned(), recorder.clone());
        Ok(recorder)
    }
}

/// A model as the daemon finds it, which is at home in another directory.
pub(crate) fn absolute_model(model: &str) -> Result<String, CliError> {
    let (prefix, path) = match NamedModel::of(model) {
        NamedModel::Script(path) => (SCRIPT_PREFIX, path),
        NamedModel::Replay(path) => (REPLAY_PREFIX, path),
        NamedModel::Recorded { .. } | NamedModel::OfProvider(_) => return Ok(model.to_owned()),
    };
    let path = std::path::absolute(path).map_err(|_| CliError::usage("the file has no name"))?;
    Ok(format!("{prefix}{}", path.display()))
}

/// The model, with what it is asked and says written to a file.
pub(crate) fn recording_model(model: &str, file: &Path) -> Result<String, CliError> {
    let model = absolute_model(model)?;
    let file = std::path::absolute(file).map_err(|_| CliError::usage("the file has no name"))?;
    Ok(format!("{RECORD_PREFIX}{model}={}", file.display()))
}

/// Says what an agent with this model would miss.
pub(crate) fn check_model(model: Option<&str>, config: &UserConfig) -> Result<(), CliError> {
    let Some(model) = model else {
        return Err(CliError::usage("no model is set")
            .with_hint("say --model PROVIDER/MODEL, or set `model` in the configuration")
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
                let failure = CliError::usage(format!("{error}"));
                let known = ProviderKind::all().map(|kind| -> &str { kind.name() });
                let known = known.chain(config.providers.keys().map(String::as_str));
                match find_nearest(&name.provider, known) {
                    Some(near) => failure.with_hint(format!("did you mean {near}/{}?", name.model)),
                    None => failure.with_hint("[providers.NAME] in the configuration adds one"),
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

/// What to do about a failure of a model.
pub(crate) fn model_failure_hint(detail: &str) -> Option<String> {
    detail
        .contains("set the environment variable")
        .then(|| "the daemon was started without it: `brigade daemon stop`, then again".to_owned())
}
