//! A runtime with processes, in its own state directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use brigade_model::outcome::{EndConfirmation, Failure, Outcome};
use brigade_process::{ProcessOutput, ShimRecord};
use brigade_runtime::{ProcessOptions, ProcessReport, Runtime, Session, TaskHandle};
use brigade_store::{MemoryStore, Store};
use tempfile::TempDir;

pub(crate) struct Kitchen {
    pub(crate) dir: TempDir,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) runtime: Runtime,
    pub(crate) session: Session,
}

pub(crate) async fn kitchen() -> Kitchen {
    let dir = tempfile::tempdir().unwrap();
    open(dir, Arc::new(MemoryStore::new())).await
}

async fn open(dir: TempDir, store: Arc<dyn Store>) -> Kitchen {
    open_with(dir, store, |options| options).await
}

async fn open_with(
    dir: TempDir,
    store: Arc<dyn Store>,
    with: impl FnOnce(ProcessOptions) -> ProcessOptions,
) -> Kitchen {
    let runtime = Runtime::builder()
        .shared_store(store.clone())
        .processes(with(ProcessOptions::new(dir.path())))
        .start()
        .await
        .unwrap();
    let session = runtime.session("kitchen").await.unwrap();
    Kitchen { dir, store, runtime, session }
}

impl Kitchen {
    /// Shuts the runtime down while its processes continue, and starts another one.
    pub(crate) async fn reopened(self) -> Self {
        self.reopened_after(|_| {}).await
    }

    /// Restarts the runtime with other options.
    pub(crate) async fn reopened_with(
        self,
        with: impl FnOnce(ProcessOptions) -> ProcessOptions,
    ) -> Self {
        drop(self.session);
        self.runtime.shutdown().await.unwrap();
        open_with(self.dir, self.store, with).await
    }

    /// Restarts the runtime, and changes the state directory in between.
    pub(crate) async fn reopened_after(self, meanwhile: impl FnOnce(&Path)) -> Self {
        drop(self.session);
        self.runtime.shutdown().await.unwrap();
        meanwhile(self.dir.path());
        open(self.dir, self.store).await
    }

    pub(crate) async fn task<T>(&self, task: &TaskHandle<T>) -> Outcome {
        let mut run_results = self.session.wait_all([task.no()]).await.unwrap();
        Outcome::clone(&run_results.pop().unwrap().outcome)
    }

    /// Returns the directory of the only execution.
    pub(crate) fn execution_dir(&self) -> PathBuf {
        only_execution_dir(self.dir.path())
    }
}

pub(crate) fn only_execution_dir(dir: &Path) -> PathBuf {
    let only = |path: &Path| {
        let mut entries = fs::read_dir(path).unwrap();
        let first = entries.next().unwrap().unwrap().path();
        assert!(entries.next().is_none(), "more than one in {}", path.display());
        first
    };
    only(&only(&dir.join("processes")))
}

pub(crate) fn record(execution_dir: &Path) -> ShimRecord {
    ShimRecord::read_from(&fs::File::open(execution_dir.join("claim")).unwrap()).unwrap()
}

pub(crate) fn report(outcome: &Outcome) -> ProcessReport {
    match outcome {
        Outcome::Succeeded { result } => result.decode().unwrap(),
        Outcome::Failed(failed) => match &failed.partial {
            Some(partial) => partial.decode().unwrap(),
            None => panic!("{outcome} has no report"),
        },
        Outcome::Cancelled(_) => panic!("{outcome:?} has no report"),
    }
}

#[track_caller]
pub(crate) fn lost(outcome: &Outcome) -> (String, EndConfirmation) {
    let Outcome::Failed(failed) = outcome else { panic!("{outcome:?}") };
    let Failure::Lost { evidence, .. } = &failed.failure else { panic!("{outcome:?}") };
    (evidence.to_string(), failed.confirmation.clone())
}

/// Polls until a condition holds. Fails if it never does.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "{what} never happened");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Polls until the process has printed this.
pub(crate) async fn until_output<T>(task: &TaskHandle<T>, text: &str) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        let output: ProcessOutput = task.output().await.unwrap();
        let tail = output.tail_text(4096).unwrap();
        if tail.contains(text) {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{text:?} was not printed, but {tail:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns the processes with this text in their environment or command line.
pub(crate) fn processes_with(text: &str) -> Vec<u32> {
    let all = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| *pid != std::process::id() && bears(*pid, text)).collect()
}

fn bears(pid: u32, text: &str) -> bool {
    ["environ", "cmdline"].iter().any(|file| {
        let bytes = fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    })
}

/// Returns the mark in the environment of this session's processes.
pub(crate) fn task_mark(kitchen: &Kitchen) -> String {
    format!("BRIGADE_SHIM={}.", kitchen.session.id())
}
