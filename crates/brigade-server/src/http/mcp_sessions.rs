//! The sessions of MCP clients, as records: they survive a restart of the server.
//!
//! A session belongs to the token that opened it and to one session of tasks. The key of its record
//! starts with the id of the token, so no other token finds it.

use std::time::Duration;

use brigade_mcp::server::streamable_http::OpenedMcpSession;
use brigade_model::ids::{ConversationId, Millis, SessionId, Time};
use brigade_model::refusal::Refusal;
use brigade_runtime::Runtime;
use brigade_store::{
    ExpectedVersion, NewRecord, Record, RecordItem, RecordKey, RecordKind, RecordQuery,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

const MCP_SESSION_KIND: RecordKind = RecordKind::from_static("mcp-session");
/// The time without requests after which a session expires.
const LIFETIME: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// The age of an expiry from which a request renews it. A write for each request would cost too
/// much.
const RENEWAL_AGE: Duration = Duration::from_secs(60 * 60);
/// The most sessions of one token. One more ends the session that was unused for the longest time.
pub(crate) const SESSIONS_PER_TOKEN_MAX: usize = 64;

/// A session as stored.
#[derive(Debug, Serialize, Deserialize)]
struct StoredSession {
    /// The session of its tasks.
    session: SessionId,
    opened_at: Time,
    /// The parameters of `initialize`.
    params: Value,
}

/// The sessions that one token has opened for one session of tasks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct McpSessions<'a> {
    pub(crate) runtime: &'a Runtime,
    pub(crate) token: &'a str,
    pub(crate) session: SessionId,
    /// The end of the token, which ends its sessions too.
    pub(crate) expires_at: Option<Time>,
}

/// Removes all sessions of a token, and returns their ids.
pub(crate) async fn remove_sessions_of(
    runtime: &Runtime,
    token: &str,
) -> Result<Vec<String>, Refusal> {
    let mut removed = Vec::new();
    for item in list_sessions_of(runtime, token).await? {
        let id = session_id(&item).to_owned();
        runtime.records().take(&session_key(token, &id)?).await?;
        removed.push(id);
    }
    Ok(removed)
}

impl McpSessions<'_> {
    /// Returns the parameters of a session, and renews its expiry.
    pub(crate) async fn find(&self, id: &ConversationId) -> Result<Option<Value>, Refusal> {
        let key = self.key(id.as_str())?;
        let Some(record) = self.runtime.records().get(&key).await? else { return Ok(None) };
        let stored: StoredSession = serde_json::from_slice(&record.value)
            .map_err(|error| Refusal::internal(format!("a stored session is wrong: {error}")))?;
        if stored.session != self.session {
            return Ok(None);
        }
        self.renew(key, record).await?;
        Ok(Some(stored.params))
    }

    /// Stores a new session. Returns the sessions that it has ended.
    pub(crate) async fn add(&self, opened: &OpenedMcpSession) -> Result<Vec<String>, Refusal> {
        let stored = StoredSession {
            session: self.session,
            opened_at: self.runtime.clock().now(),
            params: opened.params.clone(),
        };
        let value = serde_json::to_vec(&stored)
            .map_err(|error| Refusal::internal(format!("a session cannot be stored: {error}")))?;
        let key = self.key(&opened.id)?;
        let record = NewRecord::new(key.clone(), value)?;
        self.runtime.records().put_for(self.lifetime(), record, ExpectedVersion::Absent).await?;
        self.end_unused(key.key()).await
    }

    /// Removes a session.
    pub(crate) async fn remove(&self, id: &str) -> Result<(), Refusal> {
        self.runtime.records().take(&self.key(id)?).await?;
        Ok(())
    }

    async fn renew(&self, key: RecordKey, record: Record) -> Result<(), Refusal> {
        let lifetime = self.lifetime();
        let fresh = Millis::from(lifetime.saturating_sub(RENEWAL_AGE));
        let fresh = self.runtime.clock().now().after(fresh);
        if record.expires_at.is_some_and(|expires_at| expires_at > fresh) {
            return Ok(());
        }
        let expected = ExpectedVersion::Version(record.version);
        let renewed = NewRecord::new(key, record.value)?;
        // A conflict says that another request has renewed or ended the session.
        self.runtime.records().put_for(lifetime, renewed, expected).await?;
        Ok(())
    }

    /// Removes the sessions over the limit, except the new one.
    async fn end_unused(&self, new: &str) -> Result<Vec<String>, Refusal> {
        let mut others = list_sessions_of(self.runtime, self.token).await?;
        others.retain(|item| item.key != new);
        others.sort_by_key(|item| item.record.expires_at);
        let ended_count = (others.len() + 1).saturating_sub(SESSIONS_PER_TOKEN_MAX);
        let mut ended = Vec::with_capacity(ended_count);
        for item in others.into_iter().take(ended_count) {
            let id = session_id(&item).to_owned();
            self.runtime.records().take(&self.key(&id)?).await?;
            ended.push(id);
        }
        Ok(ended)
    }

    fn lifetime(&self) -> Duration {
        let now = self.runtime.clock().now();
        let remaining = self.expires_at.map(|expires_at| Duration::from(expires_at.since(now)));
        remaining.map_or(LIFETIME, |remaining| remaining.min(LIFETIME))
    }

    fn key(&self, id: &str) -> Result<RecordKey, Refusal> {
        session_key(self.token, id)
    }
}

async fn list_sessions_of(runtime: &Runtime, token: &str) -> Result<Vec<RecordItem>, Refusal> {
    let prefix = format!("{token}.");
    let mut items = Vec::new();
    let mut query = RecordQuery::new(MCP_SESSION_KIND).after(prefix.clone());
    loop {
        let page = runtime.records().list(&query).await?;
        let has_others = page.items.iter().any(|item| !item.key.starts_with(&prefix));
        items.extend(page.items.into_iter().filter(|item| item.key.starts_with(&prefix)));
        match page.next {
            Some(next) if !has_others => query = query.after(next),
            _ => return Ok(items),
        }
    }
}

fn session_key(token: &str, id: &str) -> Result<RecordKey, Refusal> {
    Ok(RecordKey::new(MCP_SESSION_KIND, format!("{token}.{id}"))?)
}

fn session_id(item: &RecordItem) -> &str {
    item.key.split('.').next_back().unwrap_or_default()
}
