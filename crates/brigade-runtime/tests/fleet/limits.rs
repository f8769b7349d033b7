//! Limits of a provider that several nodes keep together.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use brigade_llm::{
    AssistantMessage, ContentBlock, Model, ModelError, ModelErrorKind, ModelReply, ModelRequest,
    PartStream, RateLimitedModel, RateLimiter, RateLimiterOptions, ReplyPart, RetryModel,
    RetryOptions, SharedLimits, StopReason, TokenUsage,
};
use brigade_model::ids::TaskNo;
use brigade_model::refusal::Refusal;
use brigade_runtime::{AgentOptions, ChosenModel, ModelSource, NewTask, OneModel, TaskHandle};
use brigade_testkit::ConnectionCondition;
use futures_util::future::join_all;
use tokio::time::Instant;

use crate::support::*;

/// The time that a call takes.
const CALL: Duration = Duration::from_secs(2);

/// A provider that all nodes call, with what it has seen.
#[derive(Debug)]
struct SharedProvider {
    since: Instant,
    seen: Mutex<ProviderLog>,
}

#[derive(Debug, Default)]
struct ProviderLog {
    running: usize,
    most: usize,
    /// The node and the time of each call.
    started: Vec<(&'static str, Duration)>,
    /// The number of calls to refuse, and the time to ask for.
    refused: (usize, Duration),
}

impl SharedProvider {
    fn new() -> Arc<Self> {
        Arc::new(Self { since: Instant::now(), seen: Mutex::default() })
    }

    fn most(&self) -> usize {
        self.seen.lock().unwrap().most
    }

    fn started(&self) -> Vec<(&'static str, Duration)> {
        self.seen.lock().unwrap().started.clone()
    }

    fn started_by(&self, node: &str) -> Vec<Duration> {
        let started = self.started();
        started.into_iter().filter(|(by, _)| *by == node).map(|(_, at)| at).collect()
    }

    fn refuse(&self, calls: usize, retry_after: Duration) {
        self.seen.lock().unwrap().refused = (calls, retry_after);
    }

    /// Waits until a number of calls have started.
    async fn wait_for_started(&self, calls: usize) {
        while self.started().len() < calls {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// The provider as one node calls it.
#[derive(Clone, Debug)]
struct NodeModel {
    node: &'static str,
    provider: Arc<SharedProvider>,
}

/// A guard that counts a call as running until it ends or is dropped.
struct Running(Arc<SharedProvider>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.seen.lock().unwrap().running -= 1;
    }
}

impl Model for NodeModel {
    fn call(&self, _request: Arc<ModelRequest>) -> PartStream {
        let call = self.clone();
        Box::pin(futures_util::stream::once(async move {
            let refused = {
                let mut seen = call.provider.seen.lock().unwrap();
                seen.running += 1;
                seen.most = seen.most.max(seen.running);
                seen.started.push((call.node, call.provider.since.elapsed()));
                let refused = seen.refused.0 > 0;
                seen.refused.0 = seen.refused.0.saturating_sub(1);
                refused.then_some(seen.refused.1)
            };
            let _running = Running(call.provider.clone());
            if let Some(pause) = refused {
                let error = ModelError::new(ModelErrorKind::RateLimited, "too many");
                return Err(ModelError { retry_after: Some(pause), ..error });
            }
            tokio::time::sleep(CALL).await;
            let message = AssistantMessage {
                content: vec![ContentBlock::Text("done".into())],
                ..AssistantMessage::default()
            };
            Ok(ReplyPart::Finished(Box::new(ModelReply {
                message,
                stop: StopReason::EndOfTurn,
                usage: TokenUsage::default(),
            })))
        }))
    }
}

/// The models of one node: one provider behind its rate limiter.
#[derive(Debug)]
struct LimitedModels {
    model: OneModel,
    limiter: RateLimiter,
}

impl LimitedModels {
    fn new(provider: &Arc<SharedProvider>, node: &'static str, limit: RateLimiterOptions) -> Self {
        let limiter = RateLimiter::new(limit);
        let model = Arc::new(NodeModel { node, provider: provider.clone() });
        let limited = Arc::new(RateLimitedModel::wrap(model, limiter.clone()));
        let retried = RetryModel::wrap(limited, RetryOptions::default());
        Self { model: OneModel(Arc::new(retried)), limiter }
    }
}

impl ModelSource for LimitedModels {
    fn find(&self, name: &str) -> Result<ChosenModel, Refusal> {
        self.model.find(name)
    }

    fn share_limits(&self, shared: Arc<dyn SharedLimits>) {
        shared.divide("stove", self.limiter.share());
    }
}

fn max_running(max_running: usize) -> RateLimiterOptions {
    RateLimiterOptions { max_running, ..RateLimiterOptions::default() }
}

/// Starts nodes that call the provider under one limit.
async fn nodes_of<const N: usize>(
    fleet: &TestFleet,
    provider: &Arc<SharedProvider>,
    names: [&'static str; N],
    limit: &RateLimiterOptions,
) -> [TestNode; N] {
    let nodes = names.map(|name| async move {
        let models = LimitedModels::new(provider, name, limit.clone());
        let agents = AgentOptions::new(models).model("stove");
        fleet.node_with(name, |builder| builder.agents(agents)).await
    });
    let nodes: Vec<TestNode> = join_all(nodes).await;
    nodes.try_into().unwrap_or_else(|_| unreachable!("as many as names"))
}

/// Starts agents, each of which calls the model once, in a session of a node.
async fn start_agents(node: &TestNode, session: &str, count: usize) -> Vec<TaskHandle<String>> {
    let session = node.session(session).await;
    let mut agents = Vec::new();
    for _ in 0..count {
        agents.push(session.spawn(NewTask::agent("Cook.")).await.unwrap());
    }
    agents
}

async fn finish(agents: Vec<TaskHandle<String>>) {
    for agent in agents {
        assert_eq!(agent.result().await.unwrap(), "done");
    }
}

#[tokio::test(start_paused = true)]
async fn all_nodes_together_keep_the_running_limit() {
    let fleet = TestFleet::new();
    let provider = SharedProvider::new();
    let nodes = nodes_of(&fleet, &provider, ["one", "two", "three"], &max_running(4)).await;
    let agents = join_all(
        nodes.iter().zip(["a", "b", "c"]).map(|(node, session)| start_agents(node, session, 10)),
    );
    join_all(agents.await.into_iter().map(finish)).await;
    assert_eq!(provider.most(), 4, "the limit is kept and used");
    assert_eq!(provider.started().len(), 30);
    for node in ["one", "two", "three"] {
        let first = provider.started_by(node)[0];
        let first = first - provider.started()[0].1;
        assert!(first < 4 * SECOND, "{node} begins after {first:?}: {:?}", provider.started());
    }
    // 8 rounds of calls of 2 s would do; moves of the share cost some time.
    assert!(provider.since.elapsed() < 30 * SECOND, "{:?}", provider.since.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_busy_node_gets_more_and_an_idle_one_gives_its_share_away() {
    let fleet = TestFleet::new();
    let provider = SharedProvider::new();
    let [one, two] = nodes_of(&fleet, &provider, ["one", "two"], &max_running(8)).await;
    let few = start_agents(&two, "few", 10).await;
    let many = start_agents(&one, "many", 90).await;
    provider.wait_for_started(40).await;
    let by_two = provider.started_by("two").len();
    assert!((3..=12).contains(&by_two), "{by_two} of 40 calls are of the node with a tenth");
    finish(few).await;
    tokio::time::sleep(10 * SECOND).await;
    let (before, at) = (provider.started().len(), Instant::now());
    tokio::time::sleep(4 * SECOND).await;
    let rounds = provider.started().len() - before;
    assert!(rounds >= 14, "the other node uses the whole limit: {rounds} calls since {at:?}");
    finish(many).await;
    assert_eq!(provider.most(), 8);
}

#[tokio::test(start_paused = true)]
async fn all_nodes_together_keep_the_rates() {
    let fleet = TestFleet::new();
    let provider = SharedProvider::new();
    let limit = RateLimiterOptions { requests_per_minute: Some(30), ..max_running(100) };
    let [one, two] = nodes_of(&fleet, &provider, ["one", "two"], &limit).await;
    let first = start_agents(&one, "first", 60).await;
    tokio::time::sleep(20 * SECOND).await;
    let second = start_agents(&two, "second", 40).await;
    finish(first).await;
    finish(second).await;
    let started: Vec<f64> = provider.started().iter().map(|(_, at)| at.as_secs_f64()).collect();
    for (from, at) in started.iter().enumerate() {
        for (to, end) in started.iter().enumerate().skip(from) {
            // A full bucket, and what flows into it in the time.
            let most = 30.0 + (end - at) / 2.0 + 1.0;
            assert!((to - from + 1) as f64 <= most, "{} calls from {at} to {end}", to - from + 1);
        }
    }
    // 30 at once and 70 more at one in two seconds.
    let last = started.last().unwrap();
    assert!((139.0..160.0).contains(last), "the last call starts at {last}");
    let by_two = provider.started_by("two");
    assert!(by_two[0] < 25 * SECOND, "the second node begins at {:?}", by_two[0]);
}

#[tokio::test(start_paused = true)]
async fn a_dead_node_counts_until_it_is_closed() {
    let fleet = TestFleet::new();
    let provider = SharedProvider::new();
    let [one, two] = nodes_of(&fleet, &provider, ["one", "two"], &max_running(2)).await;
    let lost = start_agents(&one, "lost", 20).await;
    provider.wait_for_started(2).await;
    drop(lost);
    one.connection.set(ConnectionCondition::Hangs);
    let agents = start_agents(&two, "other", 6).await;
    finish(agents).await;
    assert_eq!(provider.most(), 2, "the calls of both nodes are within the limit");
    // The session of the dead node goes on as well, and nothing is lost of its share.
    let session = two.session("lost").await;
    let lost: Vec<TaskNo> = session.list().iter().map(|task| task.no).collect();
    assert_eq!(lost.len(), 20);
    session.wait_all(lost).await.unwrap();
    assert_eq!(provider.most(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_node_without_the_database_keeps_its_share_until_its_lease_is_over() {
    let fleet = TestFleet::new();
    let provider = SharedProvider::new();
    let [one, two] = nodes_of(&fleet, &provider, ["one", "two"], &max_running(4)).await;
    let first = start_agents(&one, "first", 40).await;
    let second = start_agents(&two, "second", 40).await;
    provider.wait_for_started(16).await;
    let cut_at = provider.since.elapsed();
    one.connection.set(ConnectionCondition::Cut);
    tokio::time::sleep(5 * SECOND).await;
    let meanwhile = provider.started_by("one").into_iter().filter(|at| *at > cut_at);
    let meanwhile = meanwhile.count();
    assert!((4..=6).contains(&meanwhile), "two calls of 2 s go on: {:?}", provider.started());
    one.connection.set(ConnectionCondition::Works);
    finish(first).await;
    finish(second).await;
    assert_eq!(provider.most(), 4);
}

/// Lets one node be rejected, and checks the calls of all.
async fn check_closing(loses_hints: bool, delay_max: Duration) {
    let fleet = TestFleet::new();
    let provider = SharedProvider::new();
    let nodes = nodes_of(&fleet, &provider, ["one", "two", "three"], &max_running(6)).await;
    for node in &nodes {
        if loses_hints {
            node.connection.lose_hints();
        }
    }
    let agents = join_all(
        nodes.iter().zip(["a", "b", "c"]).map(|(node, session)| start_agents(node, session, 16)),
    );
    let agents = agents.await;
    provider.wait_for_started(8).await;
    provider.refuse(1, 60 * SECOND);
    let before = provider.started().len();
    provider.wait_for_started(before + 1).await;
    let closed_at = provider.started()[before].1;
    join_all(agents.into_iter().map(finish)).await;

    let later = provider.started()[before + 1..].to_vec();
    let later: Vec<(&str, Duration)> =
        later.into_iter().map(|(node, at)| (node, at - closed_at)).collect();
    let late = later.iter().filter(|(_, at)| *at > delay_max && *at < 60 * SECOND);
    assert_eq!(late.count(), 0, "{later:?}");
    // After the closing, the first calls of the nodes come one after the other.
    let first_of = |node: &str| {
        let mut calls = later.iter().filter(|(by, at)| *by == node && *at >= 60 * SECOND);
        calls.next().unwrap().1
    };
    let mut firsts = ["one", "two", "three"].map(first_of);
    firsts.sort();
    assert!(firsts.windows(2).all(|pair| pair[1] - pair[0] > SECOND), "{later:?}");
    assert!(provider.most() <= 6);
}

#[tokio::test(start_paused = true)]
async fn a_rejection_closes_the_gate_of_all_nodes_at_once() {
    check_closing(false, Duration::from_millis(500)).await;
}

#[tokio::test(start_paused = true)]
async fn a_rejection_closes_the_gate_of_all_nodes_without_hints() {
    check_closing(true, Duration::from_millis(1_200)).await;
}
