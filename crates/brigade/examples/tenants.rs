//! An HTTP server with tenants. Each tenant has a session, which no other tenant sees.
//!
//! `cargo run -p brigade --example tenants -- bakery.db 127.0.0.1:3000`
//!
//! - `PUT /TENANT/orders/ORDER` with `{"cake": "Sacher", "layers": 2}` starts a job. The same
//!   order number finds the same job, also after a crash.
//! - `GET /TENANT/tasks/NUMBER` waits a few seconds for its result.
//! - `DELETE /TENANT/tasks/NUMBER` stops it.

use std::error::Error;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use axum::{Json, Router};
use brigade::{
    Job, JobContext, JobError, Limits, Outcome, Refusal, RefusalKind, Retention, Runtime,
    SqliteStore, TaskNo, WaitMode, WaitResult,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

const BAKE: Job<Order, String> = Job::new("bake");
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Serialize, Deserialize)]
struct Order {
    cake: String,
    layers: u32,
}

async fn bake(ctx: JobContext, order: Order) -> Result<String, JobError> {
    for layer in 1..=order.layers {
        ctx.progress(format!("layer {layer}")).await?;
        ctx.sleep(Duration::from_millis(100)).await?;
    }
    Ok(format!("{} with {} layers", order.cake, order.layers))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let store = arguments.next().unwrap_or_else(|| "bakery.db".to_owned());
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:3000".to_owned());
    let runtime = Runtime::builder()
        .store(SqliteStore::open(store)?)
        .job(BAKE, bake)
        .session_limits(Limits { running: Some(4), width: Some(100), ..Limits::default() })
        .max_running(16)
        .retention(Retention { ended: (30 * DAY).into(), events: (7 * DAY).into() })
        .start()
        .await?;
    let routes = Router::new()
        .route("/{tenant}/orders/{order}", put(place_order))
        .route("/{tenant}/tasks/{number}", get(get_result).delete(stop_task))
        .with_state(runtime.clone());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    let mut terminate = signal(SignalKind::terminate())?;
    let requested = async move {
        terminate.recv().await;
    };
    axum::serve(listener, routes).with_graceful_shutdown(requested).await?;

    let drained = runtime.drain(Duration::from_secs(30)).await?;
    println!("drained: {}, alive: {}", drained.is_drained(), drained.alive.len());
    runtime.shutdown().await?;
    Ok(())
}

async fn place_order(
    State(runtime): State<Runtime>,
    Path((tenant, order)): Path<(String, String)>,
    Json(cake): Json<Order>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let session = runtime.session(&tenant).await?;
    let task = session.spawn(BAKE.with(cake).key(&order)).await?;
    let status = if task.existed() { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(json!({ "task": task.no() }))))
}

async fn get_result(
    State(runtime): State<Runtime>,
    Path((tenant, task)): Path<(String, TaskNo)>,
) -> Result<Json<Value>, ApiError> {
    let session = runtime.session(&tenant).await?;
    let wait = session.wait_within(vec![task.into()], WaitMode::All, Duration::from_secs(5));
    let WaitResult::Ended(results) = wait.await? else {
        let row = session.get(task).await?.row;
        return Ok(Json(json!({ "state": row.state.label() })));
    };
    Ok(Json(match results.first().map(|result| &*result.outcome) {
        Some(Outcome::Succeeded { result }) => json!({ "state": "succeeded", "result": result }),
        other => json!({ "state": other.map(ToString::to_string) }),
    }))
}

async fn stop_task(
    State(runtime): State<Runtime>,
    Path((tenant, task)): Path<(String, TaskNo)>,
) -> Result<StatusCode, ApiError> {
    let session = runtime.session(&tenant).await?;
    session.stop(task, Some("the customer cancelled")).await?;
    Ok(StatusCode::ACCEPTED)
}

/// A refusal as an HTTP response.
struct ApiError(Refusal);

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        Self(refusal)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = match self.0.kind {
            RefusalKind::NotFound => StatusCode::NOT_FOUND,
            RefusalKind::Forbidden => StatusCode::FORBIDDEN,
            RefusalKind::Invalid => StatusCode::BAD_REQUEST,
            RefusalKind::Conflict | RefusalKind::Ended => StatusCode::CONFLICT,
            RefusalKind::Limit => StatusCode::TOO_MANY_REQUESTS,
            RefusalKind::Unavailable | RefusalKind::Unknown => StatusCode::SERVICE_UNAVAILABLE,
            RefusalKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, Json(json!({ "error": self.0.to_string() }))).into_response()
    }
}
