//! The parts of providers' limits that nodes hold.

use std::time::Duration;

use brigade_model::ids::{Millis, Time};
use brigade_store::columns::to_i64;
use brigade_store::{LimitAmounts, LimitGrant, LimitReport, NodeDemand, NodeId, RateLevels};
use tokio_postgres::types::Type;

use crate::connections::{Connection, Parameter};
use crate::error::{Result, corrupt};
use crate::nodes::node_code;
use crate::read::to_u64;

pub(crate) async fn exchange(
    connection: &Connection<'_>,
    report: &LimitReport,
) -> Result<Option<LimitGrant>> {
    let sql = "SELECT * FROM {schema}.exchange_limits($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    let closed_for = report.closed_for.map_or(0, |pause| Millis::from(pause).0);
    let returned = [report.returned.requests, report.returned.tokens];
    let values: [Parameter<'_>; 9] = [
        (&report.provider, Type::TEXT),
        (&node_code(report.node), Type::INT8),
        (&to_i64(report.number), Type::INT8),
        (&&encode(&report.limits)[..], Type::INT8_ARRAY),
        (&&encode(&report.held)[..], Type::INT8_ARRAY),
        (&&encode(&report.wanted)[..], Type::INT8_ARRAY),
        (&&encode(&report.demand)[..], Type::INT8_ARRAY),
        (&&returned[..], Type::FLOAT8_ARRAY),
        (&to_i64(closed_for), Type::INT8),
    ];
    let Some(row) = connection.query_first(sql, &values).await? else { return Ok(None) };
    let [requests, tokens] = read_array(row.try_get(2)?)?;
    let closed_for = to_u64(row.try_get(3)?)?;
    let nodes: Vec<i64> = row.try_get(6)?;
    // The amounts of all nodes are one list.
    let demands: Vec<i64> = row.try_get(7)?;
    let demand = |(node, amounts): (&i64, &[i64])| {
        Ok(NodeDemand { node: NodeId(to_u64(*node)?), demand: decode(amounts.to_vec())? })
    };
    Ok(Some(LimitGrant {
        held: decode(row.try_get(0)?)?,
        free: decode(row.try_get(1)?)?,
        added: RateLevels { requests, tokens },
        closed_for: (closed_for > 0).then(|| Duration::from_millis(closed_for)),
        now: Time(to_u64(row.try_get(4)?)?),
        open_nodes: to_u64(row.try_get(5)?)?,
        demands: nodes.iter().zip(demands.chunks(3)).map(demand).collect::<Result<_>>()?,
    }))
}

fn encode(amounts: &LimitAmounts) -> [i64; 3] {
    [to_i64(amounts.running), to_i64(amounts.requests), to_i64(amounts.tokens)]
}

fn decode(amounts: Vec<i64>) -> Result<LimitAmounts> {
    let [running, requests, tokens] = read_array(amounts)?;
    Ok(LimitAmounts {
        running: to_u64(running)?,
        requests: to_u64(requests)?,
        tokens: to_u64(tokens)?,
    })
}

fn read_array<T, const N: usize>(values: Vec<T>) -> Result<[T; N]> {
    values.try_into().map_err(|_| corrupt("a row of a provider's limits has another form"))
}
