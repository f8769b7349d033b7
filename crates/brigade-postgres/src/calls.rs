//! Calls to the owners of sessions and to nodes. Replies to calls of sessions are written by commits.

use brigade_model::ids::SessionId;
use brigade_store::columns::to_i64;
use brigade_store::{
    CallAnswer, CallId, CallPlace, CallResult, CallTarget, NewCall, NodeId, OpenCall, OpenCallQuery,
};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connections::{Connection, Parameter};
use crate::error::Result;
use crate::nodes::node_code;
use crate::read::to_u64;

pub(crate) async fn ask(connection: &Connection<'_>, call: &NewCall) -> Result<bool> {
    let (session, node) = match call.target {
        CallTarget::Session(session) => (Some(*session.as_uuid()), None),
        CallTarget::Node(node) => (None, Some(node_code(node))),
    };
    let sql = "SELECT {schema}.ask_call($1, $2, $3, $4, $5)";
    let values: [Parameter<'_>; 5] = [
        (&call.id.0, Type::UUID),
        (&session, Type::UUID),
        (&node, Type::INT8),
        (&node_code(call.asked_by), Type::INT8),
        (&call.request, Type::BYTEA),
    ];
    Ok(connection.query_one(sql, &values).await?.try_get(0)?)
}

pub(crate) async fn open_calls(
    connection: &Connection<'_>,
    query: &OpenCallQuery,
) -> Result<Vec<OpenCall>> {
    // Each part has an index of its own.
    let sql = "SELECT id, session, node, request, place FROM ( \
                   SELECT c.id, NULL::uuid AS session, c.node, c.request, \
                       {schema}.to_micros(c.asked_at) AS place \
                   FROM {schema}.calls AS c WHERE c.node = $1 AND c.reply IS NULL \
                   UNION ALL \
                   SELECT c.id, s.id, NULL, c.request, {schema}.to_micros(c.asked_at) \
                   FROM {schema}.calls AS c \
                   JOIN {schema}.sessions AS s ON s.key = c.session \
                   JOIN {schema}.lanes AS l ON l.lane = s.lane \
                   WHERE c.session IS NOT NULL AND c.reply IS NULL AND l.node = $1 AND l.open \
               ) AS open \
               WHERE $2::bigint IS NULL OR (place, id) > ($2, $3) \
               ORDER BY place, id LIMIT $4";
    let after = query.after;
    let values: [Parameter<'_>; 4] = [
        (&node_code(query.node), Type::INT8),
        (&after.map(|place| to_i64(place.order)), Type::INT8),
        (&after.map(|place| place.id.0), Type::UUID),
        (&i64::try_from(query.limit).unwrap_or(i64::MAX), Type::INT8),
    ];
    connection.query(sql, &values).await?.iter().map(decode_open_call).collect()
}

fn decode_open_call(row: &Row) -> Result<OpenCall> {
    let session: Option<Uuid> = row.try_get(1)?;
    let target = match session {
        Some(session) => CallTarget::Session(SessionId::from_uuid(session)),
        None => CallTarget::Node(NodeId(to_u64(row.try_get(2)?)?)),
    };
    let id = CallId(row.try_get(0)?);
    let place = CallPlace { order: to_u64(row.try_get(4)?)?, id };
    Ok(OpenCall { id, place, target, request: row.try_get(3)? })
}

pub(crate) async fn replies(
    connection: &Connection<'_>,
    calls: &[CallId],
) -> Result<Vec<CallResult>> {
    let sql = "SELECT given.id, c.reply FROM unnest($1::uuid[]) AS given(id) \
               LEFT JOIN {schema}.calls AS c ON c.id = given.id \
               WHERE c.id IS NULL OR c.reply IS NOT NULL";
    let rows = connection.query(sql, &[(&call_ids(calls), Type::UUID_ARRAY)]).await?;
    rows.iter().map(call_result).collect()
}

/// Reads the columns `id, reply`.
fn call_result(row: &Row) -> Result<CallResult> {
    Ok(CallResult { id: CallId(row.try_get(0)?), reply: row.try_get(1)? })
}

pub(crate) async fn answer(connection: &Connection<'_>, answer: &CallAnswer) -> Result<()> {
    let sql = "UPDATE {schema}.calls SET reply = $2 WHERE id = $1 AND reply IS NULL";
    let values: [Parameter<'_>; 2] = [(&answer.id.0, Type::UUID), (&answer.reply, Type::BYTEA)];
    connection.query(sql, &values).await.map(|_| ())
}

pub(crate) async fn remove_calls(
    connection: &Connection<'_>,
    calls: &[CallId],
) -> Result<Vec<CallResult>> {
    // Commits lock calls in the same order.
    let sql = "DELETE FROM {schema}.calls WHERE id IN ( \
                   SELECT id FROM {schema}.calls WHERE id = ANY ($1) ORDER BY id FOR UPDATE) \
               RETURNING id, reply";
    let rows = connection.query(sql, &[(&call_ids(calls), Type::UUID_ARRAY)]).await?;
    rows.iter().map(call_result).collect()
}

fn call_ids(calls: &[CallId]) -> Vec<Uuid> {
    calls.iter().map(|call| call.0).collect()
}
