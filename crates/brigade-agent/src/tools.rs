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

mod beneath;
mod edit_file;
mod edits;
mod ignoring;
mod inside;
mod list_files;
mod private_directory;
mod protected;
mod read_file;
mod replace;
mod search_files;
mod walk;
mod watch;
mod words;
mod workspace;
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

use self::edit_file::EditFile;
use self::list_files::ListFiles;
pub use self::private_directory::PrivateDirectory;
use self::read_file::ReadFile;
use self::search_files::SearchFiles;
use self::watch::Watch;
pub use self::workspace::Workspace;
use self::write_file::WriteFile;
use crate::arguments::{read, schema_of};
use crate::tool::{BoxFuture, Call, Hints, Outcome, Subject, Tool, ToolError};

/// The names of those that only look.
pub const READING: [&str; 3] = [ReadFile::NAME, ListFiles::NAME, SearchFiles::NAME];

/// The names of those that change files.
pub const WRITING: [&str; 2] = [WriteFile::NAME, EditFile::NAME];

/// Calls that work at once in this process; others wait their turn.
static AT_ONCE: Semaphore = Semaphore::const_new(32);

/// Made once: a schema is costly to make, and always the same.
static SPECS: LazyLock<[ToolSpec; 5]> = LazyLock::new(|| {
    [
        spec::<ReadFile>(),
        spec::<ListFiles>(),
        spec::<SearchFiles>(),
        spec::<WriteFile>(),
        spec::<EditFile>(),
    ]
});

/// The five, for whoever works in this directory.
pub fn files(workspace: Workspace) -> [Arc<dyn Tool>; 5] {
    let workspace = Arc::new(workspace);
    [
        bound::<ReadFile>(&workspace, 0),
        bound::<ListFiles>(&workspace, 1),
        bound::<SearchFiles>(&workspace, 2),
        bound::<WriteFile>(&workspace, 3),
        bound::<EditFile>(&workspace, 4),
    ]
}

/// A file tool: its arguments, read by a strict schema, and what it does.
trait FileTool: DeserializeOwned + JsonSchema + Send + Sync + 'static {
    const NAME: &'static str;
    /// When to use it, and when not.
    const DESCRIPTION: &'static str;
    const HINTS: Hints;
    /// After which it says what it has.
    const PATIENCE: Duration = Duration::from_secs(20);

    /// What a permission's pattern is held against.
    fn path(&self) -> &str;

    fn run(self, workspace: &Workspace, watch: &Watch) -> Result<String, ToolError>;
}

fn spec<T: FileTool>() -> ToolSpec {
    ToolSpec {
        name: T::NAME.into(),
        description: T::DESCRIPTION.into(),
        parameters: Arc::new(Value::Object(schema_of::<T>())),
    }
}

fn bound<T: FileTool>(workspace: &Arc<Workspace>, at: usize) -> Arc<dyn Tool> {
    Arc::new(Bound::<T> { workspace: workspace.clone(), at, arguments: PhantomData })
}

struct Bound<T> {
    workspace: Arc<Workspace>,
    /// Where its spec is.
    at: usize,
    arguments: PhantomData<fn() -> T>,
}

impl<T: FileTool> Tool for Bound<T> {
    fn spec(&self) -> &ToolSpec {
        &SPECS[self.at]
    }

    fn hints(&self) -> Hints {
        T::HINTS
    }

    fn subject(&self, arguments: &Value) -> Subject {
        match parse::<T>(arguments.clone()) {
            Ok(arguments) => self.workspace.subject(arguments.path()),
            // It is refused for another reason.
            Err(_) => Subject::Nothing,
        }
    }

    fn acts_in(&self, _arguments: &Value) -> Option<String> {
        Some(self.workspace.directory().display().to_string())
    }

    fn call(&self, call: Call) -> BoxFuture<'_, Result<Outcome, ToolError>> {
        Box::pin(async move {
            let arguments = parse::<T>(call.arguments)?;
            let turn = AT_ONCE.acquire().await;
            let (watch, _wanted) = Watch::start(T::PATIENCE);
            let workspace = self.workspace.clone();
            let work = tokio::task::spawn_blocking(move || {
                // Kept by the work, not by who waits for it: what was given up still works.
                let _turn = turn;
                arguments.run(&workspace, &watch)
            });
            match work.await {
                Ok(done) => done.map(Outcome::Text),
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => Err(ToolError::new("the program is ending")),
                },
            }
        })
    }
}

fn parse<T: FileTool>(arguments: Value) -> Result<T, ToolError> {
    match arguments {
        Value::Object(arguments) => read(arguments).map_err(ToolError),
        _ => Err(ToolError::new("the arguments must be a JSON object")),
    }
}

impl<T: FileTool> fmt::Debug for Bound<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let directory = self.workspace.directory();
        f.debug_struct(T::NAME).field("directory", &directory).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
