//! Limits on memory, processor time and open files.

use brigade_process::{ProcessExit, ProcessLimits};

use crate::support::{ProcessSettings, TestDirs};

const XCPU: i32 = 24;
const KILL: i32 = 9;

fn limited(limits: ProcessLimits) -> ProcessSettings<'static> {
    ProcessSettings { limits, ..ProcessSettings::default() }
}

#[tokio::test]
async fn memory_beyond_the_limit_is_denied() {
    let dirs = TestDirs::new();
    // `tail` buffers a whole line, and this one never ends.
    let hungry = "head -c 400000000 /dev/zero | tail -n 1 | wc -c";
    let limits = ProcessLimits { memory: Some(200 << 20), ..ProcessLimits::default() };
    let result = limited(limits).script(&dirs, hungry).await;
    assert!(
        result.text.contains("memory") && !result.text.contains("400000000"),
        "{}",
        result.text
    );
    let free = ProcessSettings::default().script(&dirs, hungry).await;
    assert_eq!(free.text, "400000000\n");
}

#[tokio::test]
async fn processor_time_beyond_the_limit_ends_with_xcpu_then_kill() {
    let dirs = TestDirs::new();
    let limits = ProcessLimits { cpu_seconds: Some(1), ..ProcessLimits::default() };
    let result = limited(limits).script(&dirs, "while :; do :; done").await;
    assert_eq!(result.record.exit, Some(ProcessExit::Signal(XCPU)));
    let result = limited(limits).script(&dirs, "trap '' XCPU; while :; do :; done").await;
    assert_eq!(result.record.exit, Some(ProcessExit::Signal(KILL)));
}

#[tokio::test]
async fn files_beyond_the_limit_cannot_be_opened() {
    let dirs = TestDirs::new();
    let limits = ProcessLimits { open_files: Some(16), ..ProcessLimits::default() };
    let many = "ulimit -n; ulimit -Hn; exec cat $(yes file | head -n 100)";
    let result = limited(limits).script(&dirs, many).await;
    assert!(result.text.starts_with("16\n16\n"), "{}", result.text);
    let open = "exec bash -c 'for i in $(seq 10 40); do eval \"exec $i<file\" || exit 4; done'";
    let result = limited(limits).script(&dirs, open).await;
    assert!(
        result.text.contains("oo many open files") || result.text.contains("ad file"),
        "{}",
        result.text
    );
    assert_ne!(result.record.exit, Some(ProcessExit::Code(0)));
    assert_eq!(
        ProcessSettings::default().script(&dirs, open).await.record.exit,
        Some(ProcessExit::Code(0))
    );
}

#[tokio::test]
async fn a_limit_above_an_existing_one_does_not_raise_it() {
    let dirs = TestDirs::new();
    let limits = ProcessLimits { open_files: Some(1 << 40), ..ProcessLimits::default() };
    let result = limited(limits).script(&dirs, "ulimit -Hn").await;
    let free = ProcessSettings::default().script(&dirs, "ulimit -Hn").await;
    assert_eq!(result.text, free.text);
}
