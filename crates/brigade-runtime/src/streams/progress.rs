//! The progress notes of a run.

use brigade_model::event::Event;
use brigade_model::json::Json;
use brigade_model::refusal::Refusal;
use futures_util::stream::{self, StreamExt};
use serde::de::DeserializeOwned;

use super::ResultStream;
use super::run_events::RunEvents;
use crate::feed::FeedUpdate;
use crate::task_handle::TaskHandle;

impl<T> TaskHandle<T> {
    /// Returns the newest progress note of the task, or `None` before the first. It can be read
    /// after the end of the task too.
    ///
    /// ```
    /// # use brigade_runtime::{JobContext, JobError, NewTask, Runtime};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::builder().start().await?;
    /// # let session = runtime.session("demo").await?;
    /// let bake = NewTask::closure("bake", |ctx: JobContext| async move {
    ///     ctx.progress("in the oven").await?;
    ///     Ok::<_, JobError>("bread".to_owned())
    /// });
    /// let task = session.spawn(bake).await?;
    /// task.result().await?;
    /// assert_eq!(task.last_progress::<String>().await?.as_deref(), Some("in the oven"));
    /// # Ok(())
    /// # }
    /// ```
    pub async fn last_progress<P: DeserializeOwned>(&self) -> Result<Option<P>, Refusal> {
        let row = self.get().await?;
        row.progress().map(Json::decode).transpose()
    }

    /// Returns the progress notes of the task since the request that returned this handle, until
    /// its run ends. A note of another type is a refusal, and the stream continues after it.
    ///
    /// The notes of an agent are `AgentProgress`: an overview that is updated now and then.
    ///
    /// ```
    /// # use brigade_runtime::{JobContext, JobError, NewTask, Runtime};
    /// use futures_util::TryStreamExt;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let runtime = Runtime::builder().start().await?;
    /// # let session = runtime.session("demo").await?;
    /// let bake = NewTask::closure("bake", |ctx: JobContext| async move {
    ///     for percent in [30, 60] {
    ///         ctx.progress(percent).await?;
    ///     }
    ///     Ok::<_, JobError>("bread".to_owned())
    /// });
    /// let task = session.spawn(bake).await?;
    /// let notes: Vec<u32> = task.progress::<u32>().try_collect().await?;
    /// assert_eq!(notes, [30, 60]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn progress<P: DeserializeOwned + 'static>(&self) -> ResultStream<P> {
        let no = self.no;
        let notes = stream::unfold(RunEvents::new(self), move |mut events| async move {
            let note = loop {
                match events.next().await.transpose()? {
                    Ok(FeedUpdate::Event(item)) => match &item.record.event {
                        Event::Progressed { no: of, note } if *of == no => break Ok(note.clone()),
                        _ => {}
                    },
                    Ok(FeedUpdate::Gap { .. }) => {}
                    Err(refusal) => break Err(refusal),
                }
            };
            Some((note, events))
        });
        notes.map(|note: Result<Json, Refusal>| note.and_then(|note| note.decode())).boxed()
    }
}
