//! The lanes of writers.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use brigade_model::ids::Lane;
use tokio_postgres::types::Type;

use crate::connections::Connection;
use crate::error::{Result, corrupt};
use crate::write::lane_code;

/// The generations in which this process writes its lanes. A new lane has the generation 0.
#[derive(Debug, Default)]
pub(crate) struct LaneGenerations(Mutex<HashMap<Lane, i64>>);

impl LaneGenerations {
    pub(crate) fn get(&self, lane: Lane) -> i64 {
        let generations = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        generations.get(&lane).copied().unwrap_or(0)
    }

    pub(crate) fn set(&self, lane: Lane, generation: i64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(lane, generation);
    }
}

/// Opens a lane that belongs to no node.
pub(crate) async fn open_lane(connection: &Connection<'_>) -> Result<Lane> {
    let sql = "INSERT INTO {schema}.lanes(node) VALUES (0) RETURNING lane";
    let lane: i32 = connection.query_one(sql, &[]).await?.try_get(0)?;
    Ok(Lane(u32::try_from(lane).map_err(|_| corrupt(format!("{lane} is not a lane")))?))
}

/// Takes the next generation of a lane. Waits for a commit of an earlier one that has begun; one that
/// arrives later is refused. A closed lane, which accepts no commit at all, has none.
pub(crate) async fn next_generation(
    connection: &Connection<'_>,
    lane: Lane,
) -> Result<Option<i64>> {
    let sql = "UPDATE {schema}.lanes SET generation = generation + 1 WHERE lane = $1 AND open \
               RETURNING generation";
    let row = connection.query_first(sql, &[(&lane_code(lane), Type::INT4)]).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}
