//! Nodes and their leases, by the clock of the database.

use brigade_model::ids::{Millis, Time};
use brigade_store::columns::to_i64;
use brigade_store::{JoinResult, JoinedNode, LeaseRenewal, NewNode, NodeId, NodeLoad, NodeRow};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::connections::{Connection, Parameter};
use crate::error::Result;
use crate::lanes::parse_lane;
use crate::read::to_u64;

/// The columns of a node's row `n`, as [`decode_node`] reads them.
const NODE_COLUMNS: &str = "\
    n.node, n.name, n.host, n.open, n.draining, n.labels, n.capacity, n.version, \
    {schema}.to_millis(n.joined_at), {schema}.to_millis(n.lease_until), \
    {schema}.to_millis(clock_timestamp()), n.loaded_sessions, n.running_tasks, n.skew_ms, \
    (SELECT count(*) FROM {schema}.sessions AS s JOIN {schema}.lanes AS l ON l.lane = s.lane \
        WHERE l.node = n.node AND l.node <> 0 AND s.state <> 2)";

pub(crate) async fn join(connection: &Connection<'_>, node: &NewNode) -> Result<JoinResult> {
    let sql = format!(
        "SELECT {NODE_COLUMNS}, j.is_new, j.joined, j.joined_lanes, j.now_ms, \
         {{schema}}.read_timeline() \
         FROM {{schema}}.join_node($1, $2, $3, $4, $5, $6, $7) AS j \
         LEFT JOIN {{schema}}.nodes AS n ON n.node = j.joined"
    );
    let values: [Parameter<'_>; 7] = [
        (&node.name, Type::TEXT),
        (&node.host, Type::TEXT),
        (&node.labels, Type::TEXT_ARRAY),
        (&node.capacity.map(to_i64), Type::INT8),
        (&node.version, Type::TEXT),
        (&to_i64(Millis::from(node.lease).0), Type::INT8),
        (&i32::try_from(node.lanes).unwrap_or(i32::MAX), Type::INT4),
    ];
    loop {
        let row = connection.query_one(&sql, &values).await?;
        if row.try_get(15)? {
            let lanes: Option<Vec<i32>> = row.try_get(17)?;
            let lanes = lanes.unwrap_or_default().into_iter().map(parse_lane);
            let renewal = LeaseRenewal { now: read_time(&row, 18)?, draining: false };
            return Ok(JoinResult::Joined(JoinedNode {
                node: NodeId(to_u64(row.try_get(16)?)?),
                lanes: lanes.collect::<Result<_>>()?,
                renewal,
                history: to_u64(row.try_get(19)?)?,
            }));
        }
        // A node that has joined since the statement began is not read by it.
        if row.try_get::<_, Option<i64>>(0)?.is_some() {
            return Ok(JoinResult::NameTaken(decode_node(&row)?));
        }
    }
}

pub(crate) async fn renew(
    connection: &Connection<'_>,
    node: NodeId,
    load: &NodeLoad,
) -> Result<Option<LeaseRenewal>> {
    let sql = "UPDATE {schema}.nodes \
               SET lease_until = clock_timestamp() + lease_ms * interval '1 ms', \
                   loaded_sessions = $2, running_tasks = $3, skew_ms = $4 \
               WHERE node = $1 AND open AND NOT EXISTS (\
                   SELECT FROM {schema}.lanes AS l WHERE l.node = $1 AND l.open \
                       AND NOT {schema}.is_current(l.timeline)) \
               RETURNING {schema}.to_millis(clock_timestamp()), draining";
    let values: [Parameter<'_>; 4] = [
        (&node_code(node), Type::INT8),
        (&to_i64(load.sessions), Type::INT8),
        (&to_i64(load.running), Type::INT8),
        (&load.skew_ms, Type::INT8),
    ];
    let row = connection.query_first(sql, &values).await?;
    let renewal =
        |row: Row| Ok(LeaseRenewal { now: read_time(&row, 0)?, draining: row.try_get(1)? });
    row.map(renewal).transpose()
}

pub(crate) async fn close_node(connection: &Connection<'_>, node: NodeId) -> Result<()> {
    let sql = "SELECT {schema}.leave_node($1)";
    connection.query(sql, &[(&node_code(node), Type::INT8)]).await.map(|_| ())
}

pub(crate) async fn close_expired(connection: &Connection<'_>) -> Result<Vec<NodeRow>> {
    let sql = format!(
        "SELECT {NODE_COLUMNS} FROM {{schema}}.close_expired() AS closed(node) \
         JOIN {{schema}}.nodes AS n ON n.node = closed.node ORDER BY n.node"
    );
    let rows = connection.query(&sql, &[]).await?;
    // The statement reads the rows as they were when it began.
    let closed = |row: &Row| Ok(NodeRow { open: false, ..decode_node(row)? });
    rows.iter().map(closed).collect()
}

pub(crate) async fn nodes(connection: &Connection<'_>) -> Result<Vec<NodeRow>> {
    let sql = format!(
        "SELECT {NODE_COLUMNS} FROM {{schema}}.nodes AS n \
         WHERE n.open OR n.closed_at > clock_timestamp() - interval '1 day' ORDER BY n.node"
    );
    connection.query(&sql, &[]).await?.iter().map(decode_node).collect()
}

pub(crate) async fn set_draining(
    connection: &Connection<'_>,
    node: NodeId,
    draining: bool,
) -> Result<bool> {
    let sql = "UPDATE {schema}.nodes SET draining = $2 WHERE node = $1 AND open RETURNING node";
    let values: [Parameter<'_>; 2] = [(&node_code(node), Type::INT8), (&draining, Type::BOOL)];
    Ok(connection.query_first(sql, &values).await?.is_some())
}

pub(crate) fn node_code(node: NodeId) -> i64 {
    to_i64(node.0)
}

fn decode_node(row: &Row) -> Result<NodeRow> {
    let capacity: Option<i64> = row.try_get(6)?;
    Ok(NodeRow {
        id: NodeId(to_u64(row.try_get(0)?)?),
        name: row.try_get(1)?,
        host: row.try_get(2)?,
        open: row.try_get(3)?,
        draining: row.try_get(4)?,
        labels: row.try_get(5)?,
        capacity: capacity.map(to_u64).transpose()?,
        version: row.try_get(7)?,
        joined_at: read_time(row, 8)?,
        lease_until: read_time(row, 9)?,
        now: read_time(row, 10)?,
        load: NodeLoad {
            sessions: to_u64(row.try_get(11)?)?,
            running: to_u64(row.try_get(12)?)?,
            skew_ms: row.try_get(13)?,
        },
        owned_sessions: to_u64(row.try_get(14)?)?,
    })
}

fn read_time(row: &Row, column: usize) -> Result<Time> {
    Ok(Time(to_u64(row.try_get(column)?)?))
}
