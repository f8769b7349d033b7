//! Tests of retries: which errors are retried, and when.

use std::sync::Mutex;

use super::*;
use crate::testing::{reply, request};

/// A model that plays one list of parts for each call and records the time of each call.
#[derive(Debug, Default)]
struct Plays {
    remaining: Mutex<Vec<Vec<Result<ReplyPart, ModelError>>>>,
    started: Mutex<Vec<Instant>>,
}

impl Plays {
    fn new(mut plays: Vec<Vec<Result<ReplyPart, ModelError>>>) -> Arc<Self> {
        plays.reverse();
        Arc::new(Self { remaining: Mutex::new(plays), started: Mutex::default() })
    }

    fn pauses(&self) -> Vec<Duration> {
        self.started.lock().unwrap().windows(2).map(|pair| pair[1] - pair[0]).collect()
    }
}

impl Model for Plays {
    fn call(&self, _: Arc<ModelRequest>) -> PartStream {
        self.started.lock().unwrap().push(Instant::now());
        let parts = self.remaining.lock().unwrap().pop().expect("no further call is expected");
        Box::pin(stream::iter(parts))
    }
}

fn options() -> RetryOptions {
    RetryOptions { tries: 4, seed: Some(7), ..RetryOptions::default() }
}

fn failing(kind: ModelErrorKind) -> Vec<Result<ReplyPart, ModelError>> {
    vec![Err(ModelError::new(kind, format!("{kind:?}")))]
}

fn rate_limited(after: Duration) -> Vec<Result<ReplyPart, ModelError>> {
    let error = ModelError::new(ModelErrorKind::RateLimited, "slow down");
    vec![Err(ModelError { retry_after: Some(after), ..error })]
}

fn finished() -> Result<ReplyPart, ModelError> {
    Ok(ReplyPart::Finished(Box::new(reply("done"))))
}

async fn play(plays: &Arc<Plays>, options: RetryOptions) -> Vec<Result<ReplyPart, ModelError>> {
    RetryModel::wrap(plays.clone(), options).call(request("test")).collect().await
}

#[tokio::test(start_paused = true)]
async fn a_transient_error_is_retried_and_not_visible() {
    let plays = Plays::new(vec![
        failing(ModelErrorKind::Server),
        failing(ModelErrorKind::Connection),
        vec![finished()],
    ]);
    assert_eq!(play(&plays, options()).await, [finished()]);
    let pauses = plays.pauses();
    assert!(pauses[0] >= Duration::from_millis(500) && pauses[0] <= Duration::from_secs(1));
    assert!(pauses[1] >= Duration::from_secs(1) && pauses[1] <= Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn the_seed_determines_the_pauses() {
    let mut all = Vec::new();
    for seed in [1, 1, 2] {
        let plays = Plays::new(vec![
            failing(ModelErrorKind::Server),
            failing(ModelErrorKind::Server),
            vec![finished()],
        ]);
        play(&plays, RetryOptions { seed: Some(seed), ..options() }).await;
        all.push(plays.pauses());
    }
    assert_eq!(all[0], all[1]);
    assert_ne!(all[0], all[2]);
}

#[tokio::test(start_paused = true)]
async fn permanent_errors_are_not_retried() {
    for kind in [
        ModelErrorKind::Auth,
        ModelErrorKind::TooLong,
        ModelErrorKind::Invalid,
        ModelErrorKind::Exhausted,
    ] {
        let plays = Plays::new(vec![failing(kind)]);
        assert_eq!(play(&plays, options()).await, failing(kind));
    }
}

#[tokio::test(start_paused = true)]
async fn the_final_error_is_the_last_one_with_the_number_of_tries() {
    let mut failures = vec![failing(ModelErrorKind::Connection); 3];
    failures.push(failing(ModelErrorKind::Timeout));
    let plays = Plays::new(failures);
    let parts = play(&plays, options()).await;
    let [Err(error)] = parts.as_slice() else { panic!("{parts:?}") };
    assert_eq!(error.kind, ModelErrorKind::Timeout);
    assert_eq!(error.message, "Timeout (tried 4 times)");
}

#[tokio::test(start_paused = true)]
async fn a_broken_stream_restarts_with_a_restarted_part() {
    let broken = vec![
        Ok(ReplyPart::Text("half".to_owned())),
        Err(ModelError::new(ModelErrorKind::Connection, "connection lost")),
    ];
    let ended = vec![Ok(ReplyPart::Text("half".to_owned()))];
    let plays =
        Plays::new(vec![broken, ended, vec![Ok(ReplyPart::Text("all".to_owned())), finished()]]);
    let restarted = |reason: &str| Ok(ReplyPart::Restarted { reason: reason.to_owned() });
    let expect = [
        Ok(ReplyPart::Text("half".to_owned())),
        restarted("connection lost"),
        Ok(ReplyPart::Text("half".to_owned())),
        restarted("the reply was cut off"),
        Ok(ReplyPart::Text("all".to_owned())),
        finished(),
    ];
    assert_eq!(play(&plays, options()).await, expect);
}

#[tokio::test(start_paused = true)]
async fn retry_after_is_honoured() {
    let requested = Duration::from_secs(20);
    let plays = Plays::new(vec![rate_limited(requested), vec![finished()]]);
    play(&plays, options()).await;
    let pause = plays.pauses()[0];
    assert!(pause >= requested && pause <= requested + Duration::from_secs(1), "{pause:?}");
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_above_the_limit_fails_the_call() {
    let plays = Plays::new(vec![rate_limited(Duration::from_secs(3600))]);
    let parts = play(&plays, options()).await;
    let [Err(error)] = parts.as_slice() else { panic!("{parts:?}") };
    assert_eq!(error.message, "slow down; the provider asks callers to wait for 1h");
    assert_eq!(error.kind, ModelErrorKind::RateLimited);
}

#[tokio::test(start_paused = true)]
async fn no_try_starts_after_the_total_timeout() {
    let total = Duration::from_secs(45);
    let plays = Plays::new(vec![rate_limited(Duration::from_secs(20)); 3]);
    let started = Instant::now();
    let parts = play(&plays, RetryOptions { total_timeout: total, tries: 100, ..options() }).await;
    assert!(parts[0].as_ref().is_err_and(|error| error.message.ends_with("(tried 3 times)")));
    assert!(started.elapsed() < total);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_called_before_the_first_poll() {
    let plays = Plays::new(vec![]);
    drop(RetryModel::wrap(plays.clone(), options()).call(request("test")));
    assert_eq!(plays.started.lock().unwrap().len(), 0);
}
