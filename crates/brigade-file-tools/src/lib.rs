//! The built-in tools: files of the working directory, read, written and searched.
//!
//! - [`workspace`]: the directory, and what the agent may do in it. `inside`: a path as rules and the
//!   kernel see it; `beneath`: opening one beneath the directory's handle.
//! - `read_file`, `list_files`, `search_files`: they only look; `walk`: what the last two go through,
//!   `ignoring`: what they pass over.
//! - `write_file`, `edit_file`: they replace a file in one step (`replace`); `edits`: what an edit does
//!   to a text; `protected`: where they do not write, `private_directory`: where no rule lets them.
//! - `watch`: how long a call may take; `words`: what a model is told.
//!
//! All of it is blocking work on tokio's pool. A call that is dropped stops at its next step, and
//! leaves a file as it was or as it was to be.

mod atomic_replace;
mod call_deadline;
mod confined_dir;
mod edit_file;
mod ignore_filter;
mod list_files;
mod private_directory;
mod protected_rules;
mod read_file;
mod rel_path;
mod render;
mod search_files;
mod text_edit;
mod walk;
mod working_directory;
mod write_file;

use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use brigade_llm::ToolSpec;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::call_deadline::CallDeadline;
use crate::edit_file::EditFile;
use crate::list_files::ListFiles;
pub use crate::private_directory::PrivateDirectory;
use crate::read_file::ReadFile;
use crate::search_files::SearchFiles;
pub use crate::working_directory::WorkingDirectory;
use crate::write_file::WriteFile;
use brigade_model::arguments::{read_arguments, schema_of};
use brigade_agent::tool::{
    BoxFuture, ExecutionHints, Tool, ToolError, ToolInvocation, ToolReply, ToolSubject,
};

/// The names of those that only look.
pub const READING_TOOLS: [&str; 3] = [ReadFile::NAME, ListFiles::NAME, SearchFiles::NAME];

/// The names of those that change files.
pub const WRITING_TOOLS: [&str; 2] = [WriteFile::NAME, EditFile::NAME];

/// Calls that work at once in this process; others wait their turn.
static CALL_PERMITS: Semaphore = Semaphore::const_new(32);

/// Made once: a schema is costly to make, and always the same.
static FILE_TOOL_SPECS: LazyLock<[ToolSpec; 5]> = LazyLock::new(|| {
    [
        spec::<ReadFile>(),
        spec::<ListFiles>(),
        spec::<SearchFiles>(),
        spec::<WriteFile>(),
        spec::<EditFile>(),
    ]
});

/// The five, for whoever works in this directory.
pub fn file_tools(workspace: WorkingDirectory) -> [Arc<dyn Tool>; 5] {
    let workspace = Arc::new(workspace);
    [
        bind_tool::<ReadFile>(&workspace, 0),
        bind_tool::<ListFiles>(&workspace, 1),
        bind_tool::<SearchFiles>(&workspace, 2),
        bind_tool::<WriteFile>(&workspace, 3),
        bind_tool::<EditFile>(&workspace, 4),
    ]
}

/// A file tool: its arguments, read by a strict schema, and what it does.
trait FileTool: DeserializeOwned + JsonSchema + Send + Sync + 'static {
    const NAME: &'static str;
    /// When to use it, and when not.
    const DESCRIPTION: &'static str;
    const HINTS: ExecutionHints;
    /// After which it says what it has.
    const TIMEOUT: Duration = Duration::from_secs(20);

    /// What a permission's pattern is held against.
    fn path(&self) -> &str;

    fn run(self, workspace: &WorkingDirectory, watch: &CallDeadline) -> Result<String, ToolError>;
}

fn spec<T: FileTool>() -> ToolSpec {
    ToolSpec {
        name: T::NAME.into(),
        description: T::DESCRIPTION.into(),
        parameters: Arc::new(Value::Object(schema_of::<T>())),
    }
}

fn bind_tool<T: FileTool>(workspace: &Arc<WorkingDirectory>, at: usize) -> Arc<dyn Tool> {
    Arc::new(BoundFileTool::<T> {
        workspace: workspace.clone(),
        spec_index: at,
        arguments: PhantomData,
    })
}

struct BoundFileTool<T> {
    workspace: Arc<WorkingDirectory>,
    /// Where its spec is.
    spec_index: usize,
    arguments: PhantomData<fn() -> T>,
}

impl<T: FileTool> Tool for BoundFileTool<T> {
    fn spec(&self) -> &ToolSpec {
        &FILE_TOOL_SPECS[self.spec_index]
    }

    fn hints(&self) -> ExecutionHints {
        T::HINTS
    }

    fn subject(&self, arguments: &Value) -> ToolSubject {
        match parse_file_arguments::<T>(arguments.clone()) {
            Ok(arguments) => self.workspace.subject(arguments.path()),
            // It is refused for another reason.
            Err(_) => ToolSubject::Nothing,
        }
    }

    fn acts_in(&self, _arguments: &Value) -> Option<String> {
        Some(self.workspace.directory().display().to_string())
    }

    fn call(&self, call: ToolInvocation) -> BoxFuture<'_, Result<ToolReply, ToolError>> {
        Box::pin(async move {
            let arguments = parse_file_arguments::<T>(call.arguments)?;
            let turn = CALL_PERMITS.acquire().await;
            let (watch, _wanted) = CallDeadline::start(T::TIMEOUT);
            let workspace = self.workspace.clone();
            let work = tokio::task::spawn_blocking(move || {
                // Kept by the work, not by who waits for it: what was given up still works.
                let _turn = turn;
                arguments.run(&workspace, &watch)
            });
            match work.await {
                Ok(done) => done.map(ToolReply::Text),
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => Err(ToolError::new("the program is ending")),
                },
            }
        })
    }
}

fn parse_file_arguments<T: FileTool>(arguments: Value) -> Result<T, ToolError> {
    match arguments {
        Value::Object(arguments) => read_arguments(arguments).map_err(ToolError),
        _ => Err(ToolError::new("the arguments must be a JSON object")),
    }
}

impl<T: FileTool> fmt::Debug for BoundFileTool<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let directory = self.workspace.directory();
        f.debug_struct(T::NAME).field("directory", &directory).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
