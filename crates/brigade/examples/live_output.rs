//! A process as a task: its output is printed while it runs, and its report at the end.

use std::error::Error;

use brigade::{NewTask, ProcessOptions, Runtime};
use futures_util::TryStreamExt;

const OVEN: &str = "for t in 60 120 180; do echo oven: $t degrees; sleep 0.1; done; echo hot >&2";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let runtime = Runtime::builder().processes(ProcessOptions::new(dir.path())).start().await?;
    let session = runtime.session("kitchen").await?;
    let oven = session.spawn(NewTask::shell(OVEN).name("Oven")).await?;

    let mut lines = oven.lines();
    while let Some(line) = lines.try_next().await? {
        println!("{}", line.text);
    }

    let report = oven.result().await?;
    println!("exit code {:?}, {} bytes on stderr", report.exit_code, report.stderr_bytes);
    runtime.shutdown().await?;
    Ok(())
}
