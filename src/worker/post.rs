//! Asks this worker's agent to take a message to a user, wherever he lives (V10); it keeps nothing.

use axum::body::Bytes;
use axum::http::Request;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use thiserror::Error;

use super::identity::UserId;

/// Longest answer of an agent that is read, in bytes.
const MAX_ANSWER: usize = 4096;

/// Why the agent was not asked, or gave no answer.
#[derive(Debug, Error)]
pub(super) enum PostError {
    /// There is no contract with an agent.
    #[error("this worker has no agent")]
    NoAgent,
    /// Its address or the token is none.
    #[error("make the request")]
    Request(#[from] axum::http::Error),
    /// It could not be reached.
    #[error("ask the agent")]
    Call(#[from] hyper_util::client::legacy::Error),
    /// Its answer is no JSON of a few bytes.
    #[error("read the agent's answer")]
    Answer,
}

/// The way to the agent.
pub(super) struct Post {
    agent: String,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Post {
    /// `agent` is the base of its URLs, as in `http://127.0.0.1:15082`.
    pub(super) fn new(agent: String) -> Self {
        Self {
            agent,
            client: Client::builder(TokioExecutor::new()).build_http(),
        }
    }

    /// Sends `text` to `user`; the answer's `outcome` is delivered, held or refused.
    pub(super) async fn send(&self, user: &UserId, text: String, token: &str) -> Result<Value, PostError> {
        let to = utf8_percent_encode(user.as_str(), NON_ALPHANUMERIC);
        let request = Request::post(format!("{}/v1/deposits/{to}", self.agent))
            .header("pool-token", token)
            .header("content-type", "text/plain; charset=utf-8")
            .body(Full::new(Bytes::from(text)))?;
        let response = self.client.request(request).await?;
        let body = Limited::new(response.into_body(), MAX_ANSWER);
        let body = body.collect().await.map_err(|_| PostError::Answer)?.to_bytes();
        serde_json::from_slice(&body).map_err(|_| PostError::Answer)
    }
}
