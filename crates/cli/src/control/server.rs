//! The daemon's side of the control socket: routes, and replies for every way a request can be wrong.
//!
//! One thread runs the sockets and the signals; whatever touches the pool or the kernel runs on tokio's blocking
//! threads, so a slow unmount never delays `status`.

use super::{ErrorBody, ErrorReply, REQUEST_BYTES_MAX};
use crate::daemon::Daemon;
use crate::failure::{Failure, FailureKind, kind_of};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Path, RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use axum::routing::{any, delete, get, post};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::{UnixListener, UnixStream};

type Reply = Response<Body>;
type ReceivedBody = Result<Bytes, BytesRejection>;

/// `POST /datasets`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateDataset {
    name: String,
    #[serde(default)]
    properties: BTreeMap<String, String>,
}

/// `PATCH /datasets/{name}` and `PATCH /properties`
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeProperties {
    properties: BTreeMap<String, String>,
}

/// `POST /mounts`
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MountRequest {
    /// Without the pool's name.
    pub dataset: String,
    /// Absolute.
    pub mountpoint: PathBuf,
    /// No writing through this mount.
    #[serde(default)]
    pub read_only: bool,
    /// Threads that answer the kernel; `None`: by the number of processors.
    #[serde(default)]
    pub threads: Option<usize>,
    /// How requests are to come: `auto`, `device` or `io_uring`; `None`: as the daemon's environment says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transport: Option<String>,
}

/// The routes; served by [`serve`].
fn router(daemon: Arc<Daemon>) -> Router {
    Router::new()
        .route("/status", get(get_status))
        .route("/datasets", get(list_datasets).post(create_dataset))
        .route(
            "/datasets/{name}",
            get(get_dataset).patch(change_dataset).delete(destroy_dataset),
        )
        .route("/mounts", get(list_mounts).post(create_mount))
        .route("/mounts/{name}", delete(remove_mount))
        .route("/properties", get(get_properties).patch(change_properties))
        .route("/shutdown", post(shut_down))
        .fallback(any(not_found))
        .method_not_allowed_fallback(method_not_allowed)
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .with_state(daemon)
}

/// Answers until `stop` is ready, and then until every reply under way has been sent.
pub async fn serve(
    listener: UnixListener,
    daemon: Arc<Daemon>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let owner = rustix::process::geteuid().as_raw();
    axum::serve(OwnerOnly { listener, owner }, router(daemon))
        .with_graceful_shutdown(stop)
        .await
}

/// Accepts connections of one user, and of root; hangs up on others.
struct OwnerOnly {
    listener: UnixListener,
    owner: u32,
}

impl axum::serve::Listener for OwnerOnly {
    type Io = UnixStream;
    type Addr = tokio::net::unix::SocketAddr;

    async fn accept(&mut self) -> (UnixStream, Self::Addr) {
        loop {
            match self.listener.accept().await {
                Ok((stream, address)) => match stream.peer_cred() {
                    Ok(peer) if peer.uid() == self.owner || peer.uid() == 0 => return (stream, address),
                    Ok(peer) => {
                        tracing::warn!(user = peer.uid(), "refused a control connection of another user")
                    }
                    Err(error) => tracing::warn!(%error, "refused a control connection of an unknown user"),
                },
                Err(error) => {
                    tracing::warn!(%error, "could not accept a control connection");
                    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

async fn get_status(State(daemon): State<Arc<Daemon>>) -> Reply {
    run(StatusCode::OK, move || daemon.status()).await
}

async fn list_datasets(State(daemon): State<Arc<Daemon>>) -> Reply {
    run(StatusCode::OK, move || daemon.list_datasets()).await
}

async fn create_dataset(State(daemon): State<Arc<Daemon>>, body: ReceivedBody) -> Reply {
    with_body(StatusCode::CREATED, body, move |request: CreateDataset| {
        daemon.create_dataset(&request.name, &request.properties)
    })
    .await
}

async fn get_dataset(State(daemon): State<Arc<Daemon>>, Path(name): Path<String>) -> Reply {
    run(StatusCode::OK, move || daemon.dataset(&name)).await
}

async fn change_dataset(
    State(daemon): State<Arc<Daemon>>,
    Path(name): Path<String>,
    body: ReceivedBody,
) -> Reply {
    with_body(StatusCode::OK, body, move |request: ChangeProperties| {
        daemon.set_dataset(&name, &request.properties)
    })
    .await
}

async fn destroy_dataset(
    State(daemon): State<Arc<Daemon>>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Reply {
    run(StatusCode::ACCEPTED, move || {
        daemon.destroy_dataset(&name, parse_flag(query.as_deref(), "force")?)
    })
    .await
}

async fn list_mounts(State(daemon): State<Arc<Daemon>>) -> Reply {
    run(StatusCode::OK, move || Ok(daemon.mounts.list())).await
}

async fn create_mount(State(daemon): State<Arc<Daemon>>, body: ReceivedBody) -> Reply {
    with_body(StatusCode::CREATED, body, move |request: MountRequest| {
        daemon.mount(&request)
    })
    .await
}

async fn remove_mount(
    State(daemon): State<Arc<Daemon>>,
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
) -> Reply {
    run(StatusCode::OK, move || {
        daemon.unmount(&name, parse_flag(query.as_deref(), "lazy")?)
    })
    .await
}

async fn get_properties(State(daemon): State<Arc<Daemon>>) -> Reply {
    run(StatusCode::OK, move || daemon.pool_properties()).await
}

async fn change_properties(State(daemon): State<Arc<Daemon>>, body: ReceivedBody) -> Reply {
    with_body(StatusCode::OK, body, move |request: ChangeProperties| {
        daemon.set_pool_properties(&request.properties)
    })
    .await
}

async fn shut_down(State(daemon): State<Arc<Daemon>>) -> Reply {
    daemon.request_shutdown("asked through the control socket");
    reply(StatusCode::ACCEPTED, &serde_json::json!({"closing": true}))
}

async fn not_found() -> Reply {
    error_reply(
        StatusCode::NOT_FOUND,
        FailureKind::NotFound,
        "there is no such endpoint; see docs/cli.md".to_string(),
    )
}

async fn method_not_allowed() -> Reply {
    error_reply(
        StatusCode::METHOD_NOT_ALLOWED,
        FailureKind::Usage,
        "this endpoint does not know that method".to_string(),
    )
}

/// Runs blocking work off the socket thread and turns its result into a reply.
async fn run<T: Serialize + Send + 'static>(
    success: StatusCode,
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> Reply {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(value)) => reply(success, &value),
        Ok(Err(error)) => {
            let kind = kind_of(&error);
            error_reply(status_of(kind), kind, crate::failure::describe(&error))
        }
        Err(error) => error_reply(
            StatusCode::INTERNAL_SERVER_ERROR,
            FailureKind::Failed,
            error.to_string(),
        ),
    }
}

async fn with_body<R, T>(
    success: StatusCode,
    body: ReceivedBody,
    work: impl FnOnce(R) -> anyhow::Result<T> + Send + 'static,
) -> Reply
where
    R: DeserializeOwned,
    T: Serialize + Send + 'static,
{
    let body = match body {
        Ok(body) => body,
        Err(rejection) => return error_reply(rejection.status(), FailureKind::Usage, rejection.body_text()),
    };
    run(success, move || work(parse_body(&body)?)).await
}

fn parse_body<R: DeserializeOwned>(body: &[u8]) -> anyhow::Result<R> {
    serde_json::from_slice(body)
        .map_err(|error| Failure::usage(format!("the body is not the JSON that is expected here: {error}")))
}

/// Accepts no query, `NAME=true` or `NAME=false`.
fn parse_flag(query: Option<&str>, name: &str) -> anyhow::Result<bool> {
    let Some(query) = query.filter(|query| !query.is_empty()) else {
        return Ok(false);
    };
    match query.split_once('=') {
        Some((given, "true")) if given == name => Ok(true),
        Some((given, "false")) if given == name => Ok(false),
        _ => Err(Failure::usage(format!(
            "the query must be {name}=true or {name}=false"
        ))),
    }
}

/// Takes a request as far as it goes without a daemon: the body of each endpoint, names and properties, and the query.
#[cfg(feature = "fuzzing")]
pub fn understand(query: &str, body: &[u8]) -> bool {
    use crate::{dataset_properties, names::PoolName, pool_properties};
    let Ok(pool) = "tank".parse::<PoolName>() else {
        return false;
    };
    let mut understood = parse_flag(Some(query), "force").is_ok();
    if let Ok(CreateDataset { name, properties }) = parse_body(body) {
        understood |= pool.dataset(&name).is_ok() && dataset_properties::validate(&properties).is_ok();
    }
    if let Ok(ChangeProperties { properties }) = parse_body(body) {
        let _ = dataset_properties::with_defaults(&properties);
        understood |= dataset_properties::validate(&properties).is_ok();
        understood |= pool_properties::validate(&properties).is_ok();
    }
    if let Ok(request) = parse_body::<MountRequest>(body) {
        let _ = request.mountpoint.is_absolute();
        understood |= pool.dataset(&request.dataset).is_ok();
    }
    understood
}

fn status_of(kind: FailureKind) -> StatusCode {
    match kind {
        FailureKind::Usage => StatusCode::BAD_REQUEST,
        FailureKind::NotFound => StatusCode::NOT_FOUND,
        FailureKind::Busy | FailureKind::Refused => StatusCode::CONFLICT,
        FailureKind::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
        FailureKind::NotPermitted => StatusCode::FORBIDDEN,
        FailureKind::Unsupported => StatusCode::NOT_IMPLEMENTED,
        FailureKind::Closing => StatusCode::SERVICE_UNAVAILABLE,
        FailureKind::Failed | FailureKind::Damaged => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn error_reply(status: StatusCode, code: FailureKind, message: String) -> Reply {
    reply(
        status,
        &ErrorReply {
            error: ErrorBody { code, message },
        },
    )
}

fn reply(status: StatusCode, value: &impl Serialize) -> Reply {
    let (status, body) = match serde_json::to_vec(value) {
        Ok(body) => (status, body),
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("{{\"error\":{{\"code\":\"failed\",\"message\":\"{error:?}\"}}}}").into_bytes(),
        ),
    };
    let mut reply = Response::new(Body::from(body));
    *reply.status_mut() = status;
    reply.headers_mut().insert(
        header::CONTENT_TYPE,
        header::HeaderValue::from_static("application/json"),
    );
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_strict() {
        assert!(!parse_flag(None, "force").unwrap());
        assert!(parse_flag(Some("force=true"), "force").unwrap());
        assert!(!parse_flag(Some("force=false"), "force").unwrap());
        for query in ["force", "force=yes", "lazy=true", "force=true&lazy=true"] {
            assert!(parse_flag(Some(query), "force").is_err(), "{query}");
        }
    }
}
