//! The workflows.

use std::time::Duration;

use durare::{DurableContext, Error, Result};
use peers_harness::STEPS_PER_TASK;

/// The topic of all messages.
pub(crate) const TOPIC: &str = "inbox";

const A_DAY: Duration = Duration::from_secs(24 * 3600);

#[durare::workflow]
pub(crate) async fn do_nothing(_ctx: DurableContext, _input: ()) -> Result<()> {
    Ok(())
}

#[durare::workflow]
pub(crate) async fn record_steps(ctx: DurableContext, _input: ()) -> Result<u64> {
    let mut sum = 0;
    for _ in 0..STEPS_PER_TASK {
        sum += ctx.step("one", || async { Ok::<_, Error>(1_u64) }).await?;
    }
    Ok(sum)
}

/// Receives this number of messages and returns how many arrived.
#[durare::workflow]
pub(crate) async fn receive_messages(ctx: DurableContext, count: usize) -> Result<usize> {
    let mut received = 0;
    while received < count && ctx.recv::<usize>(TOPIC, A_DAY).await?.is_some() {
        received += 1;
    }
    Ok(received)
}
