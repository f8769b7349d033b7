//! The owners of sessions.

use brigade_model::ids::{Epoch, Lane, Seq, SessionId};
use brigade_store::columns::to_i64;
use brigade_store::{
    ClaimedSession, NodeId, RequiredLabels, SessionClaim, SessionOwner, SessionRelease,
};
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::connections::{Connection, Parameter};
use crate::error::{Result, corrupt, is_refusal};
use crate::events::read_position;
use crate::lanes::WrittenLanes;
use crate::nodes::node_code;
use crate::read::{id_parameter, to_u64};
use crate::write::lane_code;

/// The most sessions that one transaction claims.
const CLAIM_SLICE: usize = 100;

pub(crate) async fn claim(
    connection: &Connection<'_>,
    claim: &SessionClaim,
) -> Result<Vec<ClaimedSession>> {
    let skipped: Vec<Uuid> = claim.skipped.iter().map(|id| *id.as_uuid()).collect();
    let mut claimed = Vec::new();
    while claimed.len() < claim.limit {
        let slice = CLAIM_SLICE.min(claim.limit - claimed.len());
        let sql = "SELECT * FROM {schema}.claim_sessions($1, $2, $3, $4, $5)";
        let values: [Parameter<'_>; 5] = [
            (&node_code(claim.node), Type::INT8),
            (&lane_code(claim.lane), Type::INT4),
            (&to_i64(claim.now.0), Type::INT8),
            (&i64::try_from(slice).unwrap_or(i64::MAX), Type::INT8),
            (&skipped, Type::UUID_ARRAY),
        ];
        let rows = connection.query(sql, &values).await?;
        for row in &rows {
            claimed.push(ClaimedSession {
                id: SessionId::from_uuid(row.try_get(0)?),
                epoch: Epoch(to_u64(row.try_get(1)?)?),
                seq: Seq(to_u64(row.try_get(2)?)?),
                last: read_position(row, 3)?,
            });
        }
        if rows.len() < slice {
            break;
        }
    }
    Ok(claimed)
}

pub(crate) async fn owned_sessions(
    connection: &Connection<'_>,
    lane: Lane,
) -> Result<Vec<SessionId>> {
    let sql = "SELECT id FROM {schema}.sessions WHERE lane = $1 AND state <> 2 ORDER BY key";
    let rows = connection.query(sql, &[(&lane_code(lane), Type::INT4)]).await?;
    rows.iter().map(|row| Ok(SessionId::from_uuid(row.try_get(0)?))).collect()
}

/// Gives up a session. A release without an answer may arrive late, like a commit.
pub(crate) async fn release(
    connection: &Connection<'_>,
    lanes: &WrittenLanes,
    release: &SessionRelease,
) -> Result<bool> {
    let sql = "SELECT {schema}.release_session($1, $2, $3, $4, $5, $6, $7)";
    let values: [Parameter<'_>; 7] = [
        (&lane_code(release.lane), Type::INT4),
        (&lanes.generation(release.lane), Type::INT8),
        id_parameter(&release.id),
        (&to_i64(release.epoch.0), Type::INT8),
        (&to_i64(release.seq.0), Type::INT8),
        (&release.next_due.map(|due| to_i64(due.0)), Type::INT8),
        (&release.next_owner.map(node_code), Type::INT8),
    ];
    let rows = connection.query_raw(sql, &values).await.inspect_err(|error| {
        if !is_refusal(error) {
            lanes.set_in_doubt(release.lane);
        }
    })?;
    let row = rows.first().ok_or_else(|| corrupt("a release returned nothing"))?;
    Ok(row.try_get(0)?)
}

pub(crate) async fn require_labels(
    connection: &Connection<'_>,
    session: SessionId,
    labels: &[String],
) -> Result<bool> {
    let sql = "UPDATE {schema}.sessions SET required_labels = $2 WHERE id = $1 RETURNING key";
    let values = [id_parameter(&session), (&labels as _, Type::TEXT_ARRAY)];
    Ok(connection.query_first(sql, &values).await?.is_some())
}

pub(crate) async fn required_labels(
    connection: &Connection<'_>,
    sessions: &[SessionId],
) -> Result<Vec<RequiredLabels>> {
    let sql = "SELECT id, required_labels FROM {schema}.sessions \
               WHERE id = ANY ($1) AND required_labels <> '{}'";
    let ids: Vec<Uuid> = sessions.iter().map(|id| *id.as_uuid()).collect();
    let rows = connection.query(sql, &[(&ids, Type::UUID_ARRAY)]).await?;
    let required = |row: &tokio_postgres::Row| {
        let session = SessionId::from_uuid(row.try_get(0)?);
        Ok(RequiredLabels { session, labels: row.try_get(1)? })
    };
    rows.iter().map(required).collect()
}

pub(crate) async fn owners(
    connection: &Connection<'_>,
    sessions: &[SessionId],
) -> Result<Vec<SessionOwner>> {
    let sql = "SELECT s.id, l.node FROM {schema}.sessions AS s \
               JOIN {schema}.lanes AS l ON l.lane = s.lane AND l.open AND l.node <> 0 \
               WHERE s.id = ANY ($1)";
    let ids: Vec<Uuid> = sessions.iter().map(|id| *id.as_uuid()).collect();
    let rows = connection.query(sql, &[(&ids, Type::UUID_ARRAY)]).await?;
    let owner = |row: &tokio_postgres::Row| {
        let session = SessionId::from_uuid(row.try_get(0)?);
        Ok(SessionOwner { session, node: NodeId(to_u64(row.try_get(1)?)?) })
    };
    rows.iter().map(owner).collect()
}
