//! The built-in tools that read, write and search the files of the working directory.
//!
//! - `working_directory`: the directory and the agent's permissions in it; `rel_path`: a path as
//!   rules and the kernel see it; `confined_dir`: opens paths beneath the directory's handle.
//! - `read_file`, `list_files`, `search_files`: the reading tools; `walk`: the traversal of the
//!   last two, `ignore_filter`: the files that it skips.
//! - `write_file`, `edit_file`: the writing tools; `atomic_replace`: replaces a file in one step;
//!   `text_edit`: applies edits to a text; `protected_rules`: directories that need a rule to be
//!   written, `private_directory`: directories that no rule opens.
//! - `call_deadline`: timeout and cancellation of a call; `render`: texts for the model.
//!
//! All work blocks and runs on tokio's blocking pool. A dropped call stops at its next step. It
//! leaves a file either unchanged or completely written.

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
use brigade_agent::tool::{
    BoxFuture, ExecutionHints, Tool, ToolError, ToolHandler, ToolInvocation, ToolReply, ToolSubject,
};
use brigade_model::arguments::{read_arguments, schema_of};

/// The names of the tools that only read.
pub const READING_TOOLS: [&str; 3] = [ReadFile::NAME, ListFiles::NAME, SearchFiles::NAME];

/// The names of the tools that change files.
pub const WRITING_TOOLS: [&str; 2] = [WriteFile::NAME, EditFile::NAME];

/// The permits of concurrent calls in this process; further calls wait.
static CALL_PERMITS: Semaphore = Semaphore::const_new(32);

/// The specs, built once: a schema is costly to build and never changes.
static FILE_TOOL_SPECS: LazyLock<[ToolSpec; 5]> = LazyLock::new(|| {
    [
        spec::<ReadFile>(),
        spec::<ListFiles>(),
        spec::<SearchFiles>(),
        spec::<WriteFile>(),
        spec::<EditFile>(),
    ]
});

/// Returns the five tools for this working directory.
pub fn file_tools(working_dir: WorkingDirectory) -> [Tool; 5] {
    let working_dir = Arc::new(working_dir);
    [
        bind_tool::<ReadFile>(&working_dir, 0),
        bind_tool::<ListFiles>(&working_dir, 1),
        bind_tool::<SearchFiles>(&working_dir, 2),
        bind_tool::<WriteFile>(&working_dir, 3),
        bind_tool::<EditFile>(&working_dir, 4),
    ]
}

/// A file tool: its arguments, parsed with a strict schema, and its behaviour.
trait FileTool: DeserializeOwned + JsonSchema + Send + Sync + 'static {
    const NAME: &'static str;
    /// The description for a model: when to use the tool and when not.
    const DESCRIPTION: &'static str;
    const HINTS: ExecutionHints;
    /// The time after which a call returns what it has so far.
    const TIMEOUT: Duration = Duration::from_secs(20);

    /// Returns the path that permission patterns are matched against.
    fn path(&self) -> &str;

    fn run(
        self,
        working_dir: &WorkingDirectory,
        deadline: &CallDeadline,
    ) -> Result<String, ToolError>;
}

fn spec<T: FileTool>() -> ToolSpec {
    ToolSpec {
        name: T::NAME.into(),
        description: T::DESCRIPTION.into(),
        parameters: Arc::new(Value::Object(schema_of::<T>())),
    }
}

fn bind_tool<T: FileTool>(working_dir: &Arc<WorkingDirectory>, spec_index: usize) -> Tool {
    Tool::new(BoundFileTool::<T> {
        working_dir: working_dir.clone(),
        spec_index,
        arguments: PhantomData,
    })
}

struct BoundFileTool<T> {
    working_dir: Arc<WorkingDirectory>,
    /// The index in `FILE_TOOL_SPECS`.
    spec_index: usize,
    arguments: PhantomData<fn() -> T>,
}

impl<T: FileTool> ToolHandler for BoundFileTool<T> {
    fn spec(&self) -> &ToolSpec {
        &FILE_TOOL_SPECS[self.spec_index]
    }

    fn hints(&self) -> ExecutionHints {
        T::HINTS
    }

    fn subject(&self, arguments: &Value) -> ToolSubject {
        match parse_file_arguments::<T>(arguments.clone()) {
            Ok(arguments) => self.working_dir.subject(arguments.path()),
            // The call is refused because of its arguments.
            Err(_) => ToolSubject::Nothing,
        }
    }

    fn acts_in(&self, _arguments: &Value) -> Option<String> {
        Some(self.working_dir.directory().display().to_string())
    }

    fn call(&self, call: ToolInvocation) -> BoxFuture<'_, Result<ToolReply, ToolError>> {
        Box::pin(async move {
            let arguments = parse_file_arguments::<T>(call.arguments)?;
            let permit = CALL_PERMITS.acquire().await;
            let (deadline, _cancel_on_drop) = CallDeadline::start(T::TIMEOUT);
            let working_dir = self.working_dir.clone();
            let work = tokio::task::spawn_blocking(move || {
                // The work holds the permit, not its waiter: abandoned work still runs.
                let _permit = permit;
                arguments.run(&working_dir, &deadline)
            });
            match work.await {
                Ok(result) => result.map(ToolReply::Text),
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => Err(ToolError::new("the runtime is shutting down")),
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
        let directory = self.working_dir.directory();
        f.debug_struct(T::NAME).field("directory", &directory).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
