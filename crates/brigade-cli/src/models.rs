//! Which models there are here: those of the providers, scripts and recordings.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use brigade_agent::definition::{DefinitionFolder, Definitions};
use brigade_llm::nearest::most_like;
use brigade_llm::{KeySource, Model, ModelName, ProviderKind, Recorder, Replay, Script, Scripted};
use brigade_model::refusal::Refusal;
use brigade_runtime::AgentOptions;
use brigade_runtime::agents::{ChosenModel, ModelSource, OneModel, Providers};

use crate::config::Config;
use crate::exit::Failure;

/// How the name of a model begins that plays a script, which is the file after it.
const SCRIPT: &str = "script:";
/// The same for one that says again what was recorded in a file.
const REPLAY: &str = "replay:";
/// `record:MODEL=/FILE`: the model, with all that it is asked and says written to the file.
const RECORD: &str = "record:";
const DEMO: &str = "`brigade demo` shows agents without any key";

/// What the daemon's agents are made of.
pub(crate) fn options(config: &Config) -> Result<AgentOptions, Failure> {
    let mut providers = Providers::new().prices(config.prices.clone());
    for (name, options) in &config.providers {
        providers = providers.provider(name, options.clone());
    }
    let (played, recorders) = Default::default();
    let options = AgentOptions::new(Models { providers, played, recorders });
    let mut options = options.definition_folders(folders);
    for (name, server) in &config.mcp_servers {
        let added = options.mcp_server(name, server.clone());
        options = added.map_err(|error| Failure::usage(error.to_string()))?;
    }
    Ok(match &config.model {
        Some(model) => options.model(model),
        None => options,
    })
}

/// The variables that hold keys of providers.
pub(crate) fn key_variables(config: &Config) -> Vec<String> {
    let known = ProviderKind::all().filter_map(ProviderKind::key_variable).map(str::to_owned);
    let configured = config.providers.values().filter_map(|options| match &options.key {
        KeySource::Env(variable) => Some(variable.clone()),
        KeySource::File(_) | KeySource::None => None,
    });
    known.chain(configured).collect()
}

fn folders(directory: Option<&Path>) -> Vec<DefinitionFolder> {
    let user = Config::folder();
    match directory {
        Some(directory) => Definitions::folders(directory, user.as_deref()),
        None => user.as_deref().map(DefinitionFolder::of_user).into_iter().collect(),
    }
}

#[derive(Debug)]
struct Models {
    providers: Providers,
    /// Scripts and recordings by their names. How often what was played is kept with them, until the
    /// file is changed.
    played: Mutex<HashMap<String, Playing>>,
    /// By their files.
    recorders: Mutex<HashMap<PathBuf, Recorder>>,
}

/// A model as its name says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named<'a> {
    Script(&'a Path),
    Replay(&'a Path),
    Recorded { model: &'a str, file: &'a Path },
    OfProvider(&'a str),
}

impl<'a> Named<'a> {
    fn of(name: &'a str) -> Self {
        if let Some(path) = name.strip_prefix(SCRIPT) {
            return Self::Script(Path::new(path));
        }
        if let Some(path) = name.strip_prefix(REPLAY) {
            return Self::Replay(Path::new(path));
        }
        let recorded = name.strip_prefix(RECORD).and_then(|rest| {
            let at = rest.find("=/")?;
            Some(Self::Recorded { model: &rest[..at], file: Path::new(&rest[at + 1..]) })
        });
        recorded.unwrap_or(Self::OfProvider(name))
    }
}

#[derive(Debug)]
struct Playing {
    changed: Option<SystemTime>,
    model: Arc<dyn Model>,
}

impl ModelSource for Models {
    fn find(&self, name: &str) -> Result<ChosenModel, Refusal> {
        match Named::of(name) {
            Named::OfProvider(name) => self.providers.find(name),
            Named::Script(path) => {
                let play = |script| into_model(Scripted::new(script).with_retry());
                let load = || Script::load(path).map(play);
                OneModel(self.played(name, path, || load().map_err(unusable))?).find(name)
            }
            Named::Replay(path) => {
                let load = || Replay::load(path).map(into_model);
                OneModel(self.played(name, path, || load().map_err(unusable))?).find(name)
            }
            Named::Recorded { model, file } => {
                let found = self.find(model)?;
                Ok(ChosenModel { model: self.recorder(file)?.over(found.model), ..found })
            }
        }
    }

    fn ready(&self, name: &str) -> Result<(), Refusal> {
        match Named::of(name) {
            Named::Script(_) | Named::Replay(_) => Ok(()),
            Named::Recorded { model, .. } => self.ready(model),
            Named::OfProvider(name) => self.providers.ready(name),
        }
    }

    fn is_file(&self, name: &str) -> bool {
        !matches!(Named::of(name), Named::OfProvider(_))
    }
}

fn into_model(model: impl Model) -> Arc<dyn Model> {
    Arc::new(model)
}

fn unusable(error: impl std::error::Error) -> Refusal {
    Refusal::invalid(error.to_string())
}

impl Models {
    /// What plays a file, as long as that stays as it is.
    fn played(
        &self,
        name: &str,
        path: &Path,
        load: impl FnOnce() -> Result<Arc<dyn Model>, Refusal>,
    ) -> Result<Arc<dyn Model>, Refusal> {
        let mut played = self.played.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = path.metadata().and_then(|found| found.modified()).ok();
        match played.get(name) {
            Some(playing) if playing.changed == changed => Ok(playing.model.clone()),
            _ => {
                let model = load()?;
                played.insert(name.to_owned(), Playing { changed, model: model.clone() });
                Ok(model)
            }
        }
    }

    fn recorder(&self, file: &Path) -> Result<Recorder, Refusal> {
        let mut recorders = self.recorders.lock().unwrap_or_else(PoisonError::into_inner);
        // One that was taken away is begun anew.
        if let Some(recorder) = recorders.get(file).filter(|_| file.exists()) {
            return Ok(recorder.clone());
        }
        let recorder = Recorder::open(file).map_err(unusable)?;
        recorders.insert(file.to_owned(), recorder.clone());
        Ok(recorder)
    }
}

/// A model as the daemon finds it, which is at home in another directory.
pub(crate) fn absolute(model: &str) -> Result<String, Failure> {
    let (prefix, path) = match Named::of(model) {
        Named::Script(path) => (SCRIPT, path),
        Named::Replay(path) => (REPLAY, path),
        Named::Recorded { .. } | Named::OfProvider(_) => return Ok(model.to_owned()),
    };
    let path = std::path::absolute(path).map_err(|_| Failure::usage("the file has no name"))?;
    Ok(format!("{prefix}{}", path.display()))
}

/// The model, with what it is asked and says written to a file.
pub(crate) fn recorded(model: &str, file: &Path) -> Result<String, Failure> {
    let model = absolute(model)?;
    let file = std::path::absolute(file).map_err(|_| Failure::usage("the file has no name"))?;
    Ok(format!("{RECORD}{model}={}", file.display()))
}

/// Says what an agent with this model would miss.
pub(crate) fn check(model: Option<&str>, config: &Config) -> Result<(), Failure> {
    let Some(model) = model else {
        return Err(Failure::usage("no model is set")
            .hint("say --model PROVIDER/MODEL, or set `model` in the configuration")
            .and_hint(DEMO.to_owned()));
    };
    match Named::of(model) {
        Named::Recorded { model, .. } => return check(Some(model), config),
        Named::Script(path) if !path.is_file() => {
            return Err(Failure::usage(format!("there is no script {}", path.display())));
        }
        Named::Replay(path) if !path.is_file() => {
            return Err(Failure::usage(format!("there is no recording {}", path.display())));
        }
        Named::Script(_) | Named::Replay(_) => return Ok(()),
        Named::OfProvider(_) => {}
    }
    let name: ModelName = model.parse().map_err(|error| Failure::usage(format!("{error}")))?;
    let key = match config.providers.get(&*name.provider) {
        Some(options) => options.key.clone(),
        None => {
            let kind: ProviderKind = name.provider.parse().map_err(|error| {
                let failure = Failure::usage(format!("{error}"));
                let known = ProviderKind::all().map(|kind| -> &str { kind.name() });
                let known = known.chain(config.providers.keys().map(String::as_str));
                match most_like(&name.provider, known) {
                    Some(near) => failure.hint(format!("did you mean {near}/{}?", name.model)),
                    None => failure.hint("[providers.NAME] in the configuration adds one"),
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
            Err(Failure::usage(problem).hint(DEMO))
        }
        KeySource::File(path) if !path.exists() => {
            let problem = format!("there is no key for {}: {}", name.provider, path.display());
            Err(Failure::usage(problem).hint(DEMO))
        }
        _ => Ok(()),
    }
}

/// What to do about a failure of a model.
pub(crate) fn hint(detail: &str) -> Option<String> {
    detail
        .contains("set the environment variable")
        .then(|| "the daemon was started without it: `brigade daemon stop`, then again".to_owned())
}
