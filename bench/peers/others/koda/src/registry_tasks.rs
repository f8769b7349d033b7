//! Tasks in the registry of background agents. They follow the protocol of koda's own background
//! agents: reserve, spawn, attach, and a status at each transition.

use std::future::Future;
use std::sync::Arc;

use koda_core::bg_agent::{AgentStatus, BgAgentRegistry, BgStatusEmitter};
use peers_harness::BoxError;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

/// A task of the registry.
#[derive(Clone, Debug)]
pub(crate) struct RegistryTask {
    pub(crate) id: u32,
    pub(crate) cancel: CancellationToken,
}

/// Spawns a task below a token. The future of `body` is the work of the task.
pub(crate) fn spawn<F, Fut>(
    registry: &Arc<BgAgentRegistry>,
    parent: Option<&RegistryTask>,
    body: F,
) -> RegistryTask
where
    F: FnOnce(CancellationToken) -> Fut,
    Fut: Future<Output = ()> + Send + 'static,
{
    let spawner = parent.map(|parent| parent.id);
    let slot = match parent {
        Some(parent) => registry.reserve(&parent.cancel, spawner),
        None => registry.reserve(&CancellationToken::new(), None),
    };
    let emitter = BgStatusEmitter::new(slot.task_id, spawner, slot.status_tx, registry.clone());
    let work = body(slot.cancel.clone());
    let result = slot.tx;
    let handle = Handle::current().spawn(async move {
        emitter.send(AgentStatus::Running { iter: 0 });
        work.await;
        emitter.send(AgentStatus::Completed { summary: "Done.".to_owned() });
        let _ = result.send(Ok(("Done.".to_owned(), Vec::new())));
    });
    let task = RegistryTask { id: slot.task_id, cancel: slot.cancel.clone() };
    let name = "task";
    let prompt = "Do nothing.";
    registry.attach(task.id, name, prompt, slot.rx, slot.cancel, slot.status_rx, spawner, handle);
    task
}

/// Collects results until this number of tasks has ended, as the inference loop does.
pub(crate) async fn collect(registry: &BgAgentRegistry, count: usize) -> Result<(), BoxError> {
    let mut collected = 0;
    while collected < count {
        tokio::task::yield_now().await;
        collected += registry.drain_completed().len();
        registry.drain_status_events();
    }
    Ok(())
}
