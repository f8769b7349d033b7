//! A temporary directory with the file tools.

use std::path::{Path, PathBuf};

use brigade_agent::permission::{PermissionRule, PermissionRules, Permissions};
use brigade_agent::{Tool, ToolInvocation, ToolReply};
use brigade_file_tools::{WorkingDirectory, file_tools};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) struct TestDirectory {
    directory: TempDir,
    tools: Vec<Tool>,
}

impl TestDirectory {
    pub(crate) fn new() -> Self {
        Self::permitting(PermissionRules::all())
    }

    pub(crate) fn denying(rules: &[&str]) -> Self {
        Self::permitting(PermissionRules { deny: parsed(rules), ..PermissionRules::all() })
    }

    /// The tools work in `work`; files beside it must be out of their reach.
    pub(crate) fn permitting(rules: PermissionRules) -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("work")).unwrap();
        let permissions = Permissions::of("the operator", rules);
        let working_dir = WorkingDirectory::new(directory.path().join("work"), permissions);
        Self { tools: file_tools(working_dir).into(), directory }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("work").join(name)
    }

    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    pub(crate) fn content(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Returns all names in a directory, hidden files included.
    pub(crate) fn names(&self, directory: &str) -> Vec<String> {
        names(&self.path(directory))
    }

    pub(crate) fn tool(&self, name: &str) -> &Tool {
        self.tools.iter().find(|tool| &*tool.spec().name == name).unwrap()
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Result<String, String> {
        match self.tool(tool).call(ToolInvocation::standalone(arguments)).await {
            Ok(ToolReply::Text(text)) => Ok(text),
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[track_caller]
    pub(crate) fn ok(&self, tool: &str, arguments: Value) -> String {
        let reply = block_on(self.call(tool, arguments));
        reply.unwrap_or_else(|error| panic!("{tool}: {error}"))
    }

    /// Asserts that a call fails with an error that contains all these texts.
    #[track_caller]
    pub(crate) fn fails(&self, tool: &str, arguments: Value, texts: &[&str]) {
        let error = block_on(self.call(tool, arguments)).unwrap_err();
        for text in texts {
            assert!(error.contains(text), "{text:?} is not in: {error}");
        }
    }
}

pub(crate) fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

pub(crate) fn parsed(rules: &[&str]) -> Vec<PermissionRule> {
    rules.iter().map(|rule| rule.parse().unwrap()).collect()
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(future)
}
