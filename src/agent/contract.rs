//! Client of the worker contract: every call carries the token and has bounds; it keeps no state and believes no answer beyond its form.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use elastic_pool_engine::ids::{Epoch, UserId};
use http::{HeaderName, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::Value;

use super::headers;
use super::http_client::{self, CallError, Connections, Payload};
use super::packages::Sha256;

/// Questions at each tick.
const QUESTION: Duration = Duration::from_secs(2);
/// Commands, which may carry a package.
const COMMAND: Duration = Duration::from_secs(10);
const MAX_REPORT: u64 = 256 << 10;
const MAX_LIST: u64 = 64 << 20;
/// Fits a message of the channel.
const MAX_STATE: u64 = 3 << 20;
const MAX_ERROR: u64 = 4 << 10;
const NOTHING: Payload = Payload::Whole(Bytes::new());

/// Client of one app.
#[derive(Debug)]
pub(crate) struct Contract {
    /// host:port; `None`: the app is never asked.
    address: Option<String>,
    token: String,
    connections: Arc<Connections>,
}

/// What failed, by what follows from it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ContractError {
    /// The app speaks no contract (404 to a question, or an answer that is no JSON).
    #[error("the app answers no contract")]
    NoContract,
    /// 404 or 410: this user is not there.
    #[error("the app does not know the user")]
    NotHere,
    /// 501.
    #[error("the app cannot do this")]
    Unsupported,
    /// 413, or more than allowed.
    #[error("the package is too large")]
    TooLarge,
    /// 415 or 422: not a package that this app reads.
    #[error("the app refused the package")]
    BadPackage,
    /// 409: another state than the command supposes.
    #[error("the app is in another state")]
    Conflict,
    #[error("the app answered {0}")]
    Status(StatusCode),
    #[error("the app's answer breaks the contract: {0}")]
    Malformed(&'static str),
    #[error("call the app")]
    Call(#[from] CallError),
}

/// Answer of `GET /_pool/v1/users`.
#[derive(Debug, Deserialize)]
pub(crate) struct AppUsers {
    pub(crate) instance: String,
    #[serde(default)]
    pub(crate) capabilities: Vec<String>,
    #[serde(default)]
    pub(crate) users: Vec<AppUser>,
}

/// One user of the list.
#[derive(Debug, Deserialize)]
pub(crate) struct AppUser {
    pub(crate) id: UserId,
    #[serde(default)]
    pub(crate) state: AppUserState,
    /// Decimal, as a number or a string.
    #[serde(default, rename = "move")]
    pub(crate) mv: Value,
}

/// How the app holds a user.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AppUserState {
    #[default]
    Live,
    Frozen,
    Staged,
}

impl AppUser {
    /// The move of a frozen or staged user.
    pub(crate) fn mv(&self) -> Option<Epoch> {
        match &self.mv {
            Value::Number(number) => number.as_u64().map(Epoch),
            Value::String(text) => text.parse().ok().map(Epoch),
            _ => None,
        }
    }
}

/// A package as the app handed it out.
#[derive(Debug)]
pub(crate) struct AppPackage {
    pub(crate) bytes: Bytes,
    pub(crate) sha256: Sha256,
    pub(crate) format: String,
}

fn user_path(user: &UserId, rest: &str) -> String {
    format!("/_pool/v1/users/{}{rest}", headers::encode_user(user))
}

fn failure(status: StatusCode) -> ContractError {
    match status {
        StatusCode::NOT_FOUND | StatusCode::GONE => ContractError::NotHere,
        StatusCode::NOT_IMPLEMENTED => ContractError::Unsupported,
        StatusCode::PAYLOAD_TOO_LARGE => ContractError::TooLarge,
        StatusCode::UNSUPPORTED_MEDIA_TYPE | StatusCode::UNPROCESSABLE_ENTITY => ContractError::BadPackage,
        StatusCode::CONFLICT => ContractError::Conflict,
        other => ContractError::Status(other),
    }
}

fn is_json(response: &Response<Incoming>) -> bool {
    let kind = response
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("application/json"))
}

impl Contract {
    pub(crate) fn new(address: Option<SocketAddr>, token: String, connections: Arc<Connections>) -> Self {
        Self {
            address: address.map(|address| address.to_string()),
            token,
            connections,
        }
    }

    /// False when the contract was switched off.
    pub(crate) fn is_asked(&self) -> bool {
        self.address.is_some()
    }

    /// The token that the app knows.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// True when `shown` is the token of this pod.
    pub(crate) fn is_token(&self, shown: &str) -> bool {
        crate::credentials::same(&self.token, shown)
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        extra: &[(&'static str, &str)],
        payload: Payload,
        limit: Duration,
    ) -> Result<Response<Incoming>, ContractError> {
        let address = self.address.as_deref().ok_or(ContractError::NoContract)?;
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, address)
            .header(HeaderName::from_static(headers::TOKEN), &self.token);
        for (name, value) in extra.iter().filter(|(_, value)| !value.is_empty()) {
            request = request.header(HeaderName::from_static(name), *value);
        }
        let request = request
            .body(())
            .map_err(|_| ContractError::Malformed("a header"))?;
        Ok(self.connections.send(address, request, payload, limit).await?)
    }

    /// Asks for JSON; an app that answers 404, or anything but JSON, speaks no contract.
    async fn ask(&self, path: &str, max: u64) -> Result<Value, ContractError> {
        let response = self.send(Method::GET, path, &[], NOTHING, QUESTION).await?;
        match response.status() {
            StatusCode::OK if is_json(&response) => {}
            StatusCode::OK
            | StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::NOT_IMPLEMENTED => {
                return Err(ContractError::NoContract);
            }
            other => return Err(ContractError::Status(other)),
        }
        let bytes = http_client::read(response.into_body(), max, QUESTION).await?;
        serde_json::from_slice(&bytes).map_err(|_| ContractError::Malformed("no JSON"))
    }

    /// Commands the app; anything but 2xx is a failure.
    async fn command(
        &self,
        method: Method,
        path: &str,
        extra: &[(&'static str, &str)],
        payload: Payload,
    ) -> Result<Response<Incoming>, ContractError> {
        let response = self.send(method, path, extra, payload, COMMAND).await?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        // Read, so that the app sees its answer taken; what it says is for its own log.
        let _ = http_client::read(response.into_body(), MAX_ERROR, QUESTION).await;
        Err(failure(status))
    }

    /// A command that was done when its object is not there.
    async fn remove(&self, path: &str) -> Result<(), ContractError> {
        match self.command(Method::DELETE, path, &[], NOTHING).await {
            Ok(_) | Err(ContractError::NotHere) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The app's own figures (M1).
    pub(crate) async fn report(&self) -> Result<Value, ContractError> {
        self.ask("/_pool/v1/report", MAX_REPORT).await
    }

    /// Who the app is and who lives there.
    pub(crate) async fn users(&self) -> Result<AppUsers, ContractError> {
        let list: AppUsers = serde_json::from_value(self.ask("/_pool/v1/users", MAX_LIST).await?)
            .map_err(|_| ContractError::Malformed("users"))?;
        if list.instance.is_empty() || list.instance.len() > 256 {
            return Err(ContractError::Malformed("instance: 1 to 256 bytes"));
        }
        Ok(list)
    }

    /// For the monitor.
    pub(crate) async fn state(&self) -> Result<Value, ContractError> {
        self.ask("/_pool/v1/state", MAX_STATE).await
    }

    /// V3: the app freezes the user and hands out his package of at most `max` bytes.
    pub(crate) async fn snapshot(
        &self,
        user: &UserId,
        mv: Epoch,
        max: u64,
    ) -> Result<AppPackage, ContractError> {
        let path = user_path(user, &format!("/snapshot/{mv}"));
        let response = self.command(Method::POST, &path, &[], NOTHING).await?;
        let format = headers::single(response.headers(), headers::FORMAT)
            .unwrap_or_default()
            .to_owned();
        if format.len() > 256 {
            return Err(ContractError::Malformed("Pool-Format"));
        }
        // Summed piece by piece: a large package in one go would hold up everything else of this thread.
        let mut sha256 = Sha256::default();
        let reading = http_client::read_with(response.into_body(), max, COMMAND, |piece| sha256.add(piece));
        match reading.await {
            Ok(bytes) => Ok(AppPackage {
                bytes,
                sha256,
                format,
            }),
            Err(CallError::TooLarge(_)) => Err(ContractError::TooLarge),
            Err(error) => Err(error.into()),
        }
    }

    /// V6: the frozen copy lives again.
    pub(crate) async fn thaw(&self, user: &UserId, mv: Epoch) -> Result<(), ContractError> {
        self.remove(&user_path(user, &format!("/snapshot/{mv}"))).await
    }

    /// V4: stages a package.
    pub(crate) async fn stage(
        &self,
        user: &UserId,
        mv: Epoch,
        format: &str,
        package: Payload,
    ) -> Result<(), ContractError> {
        let path = user_path(user, &format!("/package/{mv}"));
        self.command(Method::PUT, &path, &[(headers::FORMAT, format)], package)
            .await
            .map(drop)
    }

    /// The staged copy lives.
    pub(crate) async fn activate(&self, user: &UserId, mv: Epoch) -> Result<(), ContractError> {
        let path = user_path(user, &format!("/package/{mv}"));
        self.command(Method::POST, &path, &[], NOTHING).await.map(drop)
    }

    /// The staged copy goes, nothing else.
    pub(crate) async fn discard(&self, user: &UserId, mv: Epoch) -> Result<(), ContractError> {
        self.remove(&user_path(user, &format!("/package/{mv}"))).await
    }

    /// The user goes; only after a commit.
    pub(crate) async fn forget(&self, user: &UserId) -> Result<(), ContractError> {
        self.remove(&user_path(user, "")).await
    }

    /// A message for the user.
    pub(crate) async fn deposit(
        &self,
        user: &UserId,
        body: Bytes,
        kind: &str,
        (sender, sequence): (&str, u64),
    ) -> Result<(), ContractError> {
        let sequence = sequence.to_string();
        let kind = if kind.is_empty() {
            "application/octet-stream"
        } else {
            kind
        };
        self.command(
            Method::POST,
            &user_path(user, "/deposits"),
            &[
                ("content-type", kind),
                (headers::SENDER, sender),
                (headers::SEQUENCE, &sequence),
            ],
            Payload::Whole(body),
        )
        .await
        .map(drop)
    }
}
