//! The lanes of writers.

use brigade_model::ids::Lane;

use crate::connections::Connection;
use crate::error::{Result, corrupt};

/// Opens a lane that belongs to no node.
pub(crate) async fn open_lane(connection: &Connection<'_>) -> Result<Lane> {
    let sql = "INSERT INTO {schema}.lanes(node) VALUES (0) RETURNING lane";
    let lane: i32 = connection.query_one(sql, &[]).await?.try_get(0)?;
    Ok(Lane(u32::try_from(lane).map_err(|_| corrupt(format!("{lane} is not a lane")))?))
}
