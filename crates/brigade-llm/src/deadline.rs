//! A bound on a whole call: a provider that sends a little now and then for ever is not alive.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::time::{Instant, timeout_at};

use crate::error::{ErrorKind, ModelError};
use crate::model::{Model, PartStream, Request};

/// Ends calls that take longer than this in all.
#[derive(Clone, Debug)]
pub struct Deadline {
    inner: Arc<dyn Model>,
    most: Duration,
}

impl Deadline {
    pub fn over(inner: Arc<dyn Model>, most: Duration) -> Self {
        Self { inner, most }
    }
}

/// One call, or nothing when it is over.
struct Calling {
    parts: PartStream,
    until: Instant,
}

impl Model for Deadline {
    fn call(&self, request: Arc<Request>) -> PartStream {
        let (inner, most) = (self.inner.clone(), self.most);
        // The time begins when somebody listens.
        let begin = move || Calling { parts: inner.call(request), until: Instant::now() + most };
        let begun = stream::once(async move { begin() });
        Box::pin(begun.flat_map(move |calling| {
            stream::unfold(Some(calling), move |calling| async move {
                let mut calling = calling?;
                match timeout_at(calling.until, calling.parts.next()).await {
                    Ok(Some(part)) => Some((part, Some(calling))),
                    Ok(None) => None,
                    Err(_) => Some((Err(took_too_long(most)), None)),
                }
            })
        }))
    }
}

fn took_too_long(most: Duration) -> ModelError {
    let text = format!("the reply was not whole after {} s", most.as_secs());
    ModelError::new(ErrorKind::Timeout, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Part, ToolSpec};

    /// Says a word each second, for ever.
    #[derive(Debug)]
    struct Endless;

    impl Model for Endless {
        fn call(&self, _request: Arc<Request>) -> PartStream {
            Box::pin(stream::unfold((), |()| async {
                tokio::time::sleep(Duration::from_secs(1)).await;
                Some((Ok(Part::Text("and".to_owned())), ()))
            }))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_never_ends_is_ended() {
        let model = Deadline::over(Arc::new(Endless), Duration::from_millis(2_500));
        let tools: Arc<[ToolSpec]> = Arc::new([]);
        let request = Request {
            asker: "A".into(),
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
        assert_eq!(parts[2].as_ref().map_err(|error| error.kind), Err(ErrorKind::Timeout));
    }
}
