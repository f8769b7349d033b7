//! Removes old data in slices. Each slice is one short transaction.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use brigade_model::ids::Time;
use brigade_store::columns::to_i64;
use brigade_store::{PruneResult, Retention, StoreError};
use tokio_postgres::types::Type;

use crate::connections::{Connection, Parameter};
use crate::error::{DAY_NEEDED, PostgresError, Result};
use crate::read::to_u64;

/// The most rows of tasks or events that one slice removes.
const SLICE: i64 = 500;

/// The time between two looks at the partitions.
const PARTITION_INTERVAL: Duration = Duration::from_secs(6 * 60 * 60);

/// The number of days after today that have a partition.
const DAYS_AHEAD: i64 = 3;

pub(crate) async fn prune(
    connection: &Connection<'_>,
    retention: &Retention,
    now: Time,
) -> Result<PruneResult> {
    let cutoff = |age: u64| now.0.checked_sub(age).map(to_i64);
    let mut pruned = PruneResult::default();
    if let Some(until) = cutoff(retention.ended.0) {
        prune_tasks(connection, until, &mut pruned).await?;
        prune_sessions(connection, until, &mut pruned).await?;
    }
    let until = cutoff(retention.events.0);
    if let Some(until) = until {
        remove_days(connection, until, &mut pruned).await?;
    }
    prune_events(connection, until, &mut pruned).await?;
    connection.query("SELECT {schema}.remove_closed_nodes()", &[]).await?;
    create_partitions(connection).await;
    Ok(pruned)
}

/// The time of the next look at the partitions. It does not depend on prunes, which a program need not
/// make.
#[derive(Debug)]
pub(crate) struct PartitionTimer(Mutex<Instant>);

impl PartitionTimer {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Instant::now() + PARTITION_INTERVAL))
    }

    /// Returns true once after each interval.
    pub(crate) fn is_due(&self) -> bool {
        let now = Instant::now();
        let mut due = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = *due <= now;
        if is_due {
            *due = now + PARTITION_INTERVAL;
        }
        is_due
    }
}

/// Creates the partitions of the next days. Without one, events of that day go to the default
/// partition, so a failure is only logged.
pub(crate) async fn create_partitions(connection: &Connection<'_>) {
    let sql = "SELECT {schema}.create_partitions($1)";
    if let Err(error) = connection.query(sql, &[(&DAYS_AHEAD, Type::INT8)]).await {
        tracing::warn!(error = %error.0, "the partitions of the next days were not created");
    }
}

/// Removes whole days. A commit or a reader in the way delays the rest until the next prune.
async fn remove_days(
    connection: &Connection<'_>,
    until: i64,
    pruned: &mut PruneResult,
) -> Result<()> {
    loop {
        let sql = "SELECT * FROM {schema}.remove_day($1)";
        let row = match connection.query_first(sql, &[(&until, Type::INT8)]).await {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(()),
            Err(PostgresError(StoreError::Unavailable(reason))) if reason.contains(DAY_NEEDED) => {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let day: i64 = row.try_get(0)?;
        pruned.events += to_u64(row.try_get(1)?)?;
        let sql = "SELECT {schema}.drop_day($1)";
        match connection.query_one(sql, &[(&day, Type::INT8)]).await {
            Ok(row) if row.try_get(0)? => {}
            Ok(_) => return Ok(()),
            Err(PostgresError(StoreError::Unavailable(reason))) => {
                tracing::info!(reason, "the partition of an old day is dropped later");
                return Ok(());
            }
            Err(error) => return Err(error),
        }
    }
}

async fn prune_tasks(
    connection: &Connection<'_>,
    until: i64,
    pruned: &mut PruneResult,
) -> Result<()> {
    // The end, the session and the number of the last examined task.
    let mut last: Option<(i64, i64, i64)> = Some((-1, 0, 0));
    while let Some((ended_at, session, no)) = last {
        let sql = "SELECT * FROM {schema}.prune_tasks($1, $2, $3, $4, $5)";
        let values: [Parameter<'_>; 5] =
            [&until, &ended_at, &session, &no, &SLICE].map(|value| (value as _, Type::INT8));
        let row = connection.query_one(sql, &values).await?;
        pruned.tasks += to_u64(row.try_get(0)?)?;
        let next: Option<i64> = row.try_get(1)?;
        last = match next {
            Some(ended_at) => Some((ended_at, row.try_get(2)?, row.try_get(3)?)),
            None => None,
        };
    }
    Ok(())
}

async fn prune_sessions(
    connection: &Connection<'_>,
    until: i64,
    pruned: &mut PruneResult,
) -> Result<()> {
    loop {
        let sql = "SELECT * FROM {schema}.prune_session($1, $2)";
        let values = [(&until as _, Type::INT8), (&SLICE as _, Type::INT8)];
        let row = connection.query_one(sql, &values).await?;
        pruned.tasks += to_u64(row.try_get(0)?)?;
        pruned.sessions += to_u64(row.try_get(1)?)?;
        if !row.try_get::<_, bool>(2)? {
            return Ok(());
        }
    }
}

/// Removes events from the beginning of each lane only, so that the stored ones have no gap.
async fn prune_events(
    connection: &Connection<'_>,
    until: Option<i64>,
    pruned: &mut PruneResult,
) -> Result<()> {
    let sql = "SELECT lane FROM {schema}.lanes WHERE head > pruned_to ORDER BY lane";
    for lane in connection.query(sql, &[]).await? {
        let lane: i32 = lane.try_get(0)?;
        loop {
            let sql = "SELECT {schema}.prune_lane($1, $2, $3)";
            let values: [Parameter<'_>; 3] =
                [(&lane, Type::INT4), (&until, Type::INT8), (&SLICE, Type::INT8)];
            let removed: i64 = connection.query_one(sql, &values).await?.try_get(0)?;
            pruned.events += to_u64(removed)?;
            if removed < SLICE {
                break;
            }
        }
    }
    Ok(())
}
