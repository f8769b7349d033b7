//! The definitions of a workspace and its user, loaded from files.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use brigade_model::suggestion::did_you_mean;
use brigade_model::truncate::truncate_chars;

use super::origin::{DefinitionDigest, DefinitionDir, DefinitionOrigin};
use super::{Definition, DefinitionError, front_matter};

const FILE_SIZE_MAX: u64 = 1024 * 1024;
/// The most files that are read of one directory.
const FILES_MAX: usize = 1000;
/// The most bytes that are read of one directory.
const FOLDER_SIZE_MAX: usize = 2 * 1024 * 1024;
/// The most entries of a directory that are listed.
const ENTRIES_MAX: usize = 10_000;

/// All valid definitions, and the problems of the others.
#[derive(Clone, Debug, Default)]
pub struct DefinitionSet {
    /// The definitions by the names that start them. If a file of the user and one of the workspace share
    /// a name, both are qualified by their origin: `user:reviewer`, `workspace:reviewer`.
    pub by_name: BTreeMap<String, LoadedDefinition>,
    pub problems: Vec<DefinitionError>,
    /// The problems of files by the names that the files were meant to define.
    faults_by_name: BTreeMap<String, DefinitionError>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct LoadedDefinition {
    pub definition: Arc<Definition>,
    pub origin: DefinitionOrigin,
    /// The file. `None` is a definition that was built in Rust.
    pub source: Option<DefinitionSource>,
}

/// The file of a definition, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DefinitionSource {
    pub file: PathBuf,
    pub digest: DefinitionDigest,
}

/// A definition's file with its whole text, for the operator who decides about trust.
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
    /// The file of this name defines nothing.
    #[error("{_0}")]
    Faulty(DefinitionError),
}

impl LoadedDefinition {
    /// Wraps a definition that was built in Rust.
    pub fn built(definition: Definition) -> Self {
        let definition = Arc::new(definition);
        Self { definition, origin: DefinitionOrigin::Program, source: None }
    }

    pub fn file(&self) -> Option<&Path> {
        self.source.as_ref().map(|source| source.file.as_path())
    }
}

impl DefinitionSet {
    /// Returns the directories with definitions: of the workspace, and of the user's configuration
    /// (`$XDG_CONFIG_HOME` or `~/.config`).
    pub fn directories(workspace: &Path, user_config: Option<&Path>) -> Vec<DefinitionDir> {
        let own = DefinitionDir::of_workspace(workspace);
        std::iter::once(own).chain(user_config.map(DefinitionDir::of_user)).collect()
    }

    /// Loads `*.md` of each directory. For two definitions of the same name and origin, the first
    /// directory takes precedence; those of different origins are both kept. An unreadable file does not
    /// hide the others. A missing directory is empty.
    pub fn load(folders: &[DefinitionDir]) -> Self {
        let mut definitions = Self::default();
        let mut by_plain_name: BTreeMap<String, Vec<LoadedDefinition>> = BTreeMap::new();
        for folder in folders {
            for ReadDefinition { definition, text } in definitions.read_folder(folder) {
                let namesakes = by_plain_name.entry(text.name).or_default();
                if namesakes.iter().all(|found| found.origin != folder.origin) {
                    namesakes.push(LoadedDefinition {
                        definition: Arc::new(definition),
                        origin: folder.origin,
                        source: Some(text.source),
                    });
                }
            }
        }
        for (name, namesakes) in by_plain_name {
            let is_only = namesakes.len() == 1;
            for found in namesakes {
                let key = if is_only { name.clone() } else { found.origin.qualify(&name) };
                definitions.by_name.insert(key, found);
            }
        }
        definitions
    }

    /// Reads the texts of all valid definitions of a directory. Trust in a definition covers its text.
    pub fn read_texts(folder: &DefinitionDir) -> Vec<DefinitionText> {
        let mut definitions = Self::default();
        definitions.read_folder(folder).into_iter().map(|read| read.text).collect()
    }

    /// Adds a definition that was built in Rust. It takes precedence over a file's.
    pub fn add(&mut self, definition: Definition) -> Result<(), DefinitionError> {
        definition.check()?;
        self.by_name.insert(definition.name.clone(), LoadedDefinition::built(definition));
        Ok(())
    }

    /// Adds a definition that was built in Rust, unless a file defines the same name.
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
        if let Some(fault) = self.faults_by_name.get(name) {
            return Err(DefinitionLookupError::Faulty(fault.clone()));
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
        Err(DefinitionLookupError::Unknown { name: truncate_chars(name, 100), hint })
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

    /// Returns an error for the first unknown name in `may_delegate_to`. Definitions may name each other
    /// in a cycle: limits bound the depth.
    pub fn unknown_delegate(&self, name: &str) -> Option<DefinitionError> {
        let found = self.find(name).ok()?;
        let mut named = found.definition.may_delegate_to.iter().flatten();
        let problem = named.find_map(|one| match self.find(one) {
            Err(DefinitionLookupError::Unknown { name, hint }) => {
                Some(format!("`{name}` is no agent definition{hint}"))
            }
            Err(DefinitionLookupError::Faulty(fault)) => {
                Some(format!("`{one}` cannot be used: {fault}"))
            }
            // The spawn must qualify an ambiguous name.
            Ok(_) | Err(DefinitionLookupError::Ambiguous { .. }) => None,
        });
        let error = DefinitionError {
            file: None,
            line: 0,
            field: Some("may_delegate_to".to_owned()),
            problem: problem?,
        };
        Some(match found.file() {
            Some(file) => error.with_file(file),
            None => error,
        })
    }

    /// Reads the valid definitions of a directory, and notes the problems of the others.
    fn read_folder(&mut self, folder: &DefinitionDir) -> Vec<ReadDefinition> {
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
        let mut file_of: BTreeMap<String, PathBuf> = BTreeMap::new();
        let mut read = Vec::new();
        let mut bytes = 0;
        for file in files {
            let text = match read_text(&folder.path, &file) {
                Ok(text) => text,
                Err(problem) => {
                    let fault = self.add_problem(&file, problem);
                    self.add_fault(folder, None, fault);
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
                    self.problems.push(problem.clone());
                    self.add_fault(folder, front_matter::find_name(&text), problem);
                    continue;
                }
            };
            let name = definition.name.clone();
            if let Some(first) = file_of.get(&name) {
                let first = first.display().to_string();
                self.add_problem(&file, format!("{name:?} is defined in {first} already"));
                continue;
            }
            file_of.insert(name.clone(), file.clone());
            let digest = DefinitionDigest::of(text.as_bytes());
            let source = DefinitionSource { file, digest };
            read.push(ReadDefinition { definition, text: DefinitionText { name, source, text } });
        }
        read
    }

    fn add_problem(&mut self, file: &Path, problem: impl Into<String>) -> DefinitionError {
        let problem = DefinitionError {
            file: Some(file.to_owned()),
            line: 0,
            field: None,
            problem: problem.into(),
        };
        self.problems.push(problem.clone());
        problem
    }

    /// Notes the fault of a file under the name in its text and the name of the file. The first
    /// fault of a name stays.
    fn add_fault(&mut self, folder: &DefinitionDir, name: Option<&str>, fault: DefinitionError) {
        let stem = fault.file.as_deref().and_then(Path::file_stem).and_then(|stem| stem.to_str());
        let names: Vec<String> = name.into_iter().chain(stem).map(str::to_owned).collect();
        for name in names {
            let qualified = folder.origin.qualify(&name);
            for key in [name, qualified] {
                self.faults_by_name.entry(key).or_insert_with(|| fault.clone());
            }
        }
    }
}

/// A definition and the text that it was parsed from.
struct ReadDefinition {
    definition: Definition,
    text: DefinitionText,
}

/// Lists the definition files of a directory in the order of their names, so that loading is
/// deterministic.
fn definition_files(folder: &DefinitionDir) -> Result<Vec<PathBuf>, String> {
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

/// Reads a file. Does not follow links out of the directory: a workspace is untrusted, and its links must
/// not show other files to a model.
fn read_text(directory: &Path, file: &Path) -> Result<String, String> {
    let render = |error: std::io::Error| error.to_string();
    let directory = directory.canonicalize().map_err(render)?;
    let file = file.canonicalize().map_err(render)?;
    if !file.starts_with(&directory) {
        return Err("it is a link that leads out of its directory".to_owned());
    }
    if !file.metadata().map_err(render)?.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let mut text = Vec::new();
    let opened = fs::File::open(&file).map_err(render)?;
    opened.take(FILE_SIZE_MAX + 1).read_to_end(&mut text).map_err(render)?;
    if text.len() as u64 > FILE_SIZE_MAX {
        return Err(format!("it is larger than {FILE_SIZE_MAX} bytes"));
    }
    String::from_utf8(text).map_err(|_| "it is not UTF-8".to_owned())
}
