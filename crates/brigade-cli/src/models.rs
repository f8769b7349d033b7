//! Which models there are here: those of the providers, and scripts.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use brigade_agent::definition::Definitions;
use brigade_llm::nearest::most_like;
use brigade_llm::{KeySource, Model, ModelName, ProviderKind, Script, Scripted};
use brigade_model::refusal::Refusal;
use brigade_runtime::AgentOptions;
use brigade_runtime::agents::{ChosenModel, ModelSource, OneModel, Providers};

use crate::config::Config;
use crate::exit::Failure;

/// How the name of a model begins that plays a script, which is the file after it.
const SCRIPT: &str = "script:";
const DEMO: &str = "`brigade demo` shows agents without any key";

/// What the daemon's agents are made of.
pub(crate) fn options(config: &Config) -> Result<AgentOptions, Failure> {
    let mut providers = Providers::new().prices(config.prices.clone());
    for (name, options) in &config.providers {
        providers = providers.provider(name, options.clone());
    }
    let options = AgentOptions::new(Models { providers, scripts: Mutex::default() });
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

fn folders(directory: Option<&Path>) -> Vec<PathBuf> {
    let user = Config::folder();
    match directory {
        Some(directory) => Definitions::folders(directory, user.as_deref()),
        None => user.map(|user| user.join("brigade/agents")).into_iter().collect(),
    }
}

#[derive(Debug)]
struct Models {
    providers: Providers,
    /// By their files. How often a fault was played is kept with them, until the file is changed.
    scripts: Mutex<HashMap<PathBuf, Playing>>,
}

#[derive(Debug)]
struct Playing {
    changed: Option<SystemTime>,
    model: Arc<dyn Model>,
}

impl ModelSource for Models {
    fn find(&self, name: &str) -> Result<ChosenModel, Refusal> {
        let Some(path) = name.strip_prefix(SCRIPT) else { return self.providers.find(name) };
        let mut scripts = self.scripts.lock().unwrap_or_else(PoisonError::into_inner);
        let path = PathBuf::from(path);
        let changed = path.metadata().and_then(|found| found.modified()).ok();
        let model = match scripts.get(&path) {
            Some(playing) if playing.changed == changed => playing.model.clone(),
            _ => {
                let script = Script::load(&path);
                let script = script.map_err(|error| Refusal::invalid(error.to_string()))?;
                let model: Arc<dyn Model> = Arc::new(Scripted::new(script));
                scripts.insert(path, Playing { changed, model: model.clone() });
                model
            }
        };
        OneModel(model).find(name)
    }

    fn ready(&self, name: &str) -> Result<(), Refusal> {
        if name.starts_with(SCRIPT) { Ok(()) } else { self.providers.ready(name) }
    }
}

/// A model as the daemon finds it, which is at home in another directory.
pub(crate) fn absolute(model: &str) -> Result<String, Failure> {
    let Some(path) = model.strip_prefix(SCRIPT) else { return Ok(model.to_owned()) };
    let path = std::path::absolute(path).map_err(|_| Failure::usage("the script has no name"))?;
    Ok(format!("{SCRIPT}{}", path.display()))
}

/// Says what an agent with this model would miss.
pub(crate) fn check(model: Option<&str>, config: &Config) -> Result<(), Failure> {
    let Some(model) = model else {
        return Err(Failure::usage("no model is set")
            .hint("say --model PROVIDER/MODEL, or set `model` in the configuration")
            .and_hint(DEMO.to_owned()));
    };
    if let Some(path) = model.strip_prefix(SCRIPT) {
        let there = Path::new(path).is_file();
        return if there {
            Ok(())
        } else {
            Err(Failure::usage(format!("there is no script {path}")))
        };
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
