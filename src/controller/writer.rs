//! The one hand that writes to the API server: asks whether this operator leads before each write, and
//! bounds each call's time; it decides nothing.

use std::time::Duration;

use kube::Client;
use kube::core::Status;
use serde_json::Value;

use super::leader::Leadership;
use crate::api::labels::FIELD_MANAGER;
use crate::clock::Clock;

/// How long one call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends reads and writes of untyped objects.
pub(crate) struct Writer {
    client: Client,
    leadership: Leadership,
    clock: Clock,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    /// This operator does not surely lead: nothing was sent.
    #[error("{0}: not sent, for this operator does not lead")]
    NotLeading(String),
    /// Nobody knows whether it was done.
    #[error("{0}: the API server did not answer in time")]
    Timeout(String),
    /// The request could not be formed.
    #[error("{0}: no valid request")]
    Malformed(String, #[source] http::Error),
    /// The server refused, or the connection failed.
    #[error("{0}: {1}")]
    Api(String, #[source] kube::Error),
}

impl CallError {
    /// The server's own answer, where it gave one.
    pub(crate) fn status(&self) -> Option<&Status> {
        match self {
            Self::Api(_, kube::Error::Api(status)) => Some(status),
            _ => None,
        }
    }

    fn code(&self) -> u16 {
        self.status().map_or(0, |status| status.code)
    }

    /// The object is not there.
    pub(crate) fn is_absent(&self) -> bool {
        self.code() == 404
    }

    /// Someone else wrote, or a precondition failed: read again.
    pub(crate) fn is_conflict(&self) -> bool {
        self.code() == 409 && !self.is_taken()
    }

    /// An object of this name exists already.
    pub(crate) fn is_taken(&self) -> bool {
        self.status().is_some_and(Status::is_already_exists)
    }
}

/// What is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Create,
    DryRun,
    Apply,
    Merge,
    Delete,
}

impl Form {
    fn method(self) -> http::Method {
        match self {
            Self::Create | Self::DryRun => http::Method::POST,
            Self::Apply | Self::Merge => http::Method::PATCH,
            Self::Delete => http::Method::DELETE,
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::Create | Self::DryRun | Self::Delete => "application/json",
            Self::Apply => "application/apply-patch+yaml",
            Self::Merge => "application/merge-patch+json",
        }
    }

    fn query(self) -> String {
        match self {
            Self::Create | Self::Merge => format!("?fieldManager={FIELD_MANAGER}"),
            Self::DryRun => format!("?fieldManager={FIELD_MANAGER}&dryRun=All&fieldValidation=Strict"),
            Self::Apply => format!("?fieldManager={FIELD_MANAGER}&force=true"),
            Self::Delete => String::new(),
        }
    }
}

impl Writer {
    pub(crate) fn new(client: Client, leadership: Leadership, clock: Clock) -> Self {
        Self {
            client,
            leadership,
            clock,
        }
    }

    /// The object at `path`; `None` where there is none.
    pub(crate) async fn get(&self, path: &str) -> Result<Option<Value>, CallError> {
        let request = http::Request::get(path).body(Vec::new());
        match self.bounded(format!("get {path}"), request).await {
            Ok(object) => Ok(Some(object)),
            Err(error) if error.is_absent() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates `object` in the collection at `path`.
    pub(crate) async fn create(&self, path: &str, object: &Value) -> Result<Value, CallError> {
        self.send(Form::Create, path, object).await
    }

    /// Asks whether `object` could be created in the collection at `path`; unknown fields are refused.
    pub(crate) async fn dry_run(&self, path: &str, object: &Value) -> Result<Value, CallError> {
        self.send(Form::DryRun, path, object).await
    }

    /// Server-side apply of `object` at `path`, under the one field manager.
    pub(crate) async fn apply(&self, path: &str, object: &Value) -> Result<Value, CallError> {
        self.send(Form::Apply, path, object).await
    }

    /// JSON merge patch of the object at `path`.
    pub(crate) async fn merge(&self, path: &str, change: &Value) -> Result<Value, CallError> {
        self.send(Form::Merge, path, change).await
    }

    /// Deletes the object at `path` if it still has this UID and this version.
    pub(crate) async fn delete(&self, path: &str, uid: &str, version: &str) -> Result<Value, CallError> {
        let options = serde_json::json!({"kind": "DeleteOptions", "apiVersion": "v1",
            "preconditions": {"uid": uid, "resourceVersion": version}});
        self.send(Form::Delete, path, &options).await
    }

    async fn send(&self, form: Form, path: &str, body: &Value) -> Result<Value, CallError> {
        let act = format!("{form:?} {path}").to_lowercase();
        if !self.leadership.valid(self.clock.now()) {
            return Err(CallError::NotLeading(act));
        }
        let request = http::Request::builder()
            .method(form.method())
            .uri(format!("{path}{}", form.query()))
            .header(http::header::CONTENT_TYPE, form.content_type())
            .body(body.to_string().into_bytes());
        self.bounded(act, request).await
    }

    async fn bounded(
        &self,
        act: String,
        request: Result<http::Request<Vec<u8>>, http::Error>,
    ) -> Result<Value, CallError> {
        let request = request.map_err(|error| CallError::Malformed(act.clone(), error))?;
        match tokio::time::timeout(CALL_TIMEOUT, self.client.request::<Value>(request)).await {
            Ok(done) => done.map_err(|error| CallError::Api(act, error)),
            Err(_) => Err(CallError::Timeout(act)),
        }
    }
}

/// Path of a collection: `collection("apps/v1", "shop", "deployments")`.
pub(crate) fn collection(api_version: &str, namespace: &str, plural: &str) -> String {
    let root = if api_version.contains('/') {
        "/apis"
    } else {
        "/api"
    };
    format!("{root}/{api_version}/namespaces/{namespace}/{plural}")
}

/// Path of a namespace's pods.
pub(crate) fn pods(namespace: &str) -> String {
    collection("v1", namespace, "pods")
}

/// Path at which a built object is applied; `None` for a kind that this controller has no business with.
pub(crate) fn path_of(object: &Value) -> Option<String> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let (version, kind) = (text(&object["apiVersion"])?, text(&object["kind"])?);
    let (namespace, name) = (
        text(&object["metadata"]["namespace"])?,
        text(&object["metadata"]["name"])?,
    );
    let plural = match kind.as_str() {
        "Deployment" => "deployments",
        "Service" => "services",
        "ServiceAccount" => "serviceaccounts",
        "Secret" => "secrets",
        "PodDisruptionBudget" => "poddisruptionbudgets",
        "Pool" => "pools",
        _ => return None,
    };
    Some(format!("{}/{name}", collection(&version, &namespace, plural)))
}
