//! Who enters when.

use futures_util::future::join_all;

use super::*;
use crate::testing::{asking, reply, request};

/// Answers after a while; what the asker's name says decides how.
#[derive(Debug, Default)]
struct Provider {
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    running: usize,
    most: usize,
    began: Vec<(String, Duration)>,
    since: Option<Instant>,
    refuse: usize,
    asked: Option<Duration>,
    used: u64,
}

const WORK: Duration = Duration::from_secs(10);

impl Provider {
    fn new() -> Arc<Self> {
        let seen = Seen { since: Some(Instant::now()), ..Seen::default() };
        Arc::new(Self { seen: Mutex::new(seen) })
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    fn began(&self) -> Vec<u64> {
        self.seen().began.iter().map(|(_, at)| at.as_secs()).collect()
    }
}

/// Its calls end when they are dropped, too.
struct Running(Arc<Provider>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.seen().running -= 1;
    }
}

#[derive(Clone, Debug)]
struct Asked(Arc<Provider>);

impl Model for Asked {
    fn call(&self, request: Arc<ModelRequest>) -> PartStream {
        let provider = self.0.clone();
        Box::pin(stream::once(async move {
            let refused = {
                let mut seen = provider.seen();
                seen.running += 1;
                seen.most = seen.most.max(seen.running);
                let at = seen.since.unwrap().elapsed();
                seen.began.push((request.agent.to_string(), at));
                let refused = seen.refuse > 0;
                seen.refuse = seen.refuse.saturating_sub(1);
                refused
            };
            let _running = Running(provider.clone());
            if refused {
                tokio::time::sleep(Duration::from_secs(1)).await;
                let error = ModelError::new(ModelErrorKind::RateLimited, "too many");
                return Err(ModelError { retry_after: provider.seen().asked, ..error });
            }
            tokio::time::sleep(WORK).await;
            let mut reply = reply("ok");
            reply.usage.output = provider.seen().used;
            Ok(ReplyPart::Finished(Box::new(reply)))
        }))
    }
}

fn gated(provider: &Arc<Provider>, options: RateLimiterOptions) -> (RateLimiter, RateLimitedModel) {
    let gate = RateLimiter::new(options);
    (gate.clone(), RateLimitedModel::wrap(Arc::new(Asked(provider.clone())), gate))
}

fn running(running: usize) -> RateLimiterOptions {
    RateLimiterOptions { max_running: running, ..RateLimiterOptions::default() }
}

async fn ask(model: &RateLimitedModel, who: &str) -> Vec<Result<ReplyPart, ModelError>> {
    model.call(request(who)).collect().await
}

#[tokio::test(start_paused = true)]
async fn no_more_than_the_most_run_and_they_enter_in_order() {
    let provider = Provider::new();
    let (gate, model) = gated(&provider, running(2));
    let names: Vec<String> = (0..6).map(|number| number.to_string()).collect();
    join_all(names.iter().map(|name| ask(&model, name))).await;
    let seen = provider.seen();
    assert_eq!(seen.most, 2);
    assert_eq!(seen.began.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>(), names);
    drop(seen);
    assert_eq!(provider.began(), [0, 0, 10, 10, 20, 20]);
    assert_eq!(gate.status(), RateLimiterStatus { running: 0, waiting: 0, closed_for: None });
}

#[tokio::test(start_paused = true)]
async fn a_waiting_call_that_is_dropped_gives_its_place_up() {
    let provider = Provider::new();
    let (gate, model) = gated(&provider, running(1));
    let impatient = async {
        let waited = tokio::time::timeout(Duration::from_secs(3), ask(&model, "impatient")).await;
        assert!(waited.is_err());
        assert_eq!(gate.status().waiting, 1);
    };
    tokio::join!(ask(&model, "first"), impatient, ask(&model, "last"));
    let began = provider.seen().began.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(began, ["first", "last"]);
}

#[tokio::test(start_paused = true)]
async fn a_running_call_that_is_dropped_lets_the_next_in() {
    let provider = Provider::new();
    let (_, model) = gated(&provider, running(1));
    let dropped = tokio::time::timeout(Duration::from_secs(3), ask(&model, "dropped"));
    let (dropped, _) = tokio::join!(dropped, ask(&model, "next"));
    assert!(dropped.is_err());
    assert_eq!(provider.began(), [0, 3]);
}

#[tokio::test(start_paused = true)]
async fn the_place_is_free_with_the_last_part() {
    let provider = Provider::new();
    let (gate, model) = gated(&provider, running(1));
    let mut parts = model.call(request("kept"));
    assert!(matches!(parts.next().await, Some(Ok(ReplyPart::Finished(_)))));
    assert_eq!(gate.status().running, 0);
    assert!(parts.next().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn one_refusal_closes_the_gate_for_all() {
    let provider = Provider::new();
    provider.seen().refuse = 1;
    provider.seen().asked = Some(Duration::from_secs(30));
    let (gate, model) = gated(&provider, running(4));
    assert!(ask(&model, "refused").await[0].is_err());
    assert_eq!(gate.status().closed_for, Some(Duration::from_secs(30)));
    join_all((0..4).map(|_| ask(&model, "sibling"))).await;
    // One first, and one more with each step.
    assert_eq!(provider.began(), [0, 31, 33, 35, 37]);
}

#[tokio::test(start_paused = true)]
async fn it_opens_faster_when_calls_succeed() {
    let provider = Provider::new();
    provider.seen().refuse = 1;
    let step = Duration::from_secs(1000);
    let (_, model) = gated(&provider, RateLimiterOptions { ramp_up_interval: step, ..running(8) });
    ask(&model, "refused").await.clear();
    join_all((0..9).map(|_| ask(&model, "sibling"))).await;
    assert_eq!(provider.began(), [0, 3, 13, 13, 23, 23, 23, 23, 33, 33]);
}

#[tokio::test(start_paused = true)]
async fn many_refusals_at_once_are_one_closing() {
    let provider = Provider::new();
    provider.seen().refuse = 4;
    let (gate, model) = gated(&provider, running(4));
    join_all((0..4).map(|_| ask(&model, "refused"))).await;
    assert_eq!(gate.status().closed_for, Some(Duration::from_secs(2)));
    provider.seen().refuse = 1;
    assert!(ask(&model, "again").await[0].is_err());
    assert_eq!(gate.status().closed_for, Some(Duration::from_secs(4)));
}

#[tokio::test(start_paused = true)]
async fn with_retry_all_siblings_succeed_and_none_asks_in_vain_twice() {
    let provider = Provider::new();
    provider.seen().refuse = 4;
    let (_, model) = gated(&provider, running(4));
    let model = crate::RetryModel::wrap(Arc::new(model), crate::RetryOptions::default());
    let calls = (0..20).map(|_| model.call(request("sibling")).collect::<Vec<_>>());
    let replies = join_all(calls).await;
    // Who waited long said so, and nothing else came before the reply.
    let whole = |parts: &Vec<_>| match parts.split_last() {
        Some((Ok(ReplyPart::Finished(_)), before)) => {
            before.iter().all(|part| matches!(part, Ok(ReplyPart::Queued)))
        }
        _ => false,
    };
    assert!(replies.iter().all(whole), "{replies:?}");
    assert_eq!(provider.seen().began.len(), 24);
    assert_eq!(provider.seen().most, 4);
}

#[tokio::test(start_paused = true)]
async fn no_provider_closes_it_for_ever() {
    let provider = Provider::new();
    provider.seen().refuse = 1;
    provider.seen().asked = Some(Duration::MAX);
    let (gate, model) = gated(&provider, running(4));
    ask(&model, "refused").await.clear();
    assert_eq!(gate.status().closed_for, Some(Duration::from_secs(300)));
}

fn tokens(per_minute: u64) -> RateLimiterOptions {
    RateLimiterOptions { tokens_per_minute: Some(per_minute), expected_output: 1000, ..running(8) }
}

#[tokio::test(start_paused = true)]
async fn tokens_are_estimated_on_entry_and_flow_back_with_time() {
    let provider = Provider::new();
    provider.seen().used = 1001;
    let (_, model) = gated(&provider, tokens(2002));
    // Each is thought to use 1001: 1000 of the reply, and one of "hello".
    join_all((0..4).map(|_| ask(&model, "any"))).await;
    assert_eq!(provider.began(), [0, 0, 30, 60]);
}

#[tokio::test(start_paused = true)]
async fn what_was_used_corrects_what_was_thought() {
    let provider = Provider::new();
    provider.seen().used = 1;
    let (_, model) = gated(&provider, tokens(2002));
    join_all((0..4).map(|_| ask(&model, "any"))).await;
    assert_eq!(provider.began(), [0, 0, 10, 10]);

    let provider = Provider::new();
    provider.seen().used = 4004;
    let (_, model) = gated(&provider, tokens(2002));
    ask(&model, "greedy").await.clear();
    ask(&model, "next").await.clear();
    // After ten seconds 1001 - 3003 + 333 tokens are left, and 1001 are needed.
    assert_eq!(provider.began(), [0, 90]);
}

#[tokio::test(start_paused = true)]
async fn a_request_larger_than_a_minute_waits_for_a_whole_one() {
    let provider = Provider::new();
    let (_, model) = gated(&provider, tokens(100));
    let large = ChatMessage::user("x".repeat(10_000));
    let call = model.call(Arc::new(asking("large", vec![large])));
    assert_eq!(call.count().await, 1);
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_its_turn_says_so_and_keeps_its_place() {
    let provider = Provider::new();
    let (gate, model) = gated(&provider, running(1));
    let entered = gate.acquire(1).await;
    let mut first = model.call(request("first"));
    for _ in 0..3 {
        assert_eq!(first.next().await, Some(Ok(ReplyPart::Queued)));
        assert_eq!(gate.status().waiting, 1, "it is in line once");
    }
    drop(entered);
    assert!(matches!(first.next().await, Some(Ok(ReplyPart::Finished(_)))));
}

#[test]
fn estimates_count_what_is_sent() {
    let mut request = asking("any", vec![ChatMessage::user("x".repeat(400))]);
    request.system = "y".repeat(400).into();
    assert_eq!(estimate_tokens(&request, 4096), 100 + 100 + 1000);
    assert_eq!(estimate_tokens(&request, 50), 100 + 100 + 50);
}
