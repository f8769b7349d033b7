//! The definitions of a workspace and its user.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brigade_llm::nearest::did_you_mean;

use super::{Definition, DefinitionError};

const FILE_SIZE_MAX: u64 = 1024 * 1024;
const FILES_MAX: usize = 1000;

/// All definitions that could be read, and what was wrong with the others.
#[derive(Clone, Debug, Default)]
pub struct Definitions {
    pub found: BTreeMap<String, Found>,
    pub problems: Vec<DefinitionError>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    pub definition: Arc<Definition>,
    /// None is one that was built in Rust.
    pub file: Option<PathBuf>,
}

/// There is no such definition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no agent definition {name:?}{hint}")]
pub struct NoSuchDefinition {
    pub name: String,
    pub hint: String,
}

impl Definitions {
    /// Where definitions are: in the workspace, whose win, then in the user's configuration
    /// (`$XDG_CONFIG_HOME` or `~/.config`).
    pub fn folders(workspace: &Path, user_config: Option<&Path>) -> Vec<PathBuf> {
        let own = workspace.join(".brigade").join("agents");
        let user = user_config.map(|config| config.join("brigade").join("agents"));
        std::iter::once(own).chain(user).collect()
    }

    /// Reads `*.md` of each folder. Of two with the same name the first folder's wins. A file that
    /// cannot be read does not hide the others; a folder that is not there has none.
    pub fn load(folders: &[PathBuf]) -> Self {
        let mut definitions = Self::default();
        let mut left = FILES_MAX;
        for folder in folders {
            let mut files = match files(folder) {
                Ok(files) => files,
                Err(problem) => {
                    definitions.problem(folder, problem);
                    continue;
                }
            };
            if files.len() > left {
                let problem = format!("more than {FILES_MAX} definitions; the rest is not read");
                definitions.problem(folder, problem);
                files.truncate(left);
            }
            left -= files.len();
            definitions.add_folder(folder, files);
        }
        definitions
    }

    /// Adds one that was built in Rust. It wins over a file's.
    pub fn add(&mut self, definition: Definition) -> Result<(), DefinitionError> {
        definition.check()?;
        let name = definition.name.clone();
        self.found.insert(name, Found { definition: Arc::new(definition), file: None });
        Ok(())
    }

    pub fn find(&self, name: &str) -> Result<&Arc<Definition>, NoSuchDefinition> {
        if let Some(found) = self.found.get(name) {
            return Ok(&found.definition);
        }
        let known = || self.found.keys().map(String::as_str);
        let near = did_you_mean(name, known());
        let hint = match (near.is_empty(), self.found.is_empty()) {
            (false, _) => near,
            (true, true) => "; there are none".to_owned(),
            (true, false) => {
                format!("; there are {}", known().take(20).collect::<Vec<_>>().join(", "))
            }
        };
        Err(NoSuchDefinition { name: name.chars().take(100).collect(), hint })
    }

    /// Names that a definition may delegate to, and that nobody has defined. Definitions may well name
    /// each other in a circle: how deep that goes is for limits to say.
    pub fn unknown_delegate(&self, name: &str) -> Option<DefinitionError> {
        let Found { definition, file } = self.found.get(name)?;
        let mut named = definition.may_delegate_to.iter().flatten();
        let missing = named.find(|one| !self.found.contains_key(*one))?;
        let hint = self.find(missing).err().map(|missing| missing.hint).unwrap_or_default();
        let error = DefinitionError {
            file: None,
            line: 0,
            field: Some("may_delegate_to".to_owned()),
            problem: format!("`{missing}` is no agent definition{hint}"),
        };
        Some(match file {
            Some(file) => error.in_file(file),
            None => error,
        })
    }

    fn add_folder(&mut self, folder: &Path, files: Vec<PathBuf>) {
        let mut here: BTreeMap<String, PathBuf> = BTreeMap::new();
        for file in files {
            let text = match read(folder, &file) {
                Ok(text) => text,
                Err(problem) => {
                    self.problem(&file, problem);
                    continue;
                }
            };
            let definition = match Definition::parse(&file, &text) {
                Ok(definition) => definition,
                Err(problem) => {
                    self.problems.push(problem);
                    continue;
                }
            };
            let name = definition.name.clone();
            if let Some(first) = here.get(&name) {
                let first = first.display().to_string();
                self.problem(&file, format!("{name:?} is defined in {first} already"));
                continue;
            }
            here.insert(name.clone(), file.clone());
            let found = Found { definition: Arc::new(definition), file: Some(file) };
            self.found.entry(name).or_insert(found);
        }
    }

    fn problem(&mut self, file: &Path, problem: impl Into<String>) {
        self.problems.push(DefinitionError {
            file: Some(file.to_owned()),
            line: 0,
            field: None,
            problem: problem.into(),
        });
    }
}

/// In the order of their names, so that the same folder always reads the same.
fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.to_string()),
    };
    let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
    let is_definition = |path: &PathBuf| path.extension().is_some_and(|end| end == "md");
    let mut files: Vec<PathBuf> = paths.filter(is_definition).collect();
    files.sort();
    Ok(files)
}

/// A link that leads out of the folder is not followed: a workspace is other people's text, and
/// what it points at is not theirs to show to a model.
fn read(folder: &Path, file: &Path) -> Result<String, String> {
    let told = |error: std::io::Error| error.to_string();
    let folder = folder.canonicalize().map_err(told)?;
    let file = file.canonicalize().map_err(told)?;
    if !file.starts_with(&folder) {
        return Err("it is a link that leads out of its folder".to_owned());
    }
    if !file.metadata().map_err(told)?.is_file() {
        return Err("it is no file".to_owned());
    }
    let mut text = Vec::new();
    let opened = fs::File::open(&file).map_err(told)?;
    opened.take(FILE_SIZE_MAX + 1).read_to_end(&mut text).map_err(told)?;
    if text.len() as u64 > FILE_SIZE_MAX {
        return Err(format!("it is larger than {FILE_SIZE_MAX} bytes"));
    }
    String::from_utf8(text).map_err(|_| "it is not UTF-8".to_owned())
}
