//! The end of a loop.

use brigade_model::command::RecoveryFinding;
use brigade_model::ids::SessionId;
use brigade_model::refusal::{Refusal, RefusalKind};

use crate::commit::Decided;
use crate::supervisor::{Supervisor, TurnInputs};

impl Supervisor {
    /// Ends the loop: ends what exists only in this process, and stores that. The last loop ends the
    /// feed and the node.
    pub(crate) async fn shutdown(mut self) {
        self.member.end_performers(&self.performers).await;
        self.slots.pause();
        let Some(reply) = self.shutdown_reply.take() else {
            if let Some(owned) = &self.owned {
                owned.node.ended.cancel();
            }
            return self.feed.close();
        };
        self.inputs.close();
        let mut last = TurnInputs {
            received: std::mem::take(&mut self.retry_reports),
            ..TurnInputs::default()
        };
        while let Ok(input) = self.inputs.try_recv() {
            last.received.push(input);
        }
        loop {
            let decided = self.decide_all(std::mem::take(&mut last)).await;
            self.commit_without_performing(decided).await;
            last.received = std::mem::take(&mut self.retry_reports);
            if last.received.is_empty() || !self.wait_for_store().await {
                break;
            }
        }
        self.waiters.close();
        let mut stored = last.received.is_empty();
        let ids: Vec<SessionId> =
            self.trees.keys().chain(self.discarded_trees.keys()).copied().collect();
        for id in ids {
            stored &= self.shut_down_session(id).await;
            if !stored && self.remaining_tries == Some(0) {
                break;
            }
        }
        if self.member.end() {
            self.feed.close();
            if let Some(owned) = &self.owned {
                owned.end_node().await;
            }
        }
        // The receiver of the reply may open the store again, so release it first.
        drop(self);
        let not_stored = || Refusal::unavailable("the shutdown could not be stored completely");
        let _ = reply.send(if stored { Ok(()) } else { Err(not_stored()) });
    }

    async fn shut_down_session(&mut self, id: SessionId) -> bool {
        loop {
            if self.lost_sessions.contains(&id) {
                // Its new writer decides how its tasks continue.
                return true;
            }
            match self.load_session(id).await {
                Ok(()) => {
                    let mut decided = Decided::default();
                    self.recover_session(id, &RecoveryFinding::Shutdown, &mut decided).await;
                    if self.commit_without_performing(decided).await {
                        return true;
                    }
                }
                Err(refusal) if refusal.kind == RefusalKind::Unavailable => {}
                Err(_) => return false,
            }
            if !self.wait_for_store().await {
                return false;
            }
        }
    }

    /// Commits without performing actions. Tasks that were to start are queued again by the
    /// shutdown.
    async fn commit_without_performing(&mut self, decided: Decided) -> bool {
        let committed = self.commit(decided).await;
        let done = committed.map(|done| done.publish(&self.view, &self.feed).acknowledge());
        done.is_some()
    }
}
