//! The lanes of writers.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use brigade_model::ids::Lane;
use tokio_postgres::types::Type;

use crate::connections::Connection;
use crate::error::{Result, corrupt};
use crate::write::lane_code;

/// The lanes that this process writes.
#[derive(Debug, Default)]
pub(crate) struct WrittenLanes(Mutex<HashMap<Lane, WrittenLane>>);

/// The state of a lane for its writer. A new lane has the generation 0.
#[derive(Clone, Copy, Debug, Default)]
struct WrittenLane {
    generation: i64,
    /// The highest generation that was asked for. A request for one may arrive late, too.
    asked_generation: i64,
    /// True after a commit without an answer.
    in_doubt: bool,
}

impl WrittenLanes {
    pub(crate) fn generation(&self, lane: Lane) -> i64 {
        self.with(lane, |written| written.generation)
    }

    pub(crate) fn set_in_doubt(&self, lane: Lane) {
        self.with(lane, |written| written.in_doubt = true);
    }

    /// Returns a generation that nobody has asked for, if a commit of the lane is in doubt.
    pub(crate) fn ask_generation(&self, lane: Lane) -> Option<i64> {
        self.with(lane, |written| {
            written.asked_generation += i64::from(written.in_doubt);
            written.in_doubt.then_some(written.asked_generation)
        })
    }

    /// Writes in a generation from now on. Earlier commits are not in doubt any more.
    pub(crate) fn begin_generation(&self, lane: Lane, generation: i64) {
        self.with(lane, |written| {
            written.generation = generation;
            written.in_doubt = false;
        });
    }

    fn with<T>(&self, lane: Lane, change: impl FnOnce(&mut WrittenLane) -> T) -> T {
        change(self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(lane).or_default())
    }
}

/// Opens a lane that belongs to no node.
pub(crate) async fn open_lane(connection: &Connection<'_>) -> Result<Lane> {
    let sql = "INSERT INTO {schema}.lanes(node) VALUES (0) RETURNING lane";
    parse_lane(connection.query_one(sql, &[]).await?.try_get(0)?)
}

pub(crate) fn parse_lane(lane: i32) -> Result<Lane> {
    Ok(Lane(u32::try_from(lane).map_err(|_| corrupt(format!("{lane} is not a lane")))?))
}

/// Moves a lane to a generation. Waits for a commit of an earlier one that has begun; one that arrives
/// later is refused. A closed lane stays as it is, since it accepts no commit at all.
pub(crate) async fn set_generation(
    connection: &Connection<'_>,
    lane: Lane,
    generation: i64,
) -> Result<()> {
    let sql = "UPDATE {schema}.lanes SET generation = $2 WHERE lane = $1 AND generation < $2";
    let values = [(&lane_code(lane) as _, Type::INT4), (&generation as _, Type::INT8)];
    connection.query(sql, &values).await.map(|_| ())
}
