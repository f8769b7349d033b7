//! Tests of admission: order, limits, closing and opening.

use futures_util::future::join_all;

use super::*;
use crate::testing::{reply, request, request_with};

/// A provider that answers after a while. `Seen` holds its settings and its observations.
#[derive(Debug, Default)]
pub(super) struct Provider {
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
pub(super) struct Seen {
    running: usize,
    most: usize,
    started: Vec<(String, Duration)>,
    since: Option<Instant>,
    pub(super) refuse: usize,
    pub(super) retry_after: Option<Duration>,
    used: u64,
}

const WORK: Duration = Duration::from_secs(10);

impl Provider {
    pub(super) fn new() -> Arc<Self> {
        let seen = Seen { since: Some(Instant::now()), ..Seen::default() };
        Arc::new(Self { seen: Mutex::new(seen) })
    }

    pub(super) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    pub(super) fn started(&self) -> Vec<u64> {
        self.seen().started.iter().map(|(_, at)| at.as_secs()).collect()
    }
}

/// A guard that counts a call as running until it ends or is dropped.
struct Running(Arc<Provider>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.seen().running -= 1;
    }
}

#[derive(Clone, Debug)]
struct TestModel(Arc<Provider>);

impl Model for TestModel {
    fn call(&self, request: Arc<ModelRequest>) -> PartStream {
        let provider = self.0.clone();
        Box::pin(stream::once(async move {
            let refused = {
                let mut seen = provider.seen();
                seen.running += 1;
                seen.most = seen.most.max(seen.running);
                let at = seen.since.unwrap().elapsed();
                seen.started.push((request.agent.to_string(), at));
                let refused = seen.refuse > 0;
                seen.refuse = seen.refuse.saturating_sub(1);
                refused
            };
            let _running = Running(provider.clone());
            if refused {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let error = ModelError::new(ModelErrorKind::RateLimited, "too many");
                return Err(ModelError { retry_after: provider.seen().retry_after, ..error });
            }
            tokio::time::sleep(WORK).await;
            let mut reply = reply("ok");
            reply.usage.output = provider.seen().used;
            Ok(ReplyPart::Finished(Box::new(reply)))
        }))
    }
}

pub(super) fn limited_model(
    provider: &Arc<Provider>,
    options: RateLimiterOptions,
) -> (RateLimiter, RateLimitedModel) {
    let limiter = RateLimiter::new(options);
    (limiter.clone(), RateLimitedModel::wrap(Arc::new(TestModel(provider.clone())), limiter))
}

pub(super) fn max_running(max_running: usize) -> RateLimiterOptions {
    RateLimiterOptions { max_running, ..RateLimiterOptions::default() }
}

pub(super) async fn call(
    model: &RateLimitedModel,
    agent: &str,
) -> Vec<Result<ReplyPart, ModelError>> {
    model.call(request(agent)).collect().await
}

#[tokio::test(start_paused = true)]
async fn at_most_max_running_calls_run_in_order() {
    let provider = Provider::new();
    let (limiter, model) = limited_model(&provider, max_running(2));
    let names: Vec<String> = (0..6).map(|number| number.to_string()).collect();
    join_all(names.iter().map(|name| call(&model, name))).await;
    let seen = provider.seen();
    assert_eq!(seen.most, 2);
    assert_eq!(seen.started.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(), names);
    drop(seen);
    assert_eq!(provider.started(), [0, 0, 10, 10, 20, 20]);
    assert_eq!(
        limiter.status(),
        RateLimiterStatus { running: 0, waiting: 0, closed_for: None, share: None }
    );
}

#[tokio::test(start_paused = true)]
async fn a_dropped_waiting_call_leaves_the_queue() {
    let provider = Provider::new();
    let (limiter, model) = limited_model(&provider, max_running(1));
    let impatient = async {
        let waited = tokio::time::timeout(Duration::from_secs(3), call(&model, "impatient")).await;
        assert!(waited.is_err());
        assert_eq!(limiter.status().waiting, 1);
    };
    tokio::join!(call(&model, "first"), impatient, call(&model, "last"));
    let started = provider.seen().started.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(started, ["first", "last"]);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_running_call_admits_the_next() {
    let provider = Provider::new();
    let (_, model) = limited_model(&provider, max_running(1));
    let dropped = tokio::time::timeout(Duration::from_secs(3), call(&model, "dropped"));
    let (dropped, _) = tokio::join!(dropped, call(&model, "next"));
    assert!(dropped.is_err());
    assert_eq!(provider.started(), [0, 3]);
}

#[tokio::test(start_paused = true)]
async fn the_permit_is_released_with_the_last_part() {
    let provider = Provider::new();
    let (limiter, model) = limited_model(&provider, max_running(1));
    let mut parts = model.call(request("kept"));
    assert!(matches!(parts.next().await, Some(Ok(ReplyPart::Finished(_)))));
    assert_eq!(limiter.status().running, 0);
    assert!(parts.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn one_rejection_closes_the_limiter_for_all() {
    let provider = Provider::new();
    provider.seen().refuse = 1;
    provider.seen().retry_after = Some(Duration::from_secs(30));
    let (limiter, model) = limited_model(&provider, max_running(4));
    assert!(call(&model, "refused").await[0].is_err());
    assert_eq!(limiter.status().closed_for, Some(Duration::from_secs(30)));
    join_all((0..4).map(|_| call(&model, "sibling"))).await;
    // One call first, then one more with each interval.
    assert_eq!(provider.started(), [0, 31, 33, 35, 37]);
}

#[tokio::test(start_paused = true)]
async fn the_limiter_opens_faster_when_calls_succeed() {
    let provider = Provider::new();
    provider.seen().refuse = 1;
    let step = Duration::from_secs(1000);
    let (_, model) =
        limited_model(&provider, RateLimiterOptions { ramp_up_interval: step, ..max_running(8) });
    call(&model, "refused").await.clear();
    join_all((0..9).map(|_| call(&model, "sibling"))).await;
    assert_eq!(provider.started(), [0, 3, 13, 13, 23, 23, 23, 23, 33, 33]);
}

#[tokio::test(start_paused = true)]
async fn simultaneous_rejections_are_one_closing() {
    let provider = Provider::new();
    provider.seen().refuse = 4;
    let (limiter, model) = limited_model(&provider, max_running(4));
    join_all((0..4).map(|_| call(&model, "refused"))).await;
    assert_eq!(limiter.status().closed_for, Some(Duration::from_secs(2)));
    provider.seen().refuse = 1;
    assert!(call(&model, "again").await[0].is_err());
    assert_eq!(limiter.status().closed_for, Some(Duration::from_secs(4)));
}

#[tokio::test(start_paused = true)]
async fn with_retry_all_calls_succeed_and_none_is_rejected_twice() {
    let provider = Provider::new();
    provider.seen().refuse = 4;
    let (_, model) = limited_model(&provider, max_running(4));
    let model = crate::RetryModel::wrap(Arc::new(model), crate::RetryOptions::default());
    let calls = (0..20).map(|_| model.call(request("sibling")).collect::<Vec<_>>());
    let replies = join_all(calls).await;
    // A call that waited long reported it; nothing else came before the reply.
    let whole = |parts: &Vec<_>| match parts.split_last() {
        Some((Ok(ReplyPart::Finished(_)), before)) => {
            before.iter().all(|part| matches!(part, Ok(ReplyPart::Queued)))
        }
        _ => false,
    };
    assert!(replies.iter().all(whole), "{replies:?}");
    assert_eq!(provider.seen().started.len(), 24);
    assert_eq!(provider.seen().most, 4);
}

#[tokio::test(start_paused = true)]
async fn the_limiter_closes_for_at_most_max_pause() {
    let provider = Provider::new();
    provider.seen().refuse = 1;
    provider.seen().retry_after = Some(Duration::MAX);
    let (limiter, model) = limited_model(&provider, max_running(4));
    call(&model, "refused").await.clear();
    assert_eq!(limiter.status().closed_for, Some(Duration::from_secs(300)));
}

fn tokens(per_minute: u64) -> RateLimiterOptions {
    RateLimiterOptions {
        tokens_per_minute: Some(per_minute),
        expected_output: 1000,
        ..max_running(8)
    }
}

#[tokio::test(start_paused = true)]
async fn tokens_are_charged_on_admission_and_refilled_with_time() {
    let provider = Provider::new();
    provider.seen().used = 1001;
    let (_, model) = limited_model(&provider, tokens(2002));
    // Each call is estimated at 1001 tokens: 1000 of the reply, and one of "hello".
    join_all((0..4).map(|_| call(&model, "any"))).await;
    assert_eq!(provider.started(), [0, 0, 30, 60]);
}

#[tokio::test(start_paused = true)]
async fn the_real_usage_replaces_the_estimate() {
    let provider = Provider::new();
    provider.seen().used = 1;
    let (_, model) = limited_model(&provider, tokens(2002));
    join_all((0..4).map(|_| call(&model, "any"))).await;
    assert_eq!(provider.started(), [0, 0, 10, 10]);

    let provider = Provider::new();
    provider.seen().used = 4004;
    let (_, model) = limited_model(&provider, tokens(2002));
    call(&model, "greedy").await.clear();
    call(&model, "next").await.clear();
    // After ten seconds 1001 - 3003 + 333 tokens remain, and 1001 are needed.
    assert_eq!(provider.started(), [0, 90]);
}

#[tokio::test(start_paused = true)]
async fn a_request_above_the_limit_waits_for_a_whole_minute() {
    let provider = Provider::new();
    let (_, model) = limited_model(&provider, tokens(100));
    let large = ChatMessage::user("x".repeat(10_000));
    let call = model.call(Arc::new(request_with("large", vec![large])));
    assert_eq!(call.count().await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_call_reports_itself_and_keeps_its_place() {
    let provider = Provider::new();
    let (limiter, model) = limited_model(&provider, max_running(1));
    let permit = limiter.acquire(1).await;
    let mut first = model.call(request("first"));
    for _ in 0..3 {
        assert_eq!(first.next().await, Some(Ok(ReplyPart::Queued)));
        assert_eq!(limiter.status().waiting, 1, "it is in the queue once");
    }
    drop(permit);
    assert!(matches!(first.next().await, Some(Ok(ReplyPart::Finished(_)))));
}

#[test]
fn estimates_count_the_request_and_the_reply() {
    let mut request = request_with("any", vec![ChatMessage::user("x".repeat(400))]);
    request.system = "y".repeat(400).into();
    assert_eq!(estimate_tokens(&request, 4096), 100 + 100 + 1000);
    assert_eq!(estimate_tokens(&request, 50), 100 + 100 + 50);
}
