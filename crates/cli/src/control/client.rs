//! Asks a daemon: one connection a request, blocking.

use super::{ErrorReply, REPLY_BYTES_MAX};
use crate::failure::{Failure, FailureKind};
use crate::names::PoolName;
use crate::state::StateDirectory;
use anyhow::Context;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::io;
use std::path::PathBuf;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;

/// A daemon that answered.
pub struct Client {
    socket_path: PathBuf,
    pool: PoolName,
    runtime: Runtime,
}

impl Client {
    /// The daemon of this pool; `None` when none listens.
    pub fn connect(state: &StateDirectory, pool: &PoolName) -> anyhow::Result<Option<Client>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("start the control client")?;
        let client = Client {
            socket_path: state.socket_path(pool),
            pool: pool.clone(),
            runtime,
        };
        match client.runtime.block_on(UnixStream::connect(&client.socket_path)) {
            Ok(_) => Ok(Some(client)),
            Err(error) if is_nobody_there(&error) => Ok(None),
            Err(error) => Err(error).with_context(|| format!("connect to {}", client.socket_path.display())),
        }
    }

    /// `GET path`.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.request(Method::GET, path, None)
    }
    /// `POST path` with a body.
    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &Value) -> anyhow::Result<T> {
        self.request(Method::POST, path, Some(body))
    }
    /// `PATCH path` with a body.
    pub fn patch<T: DeserializeOwned>(&self, path: &str, body: &Value) -> anyhow::Result<T> {
        self.request(Method::PATCH, path, Some(body))
    }
    /// `DELETE path`.
    pub fn delete<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        self.request(Method::DELETE, path, None)
    }

    fn request<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<T> {
        let context = || format!("ask the daemon of pool '{}'", self.pool);
        let (status, body) = self
            .runtime
            .block_on(self.exchange(method, path, body))
            .with_context(context)?;
        if status.is_success() {
            return serde_json::from_slice(&body)
                .context("understand the reply")
                .with_context(context);
        }
        match serde_json::from_slice::<ErrorReply>(&body) {
            Ok(reply) => Err(Failure::error(reply.error.code, reply.error.message)),
            Err(_) => Err(Failure::error(
                FailureKind::Failed,
                format!("the daemon of pool '{}' answered {status}", self.pool),
            )),
        }
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let stream =
            UnixStream::connect(&self.socket_path)
                .await
                .map_err(|error| match is_nobody_there(&error) {
                    true => Failure::error(
                        FailureKind::Closing,
                        format!("the daemon of pool '{}' has just ended", self.pool),
                    ),
                    false => error.into(),
                })?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let connection = tokio::spawn(connection);
        let text = match body {
            Some(body) => serde_json::to_vec(body)?,
            None => Vec::new(),
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "packstone")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(text)))?;
        let reply = sender.send_request(request).await?;
        let status = reply.status();
        let collected = Limited::new(reply.into_body(), REPLY_BYTES_MAX).collect().await;
        let body = collected
            .map_err(|error| anyhow::anyhow!("read the reply: {error}"))?
            .to_bytes();
        connection.abort();
        Ok((status, body))
    }
}

/// No socket, or one left behind by a daemon that died.
fn is_nobody_there(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
    )
}
