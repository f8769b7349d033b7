//! A kind of work of its own: a performer prints pages, and a stop ends the print.

#![expect(clippy::disallowed_methods, reason = "a performer starts tasks, and ends them on a stop")]

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use brigade::model::StartAction;
use brigade::{KindPolicy, NewTask, Performer, Reporter, Runtime, StopMode, TaskId};
use tokio::sync::Notify;

/// The stop signal of each print that is running.
#[derive(Clone, Default)]
struct Printer(Arc<Mutex<HashMap<TaskId, Arc<Notify>>>>);

impl Performer for Printer {
    fn start(&self, start: StartAction, reporter: Reporter) {
        let stop: Arc<Notify> = Arc::default();
        let printer = self.clone();
        printer.lock().insert(reporter.task, stop.clone());
        tokio::spawn(async move {
            match start.payload::<u64>() {
                Ok(pages) => tokio::select! {
                    () = tokio::time::sleep(Duration::from_millis(pages)) => {
                        reporter.succeed(&format!("printed {pages} pages")).await;
                    }
                    () = stop.notified() => reporter.stopped().await,
                },
                Err(refusal) => reporter.fail(refusal).await,
            }
            printer.lock().remove(&reporter.task);
        });
    }

    fn stop(&self, task: TaskId, _mode: StopMode) {
        if let Some(stop) = self.lock().get(&task) {
            stop.notify_one();
        }
    }
}

impl Printer {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<TaskId, Arc<Notify>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let printer = Printer::default();
    let builder = Runtime::builder().performer("print", KindPolicy::restarted(), printer);
    let runtime = builder.start().await?;
    let session = runtime.session("office").await?;

    let menu = session.spawn(NewTask::custom("print", 20).returns::<String>()).await?;
    println!("{}: {}", menu.address(), menu.result().await?);

    let novel = session.spawn(NewTask::custom("print", 1_000_000)).await?;
    novel.stop(Some("no paper")).await?;
    println!("{}: {}", novel.address(), novel.wait().await?.outcome);
    runtime.shutdown().await?;
    Ok(())
}
