//! Messages to one task.

use brigade::{JobContext, JobError, NewTask, TaskRef};
use peers_harness::{BATCH_TASKS, BoxError, Measured, Stopwatch};

use crate::memory_runtime::start_runtime;

/// Sends messages in batches. The task takes all that have arrived at a time, and ends when it has
/// received all of them.
pub(crate) async fn to_one_task(count: usize) -> Result<Measured, BoxError> {
    let (_runtime, session) = start_runtime().await?;
    let receiver = NewTask::closure("receiver", move |ctx: JobContext| async move {
        let mut received = 0;
        while received < count {
            received += ctx.receive_all().await?.len();
        }
        Ok::<_, JobError>(received)
    });
    let receiver = session.spawn(receiver).await?;
    let to = TaskRef::from(receiver.no());
    let watch = Stopwatch::start();
    let numbers: Vec<usize> = (0..count).collect();
    for batch in numbers.chunks(BATCH_TASKS) {
        session.send_all(batch.iter().map(|n| (to.clone(), *n))).await?;
    }
    let received = receiver.result().await?;
    let sample = watch.stop();
    assert_eq!(received, count);
    Ok(sample.into())
}
