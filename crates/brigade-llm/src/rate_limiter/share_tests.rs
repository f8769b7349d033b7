//! Tests of a limiter that has a share of the limits.

use super::tests::{Provider, call, limited_model, max_running};
use super::*;

fn share(running: u64) -> LimitShare {
    LimitShare { running, ..LimitShare::default() }
}

fn grant(share: LimitShare) -> ShareGrant {
    ShareGrant {
        share,
        added: ShareLevels::default(),
        closed_for: None,
        turn: OpeningTurn::default(),
    }
}

#[tokio::test(start_paused = true)]
async fn no_call_starts_without_a_share() {
    let provider = Provider::new();
    let (limiter, model) = limited_model(&provider, max_running(8));
    let handle = limiter.share();
    let calls = futures_util::future::join_all((0..4).map(|_| call(&model, "any")));
    let granted = async {
        handle.wait_for_change().await;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let demand = handle.demand();
        assert_eq!((demand.calls, demand.waiting), (4, 4));
        assert!(demand.tokens > 0);
        handle.grant(&grant(share(2)));
        assert_eq!(limiter.status().share, Some(share(2)));
    };
    tokio::join!(calls, granted);
    assert_eq!(provider.started(), [5, 5, 15, 15]);
    assert_eq!(handle.demand(), CallDemand::default());
}

#[tokio::test(start_paused = true)]
async fn running_calls_are_not_given_up() {
    let provider = Provider::new();
    let (limiter, model) = limited_model(&provider, max_running(8));
    let handle = limiter.share();
    handle.grant(&grant(share(5)));
    let calls = futures_util::future::join_all((0..7).map(|_| call(&model, "any")));
    let lowered = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(handle.lower(Some(share(1))).held, share(5));
        assert_eq!(handle.lower(None).held, share(5));
        tokio::time::sleep(Duration::from_secs(12)).await;
        // Of the two calls that wait, one has started after the end of all others.
        assert_eq!((handle.demand().calls, handle.demand().waiting), (2, 1));
        assert_eq!(handle.lower(Some(share(0))).held, share(1));
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(handle.demand().waiting, 1);
        handle.grant(&grant(share(1)));
    };
    tokio::join!(calls, lowered);
    assert_eq!(handle.lower(Some(share(0))).held, share(0));
}

#[tokio::test(start_paused = true)]
async fn levels_go_with_the_share() {
    let options = RateLimiterOptions {
        requests_per_minute: Some(60),
        tokens_per_minute: Some(6_000),
        ..max_running(8)
    };
    let limiter = RateLimiter::new(options);
    let handle = limiter.share();
    assert_eq!(handle.limits().tokens_per_minute, 6_000);
    let half = LimitShare { running: 4, requests_per_minute: 30, tokens_per_minute: 3_000 };
    let added = ShareLevels { requests: 10.0, tokens: 600.0 };
    handle.grant(&ShareGrant { added, ..grant(half) });
    tokio::time::sleep(Duration::from_secs(10)).await;
    // Half a request and 50 tokens come with each second.
    let third = LimitShare { running: 4, requests_per_minute: 10, tokens_per_minute: 1_000 };
    let report = handle.lower(Some(third));
    assert_eq!(report.held, third);
    let is_near = |value: f64, expected: f64| (value - expected).abs() < 0.01;
    assert!(is_near(report.given_up.requests, 10.0), "{report:?}");
    assert!(is_near(report.given_up.tokens, 1_100.0 * 2.0 / 3.0), "{report:?}");
    let report = handle.lower(Some(LimitShare::default()));
    assert!(is_near(report.given_up.requests, 5.0), "{report:?}");
    assert!(is_near(report.given_up.tokens, 1_100.0 / 3.0), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn a_request_above_the_share_waits_for_all_of_it() {
    let provider = Provider::new();
    let options = RateLimiterOptions { tokens_per_minute: Some(60_000), ..max_running(8) };
    let (limiter, model) = limited_model(&provider, options);
    let handle = limiter.share();
    handle.grant(&grant(LimitShare { running: 8, tokens_per_minute: 600, ..share(8) }));
    // Each call is estimated at 1001 tokens, and uses none.
    futures_util::future::join_all((0..2).map(|_| call(&model, "any"))).await;
    // The share of a minute, and again after the debt, of which the end of the call has returned all.
    assert_eq!(provider.started(), [60, 70]);
}

#[tokio::test(start_paused = true)]
async fn closings_of_other_processes_close_the_limiter() {
    let provider = Provider::new();
    let (limiter, model) = limited_model(&provider, max_running(8));
    let handle = limiter.share();
    let minute = Duration::from_secs(60);
    let turn = OpeningTurn { earlier: 2, processes: 4 };
    let closing = ShareGrant { closed_for: Some(minute), turn, ..grant(share(8)) };
    handle.grant(&closing);
    assert_eq!(limiter.status().closed_for, Some(minute));
    assert_eq!(handle.lower(None).closed_for, None, "only own closings are reported");
    let known = async {
        // The same closing as before, as it looks a second later.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let rest = minute - Duration::from_millis(950);
        handle.grant(&ShareGrant { closed_for: Some(rest), ..closing });
        tokio::time::sleep(Duration::from_millis(59_010)).await;
        handle.grant(&ShareGrant { closed_for: Some(Duration::from_millis(40)), ..closing });
    };
    let calls = futures_util::future::join_all((0..4).map(|_| call(&model, "any")));
    tokio::join!(known, calls);
    // Third of four processes, which start one call every two seconds together.
    assert_eq!(provider.started(), [64, 72, 74, 74]);

    provider.seen().refuse = 1;
    provider.seen().retry_after = Some(minute);
    call(&model, "refused").await.clear();
    assert_eq!(handle.lower(None).closed_for, Some(minute));
    handle.wait_for_change().await;
}

#[tokio::test(start_paused = true)]
async fn a_later_handle_replaces_an_earlier_one() {
    let limiter = RateLimiter::new(max_running(8));
    let first = limiter.share();
    first.grant(&grant(share(4)));
    let second = limiter.share();
    assert!(!first.is_current() && second.is_current());
    assert_eq!(limiter.status().share, Some(share(0)));
    first.grant(&grant(share(4)));
    first.lower(Some(share(0)));
    assert_eq!(limiter.status().share, Some(share(0)));
    second.grant(&grant(share(3)));
    assert_eq!(limiter.status().share, Some(share(3)));
}

#[tokio::test(start_paused = true)]
async fn requests_are_limited_per_minute() {
    let provider = Provider::new();
    let options = RateLimiterOptions { requests_per_minute: Some(4), ..max_running(8) };
    let (_, model) = limited_model(&provider, options);
    futures_util::future::join_all((0..6).map(|_| call(&model, "any"))).await;
    assert_eq!(provider.started(), [0, 0, 0, 0, 15, 30]);
}
