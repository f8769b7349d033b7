//! Forwards the calls of `Fleet`.

use std::time::Duration;

use brigade_model::ids::{Lane, SessionId};
use brigade_store::{
    BoxFuture, CallAnswer, CallId, CallResult, ClaimedSession, Fleet, JoinResult, LeaseRenewal,
    LimitGrant, LimitReport, NewCall, NewNode, NodeId, NodeLoad, NodeRow, OpenCall, OpenCallQuery,
    RequiredLabels, SessionClaim, SessionOwner, SessionRelease, StoreFuture,
};

use crate::connections::ConnectionPool;
use crate::error::{Result, unavailable};
use crate::hints::Hints;
use crate::options::PostgresOptions;
use crate::store::PostgresStore;
use crate::{calls, claims, nodes, provider_limits};

/// The time that a renewal may take. Its node tries again before its lease is over.
const RENEW_TIMEOUT: Duration = Duration::from_secs(2);

/// The most connections for leases. A process has few nodes.
const LEASE_CONNECTIONS: usize = 4;

/// The most connections to close nodes and to send hints.
const WATCH_CONNECTIONS: usize = 2;

/// The most connections for reports about providers.
const LIMIT_CONNECTIONS: usize = 1;

/// The connections that only the coordination of nodes uses. Neither commits nor readers delay a
/// renewal, and a close that waits for a commit does not delay it either.
#[derive(Debug)]
pub(crate) struct FleetConnections {
    lease_pool: ConnectionPool,
    watch_pool: ConnectionPool,
    limit_pool: ConnectionPool,
    hints: Hints,
}

impl FleetConnections {
    pub(crate) fn new(pool: &ConnectionPool, options: &PostgresOptions) -> Result<Self> {
        Ok(Self {
            lease_pool: pool.separate(LEASE_CONNECTIONS),
            watch_pool: pool.separate(WATCH_CONNECTIONS),
            limit_pool: pool.separate(LIMIT_CONNECTIONS),
            hints: Hints::new(options)?,
        })
    }
}

impl Fleet for PostgresStore {
    fn join<'a>(&'a self, node: &'a NewNode) -> StoreFuture<'a, JoinResult> {
        Box::pin(async move { Ok(nodes::join(&self.fleet.lease_pool.get().await?, node).await?) })
    }

    fn renew<'a>(
        &'a self,
        node: NodeId,
        load: &'a NodeLoad,
    ) -> StoreFuture<'a, Option<LeaseRenewal>> {
        Box::pin(async move {
            let renewing =
                async { nodes::renew(&self.fleet.lease_pool.get().await?, node, load).await };
            match tokio::time::timeout(RENEW_TIMEOUT, renewing).await {
                Ok(renewed) => Ok(renewed?),
                Err(_) => Err(unavailable("the database does not answer").into()),
            }
        })
    }

    fn close_node(&self, node: NodeId) -> StoreFuture<'_, ()> {
        Box::pin(
            async move { Ok(nodes::close_node(&self.fleet.lease_pool.get().await?, node).await?) },
        )
    }

    fn close_expired(&self) -> StoreFuture<'_, Vec<NodeRow>> {
        Box::pin(
            async move { Ok(nodes::close_expired(&self.fleet.watch_pool.get().await?).await?) },
        )
    }

    fn nodes(&self) -> StoreFuture<'_, Vec<NodeRow>> {
        Box::pin(async move { Ok(nodes::nodes(&self.connection().await?).await?) })
    }

    fn set_draining(&self, node: NodeId, draining: bool) -> StoreFuture<'_, bool> {
        Box::pin(async move {
            Ok(nodes::set_draining(&self.connection().await?, node, draining).await?)
        })
    }

    fn claim<'a>(&'a self, claim: &'a SessionClaim) -> StoreFuture<'a, Vec<ClaimedSession>> {
        Box::pin(async move { Ok(claims::claim(&self.connection().await?, claim).await?) })
    }

    fn owned_sessions(&self, lane: Lane) -> StoreFuture<'_, Vec<SessionId>> {
        Box::pin(async move { Ok(claims::owned_sessions(&self.connection().await?, lane).await?) })
    }

    fn release<'a>(&'a self, release: &'a SessionRelease) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            let connection = self.commit_connection().await?;
            Ok(claims::release(&connection, self.lanes(), release).await?)
        })
    }

    fn require_labels<'a>(
        &'a self,
        session: SessionId,
        labels: &'a [String],
    ) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            Ok(claims::require_labels(&self.connection().await?, session, labels).await?)
        })
    }

    fn required_labels<'a>(
        &'a self,
        sessions: &'a [SessionId],
    ) -> StoreFuture<'a, Vec<RequiredLabels>> {
        Box::pin(
            async move { Ok(claims::required_labels(&self.connection().await?, sessions).await?) },
        )
    }

    fn owners<'a>(&'a self, sessions: &'a [SessionId]) -> StoreFuture<'a, Vec<SessionOwner>> {
        Box::pin(async move { Ok(claims::owners(&self.connection().await?, sessions).await?) })
    }

    fn ask<'a>(&'a self, call: &'a NewCall) -> StoreFuture<'a, bool> {
        Box::pin(async move { Ok(calls::ask(&self.connection().await?, call).await?) })
    }

    fn open_calls<'a>(&'a self, query: &'a OpenCallQuery) -> StoreFuture<'a, Vec<OpenCall>> {
        Box::pin(async move { Ok(calls::open_calls(&self.connection().await?, query).await?) })
    }

    fn replies<'a>(&'a self, calls: &'a [CallId]) -> StoreFuture<'a, Vec<CallResult>> {
        Box::pin(async move { Ok(calls::replies(&self.connection().await?, calls).await?) })
    }

    fn answer<'a>(&'a self, answer: &'a CallAnswer) -> StoreFuture<'a, ()> {
        Box::pin(async move { Ok(calls::answer(&self.connection().await?, answer).await?) })
    }

    fn remove_calls<'a>(&'a self, calls: &'a [CallId]) -> StoreFuture<'a, Vec<CallResult>> {
        Box::pin(async move { Ok(calls::remove_calls(&self.connection().await?, calls).await?) })
    }

    fn exchange_limits<'a>(
        &'a self,
        report: &'a LimitReport,
    ) -> StoreFuture<'a, Option<LimitGrant>> {
        Box::pin(async move {
            Ok(provider_limits::exchange(&self.fleet.limit_pool.get().await?, report).await?)
        })
    }

    fn notify(&self) -> StoreFuture<'_, ()> {
        Box::pin(async move { Ok(self.fleet.hints.send(&self.fleet.watch_pool).await?) })
    }

    fn next_hint(&self) -> BoxFuture<'_, ()> {
        Box::pin(self.fleet.hints.next())
    }
}
