//! Opens a schema as a store and forwards the calls of `Store`.

use brigade_model::call::JournalEntry;
use brigade_model::feed_cursor::FeedCursor;
use brigade_model::ids::{Lane, MessageNo, Owner, Position, RunNo, Seq, SessionId, TaskNo, Time};
use brigade_model::message::MessageKeyScope;
use brigade_model::name::{IdempotencyKey, SessionName, TaskName};
use brigade_model::task::{StoredTask, TaskRow};
use brigade_model::task_tree::{MessageKeyMark, MessageRow, SessionRow};
use brigade_store::{
    AcquireResult, Batch, EventPage, EventQuery, Fleet, JournalQuery, LoadedSession, MessagePage,
    MessageQuery, PruneResult, Retention, RunRow, Store, StoreError, StoreFuture, TaskQuery,
};

use crate::connections::{Connection, ConnectionPool};
use crate::error::Result;
use crate::fleet::FleetConnections;
use crate::lanes::WrittenLanes;
use crate::options::PostgresOptions;
use crate::prune::PartitionTimer;
use crate::schema::open_schema;
use crate::{events, lanes, load, prune, read, write};

/// The lanes that one process writes at the same time, by default.
const PARALLEL_LANES: usize = 2;

/// A store of sessions in a schema of a PostgreSQL database, which several nodes share.
///
/// A commit survives the end of the database's process, as far as its settings say so
/// (`synchronous_commit`, replication).
#[derive(Debug)]
pub struct PostgresStore {
    pool: ConnectionPool,
    lanes: WrittenLanes,
    pub(crate) fleet: FleetConnections,
    next_partitions: PartitionTimer,
}

impl PostgresStore {
    /// Connects to a database, and creates or migrates the schema.
    ///
    /// A schema with tables of another program or of a newer version is refused and not changed.
    pub async fn open(options: &PostgresOptions) -> Result<Self, StoreError> {
        let pool = ConnectionPool::new(options)?;
        open_schema(&pool).await?;
        prune::create_partitions(&pool.get().await?).await;
        Ok(Self {
            fleet: FleetConnections::new(&pool, options)?,
            pool,
            lanes: WrittenLanes::default(),
            next_partitions: PartitionTimer::new(),
        })
    }

    pub(crate) async fn connection(&self) -> Result<Connection<'_>> {
        self.pool.get().await
    }

    pub(crate) async fn commit_connection(&self) -> Result<Connection<'_>> {
        self.pool.get_for_commit().await
    }

    pub(crate) fn lanes(&self) -> &WrittenLanes {
        &self.lanes
    }
}

impl Store for PostgresStore {
    fn commit<'a>(&'a self, batch: &'a Batch) -> StoreFuture<'a, Position> {
        Box::pin(async move {
            let connection = self.pool.get_for_commit().await?;
            let first = write::commit(&connection, &self.lanes, batch).await?;
            if self.next_partitions.is_due() {
                prune::create_partitions(&connection).await;
            }
            Ok(first)
        })
    }

    fn refuse_late_commits(&self, lane: Lane) -> StoreFuture<'_, ()> {
        Box::pin(async move {
            if let Some(generation) = self.lanes.ask_generation(lane) {
                let connection = self.pool.get_for_commit().await?;
                lanes::set_generation(&connection, lane, generation).await?;
                self.lanes.begin_generation(lane, generation);
            }
            Ok(())
        })
    }

    fn open_lane(&self) -> StoreFuture<'_, Lane> {
        Box::pin(async move { Ok(lanes::open_lane(&self.connection().await?).await?) })
    }

    fn parallel_lanes(&self) -> usize {
        PARALLEL_LANES
    }

    fn sessions(&self) -> StoreFuture<'_, Vec<SessionRow>> {
        Box::pin(async move { Ok(read::sessions(&self.connection().await?).await?) })
    }

    fn session(&self, id: SessionId) -> StoreFuture<'_, Option<SessionRow>> {
        Box::pin(async move { Ok(read::session(&self.connection().await?, id).await?) })
    }

    fn session_named<'a>(&'a self, name: &'a SessionName) -> StoreFuture<'a, Option<SessionRow>> {
        Box::pin(async move { Ok(read::session_named(&self.connection().await?, name).await?) })
    }

    fn acquire<'a>(&'a self, lane: Lane, row: &'a SessionRow) -> StoreFuture<'a, AcquireResult> {
        Box::pin(async move { Ok(write::acquire(&self.connection().await?, lane, row).await?) })
    }

    fn fleet(&self) -> Option<&dyn Fleet> {
        Some(self)
    }

    fn load(&self, id: SessionId) -> StoreFuture<'_, Option<LoadedSession>> {
        Box::pin(async move { Ok(load::load(&mut self.connection().await?, id).await?) })
    }

    fn task(&self, id: SessionId, no: TaskNo) -> StoreFuture<'_, Option<TaskRow>> {
        Box::pin(async move { Ok(read::task(&self.connection().await?, id, no).await?) })
    }

    fn missing_tasks<'a>(
        &'a self,
        id: SessionId,
        numbers: &'a [TaskNo],
    ) -> StoreFuture<'a, Vec<TaskNo>> {
        Box::pin(
            async move { Ok(read::missing_tasks(&self.connection().await?, id, numbers).await?) },
        )
    }

    fn task_named<'a>(
        &'a self,
        id: SessionId,
        owner: Option<Owner>,
        name: &'a TaskName,
    ) -> StoreFuture<'a, Option<StoredTask>> {
        Box::pin(
            async move { Ok(read::task_named(&self.connection().await?, id, owner, name).await?) },
        )
    }

    fn tasks<'a>(
        &'a self,
        id: SessionId,
        query: &'a TaskQuery,
    ) -> StoreFuture<'a, Vec<StoredTask>> {
        Box::pin(async move { Ok(read::tasks(&self.connection().await?, id, query).await?) })
    }

    fn journal(&self, id: SessionId, no: TaskNo) -> StoreFuture<'_, Vec<JournalEntry>> {
        Box::pin(async move {
            let whole = JournalQuery { after: Seq(0), limit: usize::MAX };
            Ok(read::journal_page(&self.connection().await?, id, no, &whole).await?)
        })
    }

    fn journal_page<'a>(
        &'a self,
        id: SessionId,
        no: TaskNo,
        query: &'a JournalQuery,
    ) -> StoreFuture<'a, Vec<JournalEntry>> {
        Box::pin(
            async move { Ok(read::journal_page(&self.connection().await?, id, no, query).await?) },
        )
    }

    fn run(&self, id: SessionId, no: TaskNo, run: RunNo) -> StoreFuture<'_, Option<RunRow>> {
        Box::pin(async move { Ok(read::run(&self.connection().await?, id, no, run).await?) })
    }

    fn message(&self, id: SessionId, no: MessageNo) -> StoreFuture<'_, Option<MessageRow>> {
        Box::pin(async move { Ok(read::message(&self.connection().await?, id, no).await?) })
    }

    fn messages<'a>(
        &'a self,
        id: SessionId,
        query: &'a MessageQuery,
    ) -> StoreFuture<'a, MessagePage> {
        Box::pin(async move { Ok(read::messages(&self.connection().await?, id, query).await?) })
    }

    fn message_key<'a>(
        &'a self,
        id: SessionId,
        scope: MessageKeyScope,
        key: &'a IdempotencyKey,
    ) -> StoreFuture<'a, Option<MessageKeyMark>> {
        Box::pin(
            async move { Ok(read::message_key(&self.connection().await?, id, scope, key).await?) },
        )
    }

    fn events<'a>(&'a self, query: &'a EventQuery) -> StoreFuture<'a, EventPage> {
        Box::pin(async move { Ok(events::events(&self.connection().await?, query).await?) })
    }

    fn cursor(&self) -> StoreFuture<'_, FeedCursor> {
        Box::pin(async move { Ok(events::cursor(&self.connection().await?).await?) })
    }

    fn prune<'a>(&'a self, retention: &'a Retention, now: Time) -> StoreFuture<'a, PruneResult> {
        Box::pin(async move { Ok(prune::prune(&self.connection().await?, retention, now).await?) })
    }
}
