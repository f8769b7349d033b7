//! Tasks on SQLite.

use std::future::Future;

use brigade::{Job, JobContext, JobError, RecoveryPolicy, Runtime, Session, SqliteStore};
use futures_util::future::try_join_all;
use peers_harness::{BoxError, IN_FLIGHT, Measured, STEPS_PER_TASK, Stopwatch};
use tempfile::TempDir;

const NOTHING: Job<(), ()> = Job::new("nothing").recovery(RecoveryPolicy::resume_max_crashes(1));
const STEPS: Job<(), u64> = Job::new("steps").recovery(RecoveryPolicy::resume_max_crashes(1));

pub(crate) async fn spawn_to_collected(count: usize) -> Result<Measured, BoxError> {
    let store = SqliteSession::open().await?;
    let session = &store.session;
    let watch = Stopwatch::start();
    run_in_flight(count, || async {
        session.spawn(NOTHING.with(())).await?.result().await?;
        Ok(())
    })
    .await?;
    Ok(watch.stop().into())
}

pub(crate) async fn five_steps(count: usize) -> Result<Measured, BoxError> {
    let store = SqliteSession::open().await?;
    let session = &store.session;
    let watch = Stopwatch::start();
    run_in_flight(count, || async {
        let sum = session.spawn(STEPS.with(())).await?.result().await?;
        assert_eq!(sum, STEPS_PER_TASK as u64);
        Ok(())
    })
    .await?;
    Ok(watch.stop().into())
}

/// A session in a file that is removed at the end.
struct SqliteSession {
    session: Session,
    _runtime: Runtime,
    _dir: TempDir,
}

impl SqliteSession {
    async fn open() -> Result<Self, BoxError> {
        let dir = tempfile::tempdir()?;
        let store = SqliteStore::open(dir.path().join("peers.db"))?;
        let builder = Runtime::builder().store(store).job(NOTHING, do_nothing);
        let runtime = builder.job(STEPS, record_steps).start().await?;
        let session = runtime.session("peers").await?;
        Ok(Self { session, _runtime: runtime, _dir: dir })
    }
}

async fn do_nothing(_ctx: JobContext, (): ()) -> Result<(), JobError> {
    Ok(())
}

async fn record_steps(ctx: JobContext, (): ()) -> Result<u64, JobError> {
    let mut sum = 0;
    for _ in 0..STEPS_PER_TASK {
        sum += ctx.step("one", || async { Ok::<_, JobError>(1_u64) }).await?;
    }
    Ok(sum)
}

/// Runs COUNT futures, with a fixed number of them at any time.
async fn run_in_flight<F, Fut>(count: usize, run: F) -> Result<(), BoxError>
where
    F: Fn() -> Fut,
    Fut: Future<Output = Result<(), BoxError>>,
{
    let lanes = (0..IN_FLIGHT).map(|lane| {
        let run = &run;
        async move {
            for _ in (lane..count).step_by(IN_FLIGHT) {
                run().await?;
            }
            Ok::<_, BoxError>(())
        }
    });
    try_join_all(lanes).await?;
    Ok(())
}
