//! Repeats a test with a crash at every commit.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;

use brigade_store::{MemoryStore, Store};

use crate::crash_store::{CrashStore, CutMode, CutPoint};

/// Runs a program once without a crash, and then with a crash at each of its commits, before and
/// after the commit is durable. Returns the number of crashes.
///
/// After each crash the program runs again on the same store, and must return the same. Use it
/// under paused time with [`TestRuntime::on_store`](crate::TestRuntime::on_store), and spawn tasks
/// with a key.
///
/// ```
/// use std::sync::Arc;
///
/// use brigade_runtime::{Job, JobContext, JobError};
/// use brigade_store::Store;
/// use brigade_testkit::{TestRuntime, cut_everywhere};
///
/// const BAKE: Job<u32, u32> = Job::new("bake");
///
/// async fn bake(ctx: JobContext, loaves: u32) -> Result<u32, JobError> {
///     ctx.step("knead", || async move { Ok::<_, JobError>(loaves * 2) }).await
/// }
///
/// async fn run(store: Arc<dyn Store>) -> u32 {
///     let test = TestRuntime::on_store(store, |builder| builder.job(BAKE, bake)).await;
///     let task = test.session.spawn(BAKE.with(2).key("order")).await.unwrap();
///     task.result().await.unwrap()
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// assert!(cut_everywhere(run).await >= 8);
/// # }
/// ```
///
/// # Panics
/// Panics if the program returns something else after a crash.
pub async fn cut_everywhere<T, F>(run: impl Fn(Arc<dyn Store>) -> F) -> usize
where
    F: Future<Output = T>,
    T: PartialEq + Debug,
{
    let uncut = CrashStore::new(Arc::new(MemoryStore::new()), None);
    let expected = run(uncut.clone()).await;
    let mut crashes = 0;
    for commit in 0..uncut.commits() {
        for durable in [false, true] {
            let cut = CutPoint { commit, durable, mode: CutMode::Crash };
            let memory: Arc<dyn Store> = Arc::new(MemoryStore::new());
            let store = CrashStore::new(memory.clone(), Some(cut));
            tokio::select! {
                biased;
                () = store.wait_crashed() => crashes += 1,
                result = run(store.clone()) => {
                    assert_eq!(result, expected, "before {cut:?}, which was not reached");
                }
            }
            assert_eq!(run(memory).await, expected, "after {cut:?}");
        }
    }
    crashes
}
