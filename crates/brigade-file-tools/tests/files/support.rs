//! A directory, and the tools in it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use brigade_file_tools::{WorkingDirectory, file_tools};
use brigade_agent::permission::{PermissionRule, PermissionRules, Permissions};
use brigade_agent::{Tool, ToolInvocation, ToolReply};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) struct Desk {
    folder: TempDir,
    tools: Vec<Arc<dyn Tool>>,
}

impl Desk {
    pub(crate) fn new() -> Self {
        Self::permitting(PermissionRules::all())
    }

    pub(crate) fn denying(rules: &[&str]) -> Self {
        Self::permitting(PermissionRules { deny: parsed(rules), ..PermissionRules::all() })
    }

    /// The tools work in `desk`; beside it is what they must not reach.
    pub(crate) fn permitting(rules: PermissionRules) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("desk")).unwrap();
        let permissions = Permissions::of("the operator", rules);
        let workspace = WorkingDirectory::new(folder.path().join("desk"), permissions);
        Self { tools: file_tools(workspace).into(), folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("desk").join(name)
    }

    pub(crate) fn outside(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn put(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    pub(crate) fn has(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// Everything in a folder, hidden files too.
    pub(crate) fn names(&self, folder: &str) -> Vec<String> {
        names(&self.path(folder))
    }

    pub(crate) fn tool(&self, name: &str) -> &Arc<dyn Tool> {
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
        let told = on_a_runtime(self.call(tool, arguments));
        told.unwrap_or_else(|error| panic!("{tool}: {error}"))
    }

    /// What a call fails with, which has all of these words in it.
    #[track_caller]
    pub(crate) fn fails(&self, tool: &str, arguments: Value, words: &[&str]) {
        let told = on_a_runtime(self.call(tool, arguments)).unwrap_err();
        for word in words {
            assert!(told.contains(word), "{word:?} is not in: {told}");
        }
    }
}

pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

pub(crate) fn parsed(rules: &[&str]) -> Vec<PermissionRule> {
    rules.iter().map(|rule| rule.parse().unwrap()).collect()
}

pub(crate) fn on_a_runtime<T>(future: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap().block_on(future)
}
