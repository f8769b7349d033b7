//! `/metrics`: the metrics in the text format of Prometheus.

use axum::response::{IntoResponse, Response};
use brigade_protocol::requests::MetricsRequest;
use http::HeaderValue;
use http::header::CONTENT_TYPE;

use crate::http::caller::HttpCaller;
use crate::http::problem::Problem;

/// Show metrics in the text format of Prometheus
#[utoipa::path(
    get, path = "/metrics", tag = "server",
    responses((status = 200, description = "Metrics", body = String, content_type = "text/plain"), Problem)
)]
pub(super) async fn show_metrics(caller: HttpCaller) -> Result<Response, Problem> {
    let text = caller.reader().call(MetricsRequest {}).await?;
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    Ok(([(CONTENT_TYPE, kind)], text).into_response())
}
