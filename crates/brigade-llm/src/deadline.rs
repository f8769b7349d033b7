//! A bound on a whole call: a provider that sends a little now and then for ever is not alive.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::time::{Instant, timeout_at};

use crate::error::{ModelError, ModelErrorKind};
use crate::model::{Model, ModelRequest, PartStream};

/// Ends calls that take longer than this in all.
#[derive(Clone, Debug)]
pub struct DeadlineModel {
    inner: Arc<dyn Model>,
    timeout: Duration,
}

impl DeadlineModel {
    pub fn wrap(inner: Arc<dyn Model>, most: Duration) -> Self {
        Self { inner, timeout: most }
    }
}

/// One call, or nothing when it is over.
struct TimedCall {
    parts: PartStream,
    deadline: Instant,
}

impl Model for DeadlineModel {
    fn call(&self, request: Arc<ModelRequest>) -> PartStream {
        let (inner, most) = (self.inner.clone(), self.timeout);
        // The time begins when somebody listens.
        let begin =
            move || TimedCall { parts: inner.call(request), deadline: Instant::now() + most };
        let begun = stream::once(async move { begin() });
        Box::pin(begun.flat_map(move |calling| {
            stream::unfold(Some(calling), move |calling| async move {
                let mut calling = calling?;
                match timeout_at(calling.deadline, calling.parts.next()).await {
                    Ok(Some(part)) => Some((part, Some(calling))),
                    Ok(None) => None,
                    Err(_) => Some((Err(timeout_error(most)), None)),
                }
            })
        }))
    }
}

fn timeout_error(most: Duration) -> ModelError {
    let text = format!("the reply was not whole after {} s", most.as_secs());
    ModelError::new(ModelErrorKind::Timeout, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{ReplyPart, ToolSpec};

    /// Says a word each second, for ever.
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
    async fn a_call_that_never_ends_is_ended() {
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
