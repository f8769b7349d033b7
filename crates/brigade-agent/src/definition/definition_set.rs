//! The definitions of a workspace and its user.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brigade_llm::suggestion::did_you_mean;

use super::origin::{DefinitionDigest, DefinitionFolder, DefinitionOrigin};
use super::{Definition, DefinitionError};

const FILE_SIZE_MAX: u64 = 1024 * 1024;
/// Files of each folder, so that a folder full of them hides no other.
const FILES_MAX: usize = 1000;
/// Bytes of each folder.
const FOLDER_SIZE_MAX: usize = 2 * 1024 * 1024;
/// Entries of a folder that are looked at.
const ENTRIES_MAX: usize = 10_000;

/// All definitions that could be read, and what was wrong with the others.
#[derive(Clone, Debug, Default)]
pub struct DefinitionSet {
    /// By the names that they are run by. Where a file of the user's and one of the workspace have the
    /// same name, both are here with their origin: `user:reviewer`, `workspace:reviewer`.
    pub by_name: BTreeMap<String, LoadedDefinition>,
    pub problems: Vec<DefinitionError>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct LoadedDefinition {
    pub definition: Arc<Definition>,
    pub origin: DefinitionOrigin,
    /// None is one that was built in Rust.
    pub source: Option<DefinitionSource>,
}

/// The file of a definition, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionSource {
    pub file: PathBuf,
    pub digest: DefinitionDigest,
}

/// A definition's file and all of its text, for whoever is to judge it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionText {
    pub name: String,
    pub source: DefinitionSource,
    pub text: String,
}

/// The reason why a name leads to no definition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefinitionLookupError {
    #[error("there is no agent definition {name:?}{hint}")]
    Unknown { name: String, hint: String },
    #[error(
        "there are two agent definitions {name:?}: name `user:{name}` ({user}) or `workspace:{name}` \
         ({workspace})"
    )]
    Ambiguous { name: String, user: String, workspace: String },
}

impl LoadedDefinition {
    /// One that was built in Rust.
    pub fn built(definition: Definition) -> Self {
        let definition = Arc::new(definition);
        Self { definition, origin: DefinitionOrigin::Program, source: None }
    }

    pub fn file(&self) -> Option<&Path> {
        self.source.as_ref().map(|source| source.file.as_path())
    }
}

impl DefinitionSet {
    /// Where definitions are: in the workspace and in the user's configuration (`$XDG_CONFIG_HOME` or
    /// `~/.config`).
    pub fn folders(workspace: &Path, user_config: Option<&Path>) -> Vec<DefinitionFolder> {
        let own = DefinitionFolder::of_workspace(workspace);
        std::iter::once(own).chain(user_config.map(DefinitionFolder::of_user)).collect()
    }

    /// Reads `*.md` of each folder. Neither of two with the same name hides the other, unless both are of
    /// the same origin: then the first folder's wins. A file that cannot be read does not hide the others;
    /// a folder that is not there has none.
    pub fn load(folders: &[DefinitionFolder]) -> Self {
        let mut definitions = Self::default();
        let mut named: BTreeMap<String, Vec<LoadedDefinition>> = BTreeMap::new();
        for folder in folders {
            for (definition, DefinitionText { name, source, .. }) in definitions.read_folder(folder)
            {
                let alike = named.entry(name).or_default();
                if alike.iter().all(|found| found.origin != folder.origin) {
                    let (definition, origin) = (Arc::new(definition), folder.origin);
                    alike.push(LoadedDefinition { definition, origin, source: Some(source) });
                }
            }
        }
        for (name, alike) in named {
            let is_only = alike.len() == 1;
            for found in alike {
                let key = if is_only { name.clone() } else { found.origin.qualify(&name) };
                definitions.by_name.insert(key, found);
            }
        }
        definitions
    }

    /// The definitions of a folder with their texts: all of what is trusted when they are.
    pub fn read_texts(folder: &DefinitionFolder) -> Vec<DefinitionText> {
        let mut definitions = Self::default();
        definitions.read_folder(folder).into_iter().map(|(_, text)| text).collect()
    }

    /// Adds one that was built in Rust. It wins over a file's.
    pub fn add(&mut self, definition: Definition) -> Result<(), DefinitionError> {
        definition.check()?;
        self.by_name.insert(definition.name.clone(), LoadedDefinition::built(definition));
        Ok(())
    }

    /// Adds one that was built in Rust and that a file of the same name replaces.
    pub fn add_default(&mut self, definition: Definition) {
        let name = definition.name.clone();
        if self.find_ambiguity(&name).is_none() {
            self.by_name.entry(name).or_insert_with(|| LoadedDefinition::built(definition));
        }
    }

    pub fn find(&self, name: &str) -> Result<&LoadedDefinition, DefinitionLookupError> {
        let found = self.by_name.get(name).or_else(|| {
            let (_, own) = name.split_once(':')?;
            self.by_name.get(own).filter(|found| found.origin.qualify(own) == name)
        });
        if let Some(found) = found {
            return Ok(found);
        }
        if let Some(ambiguous) = self.find_ambiguity(name) {
            return Err(ambiguous);
        }
        let known = || self.by_name.keys().map(String::as_str);
        let near = did_you_mean(name, known());
        let hint = match (near.is_empty(), self.by_name.is_empty()) {
            (false, _) => near,
            (true, true) => "; there are none".to_owned(),
            (true, false) => {
                format!("; there are {}", known().take(20).collect::<Vec<_>>().join(", "))
            }
        };
        Err(DefinitionLookupError::Unknown { name: name.chars().take(100).collect(), hint })
    }

    fn find_ambiguity(&self, name: &str) -> Option<DefinitionLookupError> {
        let shown = |origin: DefinitionOrigin| {
            let file = self.by_name.get(&origin.qualify(name))?.file()?;
            Some(file.display().to_string())
        };
        let user = shown(DefinitionOrigin::User)?;
        let workspace = shown(DefinitionOrigin::Workspace)?;
        let is_plain = self.by_name.contains_key(name);
        let name = name.to_owned();
        (!is_plain).then_some(DefinitionLookupError::Ambiguous { name, user, workspace })
    }

    /// Names that a definition may delegate to, and that nobody has defined. Definitions may well name
    /// each other in a circle: how deep that goes is for limits to say.
    pub fn unknown_delegate(&self, name: &str) -> Option<DefinitionError> {
        let found = self.find(name).ok()?;
        let mut named = found.definition.may_delegate_to.iter().flatten();
        let hint = named.find_map(|one| match self.find(one) {
            Err(DefinitionLookupError::Unknown { name, hint }) => Some((name, hint)),
            // Whoever starts it says which one is meant.
            Ok(_) | Err(DefinitionLookupError::Ambiguous { .. }) => None,
        });
        let (missing, hint) = hint?;
        let error = DefinitionError {
            file: None,
            line: 0,
            field: Some("may_delegate_to".to_owned()),
            problem: format!("`{missing}` is no agent definition{hint}"),
        };
        Some(match found.file() {
            Some(file) => error.with_file(file),
            None => error,
        })
    }

    /// The definitions of a folder; what is wrong with the others is noted.
    fn read_folder(&mut self, folder: &DefinitionFolder) -> Vec<(Definition, DefinitionText)> {
        let mut files = match definition_files(folder) {
            Ok(files) => files,
            Err(problem) => {
                self.add_problem(&folder.path, problem);
                return Vec::new();
            }
        };
        if files.len() > FILES_MAX {
            let problem = format!("more than {FILES_MAX} definitions; the rest is not read");
            self.add_problem(&folder.path, problem);
            files.truncate(FILES_MAX);
        }
        let mut here: BTreeMap<String, PathBuf> = BTreeMap::new();
        let mut read = Vec::new();
        let mut bytes = 0;
        for file in files {
            let text = match read_text(&folder.path, &file) {
                Ok(text) => text,
                Err(problem) => {
                    self.add_problem(&file, problem);
                    continue;
                }
            };
            bytes += text.len();
            if bytes > FOLDER_SIZE_MAX {
                let problem = format!("more than {FOLDER_SIZE_MAX} bytes; the rest is not read");
                self.add_problem(&folder.path, problem);
                break;
            }
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
                self.add_problem(&file, format!("{name:?} is defined in {first} already"));
                continue;
            }
            here.insert(name.clone(), file.clone());
            let digest = DefinitionDigest::of(text.as_bytes());
            let source = DefinitionSource { file, digest };
            read.push((definition, DefinitionText { name, source, text }));
        }
        read
    }

    fn add_problem(&mut self, file: &Path, problem: impl Into<String>) {
        self.problems.push(DefinitionError {
            file: Some(file.to_owned()),
            line: 0,
            field: None,
            problem: problem.into(),
        });
    }
}

/// In the order of their names, so that the same folder always reads the same.
fn definition_files(folder: &DefinitionFolder) -> Result<Vec<PathBuf>, String> {
    let entries = match fs::read_dir(&folder.path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.to_string()),
    };
    if let Some(within) = &folder.within {
        let real = |path: &Path| path.canonicalize().map_err(|error| error.to_string());
        if !real(&folder.path)?.starts_with(real(within)?) {
            return Err("it is a link that leads out of its directory".to_owned());
        }
    }
    let entries = entries.take(ENTRIES_MAX);
    let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
    let is_definition = |path: &PathBuf| path.extension().is_some_and(|end| end == "md");
    let mut files: Vec<PathBuf> = paths.filter(is_definition).collect();
    files.sort();
    Ok(files)
}

/// A link that leads out of the folder is not followed: a workspace is other people's text, and
/// what it points at is not theirs to show to a model.
fn read_text(folder: &Path, file: &Path) -> Result<String, String> {
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
