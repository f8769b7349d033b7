//! A runtime that runs commands, in a folder of its own.

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
    pub(crate) folder: TempDir,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) runtime: Runtime,
    pub(crate) session: Session,
}

pub(crate) async fn kitchen() -> Kitchen {
    let folder = tempfile::tempdir().unwrap();
    open(folder, Arc::new(MemoryStore::new())).await
}

async fn open(folder: TempDir, store: Arc<dyn Store>) -> Kitchen {
    open_with(folder, store, |options| options).await
}

async fn open_with(
    folder: TempDir,
    store: Arc<dyn Store>,
    with: impl FnOnce(ProcessOptions) -> ProcessOptions,
) -> Kitchen {
    let runtime = Runtime::builder()
        .shared_store(store.clone())
        .processes(with(ProcessOptions::new(folder.path())))
        .start()
        .await
        .unwrap();
    let session = runtime.session("kitchen").await.unwrap();
    Kitchen { folder, store, runtime, session }
}

impl Kitchen {
    /// The runtime leaves without a word to its commands, and another takes over.
    pub(crate) async fn reopened(self) -> Self {
        self.reopened_after(|_| {}).await
    }

    /// The same, where the next one has other options.
    pub(crate) async fn reopened_with(
        self,
        with: impl FnOnce(ProcessOptions) -> ProcessOptions,
    ) -> Self {
        drop(self.session);
        self.runtime.shutdown().await.unwrap();
        open_with(self.folder, self.store, with).await
    }

    /// The same, with something done to the folder in between.
    pub(crate) async fn reopened_after(self, meanwhile: impl FnOnce(&Path)) -> Self {
        drop(self.session);
        self.runtime.shutdown().await.unwrap();
        meanwhile(self.folder.path());
        open(self.folder, self.store).await
    }

    pub(crate) async fn task(&self, task: &TaskHandle) -> Outcome {
        let mut endings = self.session.wait_all([task.no().into()]).await.unwrap();
        Outcome::clone(&endings.pop().unwrap().outcome)
    }

    /// The directory of the only execution there is.
    pub(crate) fn place(&self) -> PathBuf {
        only_place(self.folder.path())
    }
}

pub(crate) fn only_place(folder: &Path) -> PathBuf {
    let only = |path: &Path| {
        let mut entries = fs::read_dir(path).unwrap();
        let first = entries.next().unwrap().unwrap().path();
        assert!(entries.next().is_none(), "more than one in {}", path.display());
        first
    };
    only(&only(&folder.join("processes")))
}

pub(crate) fn record(place: &Path) -> ShimRecord {
    ShimRecord::read_from(&fs::File::open(place.join("claim")).unwrap()).unwrap()
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

/// Until something holds. The test has failed if it never does.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(tokio::time::Instant::now() < deadline, "{what} never happened");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Until the command has said this.
pub(crate) async fn said(task: &TaskHandle, text: &str) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        let output: ProcessOutput = task.output().await.unwrap();
        let tail = output.tail_text(4096).unwrap();
        if tail.contains(text) {
            return;
        }
        assert!(tokio::time::Instant::now() < deadline, "{text:?} was never said, but {tail:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Processes that bear this text in their environment or command line.
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

/// What the processes of this session bear in their environment.
pub(crate) fn task_mark(kitchen: &Kitchen) -> String {
    format!("BRIGADE_SHIM={}.", kitchen.session.id())
}
