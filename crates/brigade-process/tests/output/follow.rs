//! Followers of growing output.

use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use brigade_process::output::{OutputFollower, OutputTotals, OutputView, ProcessOutput, ReadStart};
use brigade_process::shim::layout::CLAIM;

use crate::writer::{Random, Reference, SeenByte, VIEWS, Writer, flatten};

const TIMEOUT: Duration = Duration::from_secs(20);

fn follow(dir: &Path, view: OutputView) -> OutputFollower {
    ProcessOutput::open(dir).unwrap().follow(view, ReadStart::At(0))
}

async fn collect(mut follower: OutputFollower) -> Vec<SeenByte> {
    let mut seen = Vec::new();
    while let Some(page) = tokio::time::timeout(TIMEOUT, follower.next()).await.unwrap().unwrap() {
        seen.extend(flatten(&page));
    }
    seen
}

/// Writes in its own thread as a shim would, starting after its readers.
fn write_slowly(dir: &Path, cap: u64) -> std::thread::JoinHandle<Reference> {
    let dir = dir.to_owned();
    std::thread::spawn(move || {
        let random = &mut Random(3);
        let mut reference = Reference::default();
        std::thread::sleep(Duration::from_millis(30));
        let mut writer = Writer::new(&dir, cap);
        for _ in 0..200 {
            let stream = random.stream();
            let length = 1 + random.below(3_000);
            let bytes: Vec<u8> = (0..length).map(|_| random.next() as u8).collect();
            writer.put(stream, &bytes);
            reference.put(stream, &bytes);
            if random.below(4) == 0 {
                std::thread::sleep(Duration::from_millis(random.below(8)));
            }
        }
        writer.end();
        reference
    })
}

#[tokio::test]
async fn a_follower_waits_for_expected_output() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("to-come");
    let expected = ProcessOutput::open_expected(&path);
    assert_eq!(expected.totals().unwrap(), OutputTotals::default());
    assert_eq!(expected.tail_text(10).unwrap(), "");
    let mut follower = expected.follow(OutputView::Stdout, ReadStart::At(0));
    let write = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        std::fs::create_dir(&path).unwrap();
        let mut writer = Writer::new(&path, 100);
        writer.out("here");
        writer.end();
    };
    let (first, ()) = tokio::join!(follower.next(), write);
    assert_eq!(first.unwrap().unwrap().total, 4);
    assert!(ProcessOutput::open(&dir.path().join("never")).is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_followers_see_everything_once_and_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let view = |index: usize| VIEWS[index % VIEWS.len()];
    let mut followers = tokio::task::JoinSet::new();
    for index in 0..100 {
        let follower = follow(dir.path(), view(index)).max_bytes(700 + index * 97);
        followers.spawn(async move { (view(index), collect(follower).await) });
    }
    let writer = write_slowly(dir.path(), 1 << 20);
    let seen = followers.join_all().await;
    let reference = writer.join().unwrap();
    for (view, seen) in seen {
        assert!(seen == reference.expected_view(view, 1 << 20), "{view:?}");
    }
    assert!(inotify_instances() <= 1, "the system grants few of them");
}

fn inotify_instances() -> usize {
    let Ok(descriptors) = std::fs::read_dir("/proc/self/fd") else { return 0 };
    let targets = descriptors.flatten().flat_map(|entry| std::fs::read_link(entry.path()));
    targets.filter(|target| target.to_string_lossy().contains("inotify")).count()
}

#[tokio::test]
async fn a_follower_from_the_end_sees_the_last_and_then_new_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::new(dir.path(), 100);
    writer.out("old last");
    let output = ProcessOutput::open(dir.path()).unwrap();
    let mut follower = output.follow(OutputView::Combined, ReadStart::FromEnd(4));
    assert_eq!(follower.position(), None);
    assert_eq!(flatten(&follower.next().await.unwrap().unwrap()).len(), 4);
    assert_eq!(follower.position(), Some(8));
    writer.out("new");
    writer.end();
    assert_eq!(flatten(&follower.next().await.unwrap().unwrap()).len(), 3);
    assert!(follower.next().await.unwrap().is_none());
    assert!(follower.next().await.unwrap().is_none());
}

#[tokio::test]
async fn a_change_wakes_a_follower_before_its_next_poll() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::new(dir.path(), 1_000);
    let mut follower = follow(dir.path(), OutputView::Stdout);
    let mut fastest = Duration::MAX;
    for _ in 0..3 {
        let waited = tokio::time::timeout(Duration::from_millis(50), follower.next()).await;
        assert!(waited.is_err(), "there is no output yet");
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            writer.out("x");
            (writer, Instant::now())
        });
        assert_eq!(follower.next().await.unwrap().unwrap().next, follower.position().unwrap());
        let seen = Instant::now();
        let (back, written) = thread.join().unwrap();
        writer = back;
        fastest = fastest.min(seen.saturating_duration_since(written));
    }
    assert!(fastest < Duration::from_millis(100), "{fastest:?}");
}

#[tokio::test]
async fn the_caller_ends_a_follower_of_a_dead_shim() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = Writer::new(dir.path(), 100);
    writer.out("abc");
    let (died, ended) = tokio::sync::oneshot::channel::<()>();
    let mut by_future = follow(dir.path(), OutputView::Stdout).end_when(async {
        let _ = ended.await;
    });
    assert_eq!(by_future.next().await.unwrap().unwrap().next, 3);
    let waited = tokio::time::timeout(Duration::from_millis(50), by_future.next()).await;
    assert!(waited.is_err(), "the end is not known yet");
    writer.out("last");
    died.send(()).unwrap();
    assert_eq!(collect(by_future).await.len(), 4);

    let mut by_call = follow(dir.path(), OutputView::Stdout);
    by_call.finish();
    assert_eq!(collect(by_call).await.len(), 7);
}

#[tokio::test]
async fn a_removed_directory_ends_a_follower_with_an_error() {
    for with_record in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        if with_record {
            Writer::new(dir.path(), 100).out("abc");
        }
        let mut follower = follow(dir.path(), OutputView::Combined);
        if with_record {
            assert_eq!(follower.next().await.unwrap().unwrap().next, 3);
        }
        let waited = tokio::time::timeout(Duration::from_millis(50), follower.next()).await;
        assert!(waited.is_err(), "it waits");
        drop(dir);
        let error = tokio::time::timeout(TIMEOUT, follower.next()).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("removed"), "{error}");
    }
}

#[tokio::test]
async fn a_missing_record_counts_as_removed() {
    let dir = tempfile::tempdir().unwrap();
    Writer::new(dir.path(), 100).out("abc");
    let mut follower = follow(dir.path(), OutputView::Combined);
    assert_eq!(follower.next().await.unwrap().unwrap().next, 3);
    std::fs::remove_file(dir.path().join(CLAIM)).unwrap();
    let error = tokio::time::timeout(TIMEOUT, follower.next()).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("removed"), "{error}");
}
