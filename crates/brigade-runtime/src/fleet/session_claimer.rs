//! Claims sessions that need an owner, and gives them to the loops.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use brigade_model::ids::Lane;
use brigade_store::{
    AcquireResult, ClaimedSession, LoadedSession, SessionClaim, SessionRelease, StoreError,
};
use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use tokio::sync::oneshot;

use super::Node;
use super::owned_sessions::{ClaimedSessions, LoadedClaim};
use super::unreadable_sessions::is_unreadable;
use crate::clock::Clock;
use crate::ids::random_share;
use crate::loop_input::LoopInput;
use crate::loops::{LoopSenders, loop_of};

/// The most sessions that one statement claims.
const SLICE: usize = 100;
/// The number of sessions that are loaded at once.
const LOADS: usize = 8;
/// The time between two looks for sessions to claim, without a hint.
const CLAIM_INTERVAL: Duration = Duration::from_millis(500);
/// The most time from a hint to a look for sessions to claim.
const HINT_PAUSE: Duration = Duration::from_millis(40);
/// The most time between two slices.
const SLICE_PAUSE: Duration = Duration::from_millis(80);
/// The number of looks after which the node looks for sessions that it owns without knowing.
const UNHELD_INTERVAL: u32 = 120;

pub(crate) async fn claim_sessions(node: Arc<Node>, inputs: LoopSenders) {
    let mut looks: u32 = 0;
    loop {
        // Nodes that see the same event do not all ask at once.
        let pause = CLAIM_INTERVAL.mul_f64(0.75 + 0.5 * random_share());
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = node.claimable.notified() => {}
            () = node.fleet().next_hint() => {
                tokio::time::sleep(HINT_PAUSE.mul_f64(random_share())).await;
            }
        }
        looks = looks.wrapping_add(1);
        if !node.lease.is_held() {
            continue;
        }
        let must_look = node.may_own_unheld.swap(false, Ordering::Relaxed)
            || looks.is_multiple_of(UNHELD_INTERVAL);
        if must_look && let Err(error) = load_unheld(&node, &inputs).await {
            tracing::warn!(%error, "sessions of this node cannot be read");
            node.may_own_unheld.store(true, Ordering::Relaxed);
        }
        release_unreadable(&node).await;
        if let Err(error) = claim_all(&node, &inputs).await {
            tracing::debug!(%error, "sessions cannot be claimed");
            node.may_own_unheld.store(true, Ordering::Relaxed);
        }
    }
}

/// Claims until there is nothing more, slice by slice. The loops have each slice before the next.
pub(crate) async fn claim_all(node: &Node, inputs: &LoopSenders) -> Result<(), StoreError> {
    while node.lease.is_held() && !node.is_draining.load(Ordering::Relaxed) {
        let held = node.held_sessions();
        let free = node.options.capacity.map_or(u64::MAX, |most| most.saturating_sub(held));
        let limit = usize::try_from(free).unwrap_or(usize::MAX).min(SLICE);
        if limit == 0 {
            break;
        }
        node.is_claiming.store(true, Ordering::Relaxed);
        let claimed = claim_slice(node, inputs, limit).await;
        node.is_claiming.store(false, Ordering::Relaxed);
        if claimed? == 0 {
            break;
        }
        // The other nodes get a part of many sessions.
        tokio::time::sleep(SLICE_PAUSE.mul_f64(random_share())).await;
    }
    Ok(())
}

/// Claims a slice, and waits until the loops have it. Returns the number of claimed sessions.
async fn claim_slice(node: &Node, inputs: &LoopSenders, limit: usize) -> Result<usize, StoreError> {
    let lanes = node.lanes();
    let lane = lanes.first().copied().unwrap_or_default();
    let skipped = node.unreadable.skipped(node.lease.now());
    let claim = SessionClaim { node: node.id(), lane, now: node.clock.now(), limit, skipped };
    let claimed = node.fleet().claim(&claim).await?;
    if claimed.is_empty() {
        return Ok(0);
    }
    let mut loaded = load_all(node, lane, &claimed).await;
    release_unreadable(node).await;
    loaded.retain_mut(|claim| {
        let row = &claim.session.row;
        let found = claimed.iter().find(|it| it.id == row.id && it.epoch == row.epoch);
        claim.last = found.map(|session| session.last);
        found.is_some()
    });
    let loaded = move_to_lanes(node, &lanes, loaded).await;
    give_to_loops(inputs, &lanes, loaded).await;
    Ok(claimed.len())
}

/// Lets the loops acquire sessions that the store has for this node's lanes, and the loops have not.
async fn load_unheld(node: &Node, inputs: &LoopSenders) -> Result<(), StoreError> {
    for lane in &*node.lanes() {
        let owned = node.fleet().owned_sessions(*lane).await?;
        inputs.send_parts(owned, |session| *session, LoopInput::HoldOwned).await;
    }
    Ok(())
}

/// Moves claimed sessions from the lane of the claim to those of their loops. One that cannot be moved
/// now is acquired by its loop later.
async fn move_to_lanes(node: &Node, lanes: &[Lane], claimed: Vec<LoadedClaim>) -> Vec<LoadedClaim> {
    let moves = claimed.into_iter().map(|mut claim| async move {
        let index = loop_of(claim.session.row.id, lanes.len());
        if index > 0 {
            match node.store().acquire(lanes[index], &claim.session.row).await {
                Ok(AcquireResult::Acquired(acquired)) => claim.session.row.epoch = acquired.epoch,
                other => {
                    tracing::debug!(?other, "a claimed session is not in the lane of its loop yet");
                    node.may_own_unheld.store(true, Ordering::Relaxed);
                    return None;
                }
            }
        }
        Some(claim)
    });
    let moved: Vec<Option<LoadedClaim>> =
        stream::iter(moves).buffer_unordered(LOADS).collect().await;
    moved.into_iter().flatten().collect()
}

/// Loads claimed sessions. Those that this node cannot read are to be released.
async fn load_all(node: &Node, lane: Lane, claimed: &[ClaimedSession]) -> Vec<LoadedClaim> {
    let store = node.store();
    let loads = stream::iter(claimed.iter().copied());
    let loads = loads.map(|claimed| async move { (claimed, store.load(claimed.id).await) });
    let results: Vec<(ClaimedSession, Result<Option<LoadedSession>, StoreError>)> =
        loads.buffer_unordered(LOADS).collect().await;
    let mut loaded = Vec::with_capacity(results.len());
    for (claimed, result) in results {
        let ClaimedSession { id, epoch, seq, .. } = claimed;
        match result {
            Ok(session) => {
                node.unreadable.remove(id);
                loaded.extend(session.map(|session| LoadedClaim { session, last: None }));
            }
            Err(error) if is_unreadable(&error) => {
                tracing::error!(%error, session = %id, "a session cannot be read");
                // Due at once, so that another node claims it.
                let next_due = Some(node.clock.now());
                let release = SessionRelease { lane, id, epoch, seq, next_due, next_owner: None };
                node.unreadable.add(node.lease.now(), release);
            }
            Err(error) => {
                tracing::warn!(%error, session = %id, "a claimed session cannot be loaded");
                node.may_own_unheld.store(true, Ordering::Relaxed);
            }
        }
    }
    loaded
}

/// Gives up the sessions that this node cannot read. A release that fails is repeated with the next look.
pub(crate) async fn release_unreadable(node: &Node) {
    for release in node.unreadable.releases() {
        match node.fleet().release(&release).await {
            Ok(_) => node.unreadable.set_released(release.id),
            Err(error) => tracing::warn!(%error, session = %release.id, "it is released later"),
        }
    }
}

/// Sends loaded sessions to their loops and waits until these have them.
async fn give_to_loops(inputs: &LoopSenders, lanes: &[Lane], loaded: Vec<LoadedClaim>) {
    let parts = inputs.split(loaded, |claim| claim.session.row.id);
    let given = parts.into_iter().zip(lanes).map(|((sender, sessions), lane)| async move {
        let (done, waited) = oneshot::channel();
        let claimed = ClaimedSessions { lane: *lane, sessions };
        if !claimed.sessions.is_empty()
            && sender.send(LoopInput::Claimed { claimed, done }).await.is_ok()
        {
            let _ = waited.await;
        }
    });
    join_all(given).await;
}
