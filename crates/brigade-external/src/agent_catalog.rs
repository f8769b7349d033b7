//! The agent programs that definitions can name: built-in ones, and those of the user's adapter
//! files.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use brigade_model::suggestion::did_you_mean;
use thiserror::Error;

use crate::adapter::AdapterFault;
use crate::agent_file::parse_agent_file;
use crate::built_in::parse_built_in_agents;
use crate::external_agent::ExternalAgent;

const FILE_SIZE_MAX: u64 = 256 * 1024;
/// The most files that are read.
const FILES_MAX: usize = 200;

/// The built-in programs. A file of theirs with a fault fails the tests.
static BUILT_IN: LazyLock<Vec<Arc<dyn ExternalAgent>>> =
    LazyLock::new(|| parse_built_in_agents().unwrap_or_default());

/// All agent programs, and the faults of files that describe none.
#[derive(Clone, Debug, Default)]
pub struct AgentCatalog {
    by_name: BTreeMap<String, CatalogEntry>,
    faults: Vec<AdapterFileFault>,
}

/// An agent program, and the file that describes it.
#[derive(Clone, Debug)]
pub struct CatalogEntry {
    pub agent: Arc<dyn ExternalAgent>,
    /// The user's file. `None` is a built-in program.
    pub file: Option<PathBuf>,
}

/// A fault of an adapter file of the user.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}: {fault}", file.display())]
pub struct AdapterFileFault {
    pub file: PathBuf,
    /// The program that the file was meant for: its field `name`, or the name of the file.
    pub name: String,
    pub fault: AdapterFault,
}

/// The reason why a name leads to no agent program.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AgentLookupError {
    #[error("there is no agent program {name:?}{hint}")]
    Unknown { name: String, hint: String },
    #[error("the agent program {:?} cannot be used: {_0}", _0.name)]
    Faulty(AdapterFileFault),
}

impl AgentCatalog {
    /// Loads the built-in programs, then `*.toml` of the user's folder. A file replaces the built-in
    /// program of the same name, also if the file is faulty. A missing folder is empty.
    pub fn load(user_folder: Option<&Path>) -> Self {
        let mut catalog = Self::default();
        for agent in BUILT_IN.iter() {
            catalog.insert(agent.clone(), None);
        }
        if let Some(folder) = user_folder {
            catalog.load_folder(folder);
        }
        catalog
    }

    pub fn find(&self, name: &str) -> Result<&CatalogEntry, AgentLookupError> {
        if let Some(fault) = self.faults.iter().find(|fault| fault.name == name) {
            return Err(AgentLookupError::Faulty(fault.clone()));
        }
        self.by_name.get(name).ok_or_else(|| {
            let known = || self.by_name.keys().map(String::as_str);
            let near = did_you_mean(name, known());
            let hint = match near.is_empty() {
                true => format!("; there are {}", known().collect::<Vec<_>>().join(", ")),
                false => near,
            };
            AgentLookupError::Unknown { name: name.to_owned(), hint }
        })
    }

    /// Returns the programs in the order of their names.
    pub fn entries(&self) -> impl Iterator<Item = &CatalogEntry> {
        self.by_name.values()
    }

    pub fn faults(&self) -> &[AdapterFileFault] {
        &self.faults
    }

    fn insert(&mut self, agent: Arc<dyn ExternalAgent>, file: Option<PathBuf>) {
        self.by_name.insert(agent.name().to_owned(), CatalogEntry { agent, file });
    }

    fn load_folder(&mut self, folder: &Path) {
        let files = match list_files(folder) {
            Ok(files) => files,
            Err(problem) => return self.add_fault(folder, None, file_fault(problem)),
        };
        for file in files {
            match read_file(&file) {
                Ok(text) => self.load_text(&file, &text),
                Err(problem) => self.add_fault(&file, None, file_fault(problem)),
            }
        }
    }

    fn load_text(&mut self, file: &Path, text: &str) {
        let agent = match parse_agent_file(text) {
            Ok(agent) => agent,
            Err(fault) => return self.add_fault(file, Some(text), fault),
        };
        let earlier = self.by_name.get(agent.name()).and_then(|entry| entry.file.as_ref());
        match earlier {
            Some(earlier) => {
                let problem = format!("{:?} is described in {}", agent.name(), earlier.display());
                let fault = AdapterFault { field: "name".to_owned(), problem };
                self.add_fault(file, None, fault);
            }
            None => self.insert(agent, Some(file.to_owned())),
        }
    }

    /// Notes a fault. A program that the file was meant to describe cannot be used.
    fn add_fault(&mut self, file: &Path, text: Option<&str>, fault: AdapterFault) {
        let table = text.and_then(|text| text.parse::<toml::Table>().ok());
        let name = table.and_then(|table| Some(table.get("name")?.as_str()?.to_owned()));
        let stem = || file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let name = name.unwrap_or_else(stem);
        if self.by_name.get(&name).is_some_and(|entry| entry.file.is_none()) {
            self.by_name.remove(&name);
        }
        self.faults.push(AdapterFileFault { file: file.to_owned(), name, fault });
    }
}

fn file_fault(problem: String) -> AdapterFault {
    AdapterFault { field: ".".to_owned(), problem }
}

/// Lists the adapter files in the order of their names.
fn list_files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.to_string()),
    };
    let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
    let is_adapter = |path: &PathBuf| path.extension().is_some_and(|end| end == "toml");
    let mut files: Vec<PathBuf> = paths.filter(is_adapter).take(FILES_MAX).collect();
    files.sort();
    Ok(files)
}

fn read_file(file: &Path) -> Result<String, String> {
    let render = |error: std::io::Error| error.to_string();
    if !file.metadata().map_err(render)?.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let mut text = Vec::new();
    let opened = fs::File::open(file).map_err(render)?;
    opened.take(FILE_SIZE_MAX + 1).read_to_end(&mut text).map_err(render)?;
    if text.len() as u64 > FILE_SIZE_MAX {
        return Err(format!("it is larger than {FILE_SIZE_MAX} bytes"));
    }
    String::from_utf8(text).map_err(|_| "it is not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::external_agent::ProgramProtocol;

    const COOK: &str = r#"
        name = "cook"
        title = "Cook"
        format = "json_lines"
        program = "cook"
        start = ["run", "{access}", "{prompt}"]
        resume = ["run", "{access}", "--session", "{session_id}", "{prompt}"]
        session_id = "reported"
        prompt = "argument"
        closing = "event"
        [access]
        full = []
        [[events]]
        match = { type = "end" }
        session = { id = "session" }
        closed = { success = { status = "ok" } }
    "#;

    fn names(catalog: &AgentCatalog) -> Vec<&str> {
        catalog.entries().map(|entry| entry.agent.name()).collect()
    }

    #[test]
    fn the_built_in_programs_are_found_by_name() {
        let catalog = AgentCatalog::load(None);
        for name in ["claude", "codex", "gemini", "opencode", "qwen"] {
            assert!(catalog.find(name).is_ok(), "{name}");
            let over_acp = catalog.find(&format!("{name}-acp")).unwrap();
            assert_eq!(over_acp.agent.protocol(), ProgramProtocol::Acp);
            assert!(over_acp.agent.login().is_some(), "{name}-acp");
        }
        assert_eq!(catalog.faults(), []);
        assert_eq!(catalog.find("codex").unwrap().agent.title(), "Codex");
        let error = catalog.find("claud").unwrap_err().to_string();
        assert_eq!(error, "there is no agent program \"claud\"; did you mean `claude`?");
        let error = catalog.find("zzz").unwrap_err().to_string();
        assert!(error.contains("; there are claude, claude-acp, codex, "), "{error}");
    }

    #[test]
    fn a_file_of_the_user_adds_or_replaces_a_program() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        write("cook.toml", COOK);
        write("mine.toml", &COOK.replace("\"cook\"", "\"codex\"").replace("\"Cook\"", "\"Mine\""));
        write("notes.txt", "no adapter");
        let catalog = AgentCatalog::load(Some(dir.path()));
        assert!(names(&catalog).contains(&"cook"));
        let codex = catalog.find("codex").unwrap();
        assert_eq!(codex.agent.title(), "Mine");
        assert_eq!(codex.file, Some(dir.path().join("mine.toml")));
        assert!(AgentCatalog::load(Some(&dir.path().join("none"))).faults().is_empty());
    }

    #[test]
    fn a_faulty_file_is_named_with_its_field_and_hides_the_built_in_program() {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        write("1.toml", &COOK.replace("\"cook\"", "\"codex\"").replace("\"event\"", "\"evnt\""));
        write("2.toml", COOK);
        write("3.toml", COOK);
        write("claude.toml", "name = ");
        write("gemini.toml", &"#".repeat(FILE_SIZE_MAX as usize + 1));
        fs::create_dir(dir.path().join("qwen.toml")).unwrap();
        let catalog = AgentCatalog::load(Some(dir.path()));
        let is_adapter = |name: &&&str| !name.ends_with("-acp");
        let names: Vec<_> = names(&catalog).iter().filter(is_adapter).copied().collect();
        assert_eq!(names, ["cook", "opencode"]);
        let path = |name: &str| dir.path().join(name).display().to_string();
        for (name, file, problem) in [
            ("codex", "1.toml", "closing: unknown variant"),
            ("claude", "claude.toml", ".: "),
            ("gemini", "gemini.toml", ".: it is larger than"),
            ("qwen", "qwen.toml", ".: it is not a regular file"),
        ] {
            let error = catalog.find(name).unwrap_err().to_string();
            let file = path(file);
            let expect = format!("the agent program {name:?} cannot be used: {file}: {problem}");
            assert!(error.starts_with(&expect), "{error}\n{expect}");
        }
        let twice = catalog.faults().iter().find(|fault| fault.file.ends_with("3.toml")).unwrap();
        let expect = format!("name: \"cook\" is described in {}", path("2.toml"));
        assert_eq!(twice.fault.to_string(), expect);
        assert!(catalog.find("cook").is_ok(), "the second file changes nothing");
    }
}
