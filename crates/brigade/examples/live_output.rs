//! A process as a task: its output is printed while it runs, and its report at the end.

use std::error::Error;
use std::io::Write;

use brigade::process::{OutputView, PagePiece, ReadStart};
use brigade::{NewTask, ProcessOptions, Runtime};

const OVEN: &str = "for t in 60 120 180; do echo oven: $t degrees; sleep 0.1; done; echo hot >&2";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let runtime = Runtime::builder().processes(ProcessOptions::new(dir.path())).start().await?;
    let session = runtime.session("kitchen").await?;
    let oven = session.spawn(NewTask::shell(OVEN).name("Oven")).await?;

    let mut output = oven.follow(OutputView::Combined, ReadStart::At(0)).await?;
    while let Some(page) = output.next().await? {
        for piece in page.pieces {
            match piece {
                PagePiece::Bytes { bytes, .. } => std::io::stdout().write_all(&bytes)?,
                PagePiece::Dropped { bytes } => println!("[{bytes} bytes were dropped]"),
            }
        }
    }

    let report = oven.result().await?;
    println!("exit code {:?}, {} bytes on stderr", report.exit_code, report.stderr_bytes);
    runtime.shutdown().await?;
    Ok(())
}
