//! A time limit for a whole call. An idle timeout does not end a provider that keeps sending a
//! little.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::time::{Instant, timeout_at};

use crate::error::{ModelError, ModelErrorKind};
use crate::model::{Model, ModelRequest, PartStream};

/// A model that ends calls after a total timeout.
#[derive(Clone, Debug)]
pub struct DeadlineModel {
    inner: Arc<dyn Model>,
    timeout: Duration,
}

impl DeadlineModel {
    pub fn wrap(inner: Arc<dyn Model>, timeout: Duration) -> Self {
        Self { inner, timeout }
    }
}

/// One call with its deadline.
struct TimedCall {
    parts: PartStream,
    deadline: Instant,
}

impl Model for DeadlineModel {
    fn call(&self, request: Arc<ModelRequest>) -> PartStream {
        let inner = self.inner.clone();
        let timeout = self.timeout;
        // The time starts with the first poll.
        let start =
            move || TimedCall { parts: inner.call(request), deadline: Instant::now() + timeout };
        let started = stream::once(async move { start() });
        Box::pin(started.flat_map(move |call| {
            stream::unfold(Some(call), move |call| async move {
                let mut call = call?;
                match timeout_at(call.deadline, call.parts.next()).await {
                    Ok(Some(part)) => Some((part, Some(call))),
                    Ok(None) => None,
                    Err(_) => Some((Err(timeout_error(timeout)), None)),
                }
            })
        }))
    }
}

fn timeout_error(timeout: Duration) -> ModelError {
    let text = format!("the reply was not complete after {} s", timeout.as_secs());
    ModelError::new(ModelErrorKind::Timeout, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ReplyPart, ToolSpec};

    /// A model that sends a word each second without end.
    #[derive(Debug)]
    struct Endless;

    impl Model for Endless {
        fn call(&self, _request: Arc<ModelRequest>) -> PartStream {
            Box::pin(stream::unfold((), |()| async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Some((Ok(ReplyPart::Text("and".to_owned())), ()))
            }))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_endless_call_ends_at_the_timeout() {
        let model = DeadlineModel::wrap(Arc::new(Endless), Duration::from_millis(2_500));
        let tools: Arc<[ToolSpec]> = Arc::new([]);
        let request = ModelRequest {
            agent: "A".into(),
            model: "m".into(),
            system: "".into(),
            messages: Vec::new(),
            tools,
            max_output: 1,
            temperature: None,
            effort: None,
        };
        let parts: Vec<_> = model.call(Arc::new(request)).collect().await;
        assert_eq!(parts.len(), 3);
        assert_eq!(parts[2].as_ref().map_err(|error| error.kind), Err(ModelErrorKind::Timeout));
    }
}
