//! Functions that decide pending approvals and execute client tool calls.

use std::fmt::Display;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use brigade_model::approval::ApprovalVerdict;
use brigade_model::outcome::panic_message;
use futures_util::FutureExt;
use futures_util::stream::{self, Stream, StreamExt};
#[cfg(feature = "agents")]
use serde::Serialize;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::ResultStream;
use crate::approvals::PendingApproval;
use crate::session::Session;
#[cfg(feature = "agents")]
use crate::streams::pending_calls::PendingClientCall;

/// The pause after a read that failed.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// A registered function. Dropping the guard ends it, and drops its calls in progress.
#[derive(Debug)]
#[must_use = "the function is registered until the guard is dropped"]
pub struct HandlerGuard {
    _running: AbortOnDropHandle<()>,
}

impl Session {
    /// Calls a function for each approval that this caller may decide, pending or new, until the
    /// guard is dropped. Its verdict counts for exactly the call that it got.
    ///
    /// Several calls run at once. A function that fails or panics decides nothing: that is logged,
    /// and the approval stays pending.
    ///
    #[cfg_attr(feature = "agents", doc = include_str!("on_approval_example.md"))]
    pub fn on_approval<F, Fut, E>(&self, decide: F) -> HandlerGuard
    where
        F: Fn(PendingApproval) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<ApprovalVerdict, E>> + Send + 'static,
        E: Display + Send + 'static,
    {
        let session = self.clone();
        let decide = Arc::new(decide);
        run_handler(self.approval_stream(), move |waiting| {
            let session = session.clone();
            let decide = decide.clone();
            async move {
                let task = waiting.task;
                let call = waiting.call;
                let shown = waiting.digest();
                let verdict = match run_caught(async { decide(waiting).await }).await {
                    Ok(verdict) => verdict,
                    Err(problem) => {
                        tracing::warn!(%task, call = call.0, problem, "an approval was not decided");
                        return;
                    }
                };
                if let Err(refusal) = session.approve_shown(task, Some(call), shown, verdict).await
                {
                    tracing::warn!(%task, call = call.0, %refusal, "a verdict was refused");
                }
            }
        })
    }

    /// Calls a function for each client tool call of this caller's tasks, pending or new, until the
    /// guard is dropped. Its result goes to the agent: text as it is, other results as JSON.
    ///
    /// Several calls run at once. A function that fails or panics returns nothing: that is logged,
    /// and the call stays pending. A call may be executed again after a crash.
    ///
    #[cfg_attr(feature = "agents", doc = include_str!("on_client_call_example.md"))]
    #[cfg(feature = "agents")]
    pub fn on_client_call<F, Fut, R, E>(&self, execute: F) -> HandlerGuard
    where
        F: Fn(PendingClientCall) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<R, E>> + Send + 'static,
        R: Serialize + Send + 'static,
        E: Display + Send + 'static,
    {
        let session = self.clone();
        let execute = Arc::new(execute);
        run_handler(self.client_calls(), move |waiting| {
            let session = session.clone();
            let execute = execute.clone();
            async move {
                let task = waiting.task;
                let call = waiting.call;
                let result = match run_caught(async { execute(waiting).await }).await {
                    Ok(result) => result,
                    Err(problem) => {
                        tracing::warn!(%task, call = call.0, problem, "a client tool call failed");
                        return;
                    }
                };
                if let Err(refusal) = session.complete_client_call(task, call, result).await {
                    tracing::warn!(%task, call = call.0, %refusal, "a client tool result was refused");
                }
            }
        })
    }
}

/// Calls a function for each item in a task of its own.
fn run_handler<C, F, Fut>(calls: ResultStream<C>, handle: F) -> HandlerGuard
where
    C: Send + 'static,
    F: FnMut(C) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let running = skip_errors(calls).for_each_concurrent(None, handle);
    HandlerGuard { _running: AbortOnDropHandle::new(TaskTracker::new().spawn(running)) }
}

/// Logs errors, and continues after a pause.
fn skip_errors<C: Send + 'static>(calls: ResultStream<C>) -> impl Stream<Item = C> + Send {
    stream::unfold(calls, |mut calls| async move {
        loop {
            match calls.next().await? {
                Ok(call) => return Some((call, calls)),
                Err(refusal) => {
                    tracing::warn!(%refusal, "pending calls cannot be read");
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
    })
}

/// Runs a function of the program. Returns its error or its panic as text.
async fn run_caught<R, E: Display>(
    running: impl Future<Output = Result<R, E>>,
) -> Result<R, String> {
    match AssertUnwindSafe(running).catch_unwind().await {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(panic) => Err(format!("it panicked: {}", panic_message(&*panic))),
    }
}
