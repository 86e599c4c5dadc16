//! An API server of JSON objects in memory, for tests; it validates nothing.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{Method, Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;
type Hook = Box<dyn Fn(&Call) -> Option<(u16, Value)> + Send + Sync>;

/// One request as the server saw it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) body: Value,
}

impl Call {
    pub(crate) fn is_write(&self) -> bool {
        self.method != Method::GET
    }

    pub(crate) fn is_dry_run(&self) -> bool {
        self.query.contains("dryRun=All")
    }
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    calls: Vec<Call>,
    log: Vec<(u64, String, &'static str, Value)>,
    version: u64,
    hooks: Vec<Hook>,
    frozen: bool,
}

/// The server; clones share one state.
#[derive(Clone)]
pub(crate) struct FakeApi {
    state: Arc<Mutex<State>>,
    news: Arc<watch::Sender<u64>>,
}

impl FakeApi {
    pub(crate) fn new() -> Self {
        Self {
            state: Arc::default(),
            news: Arc::new(watch::channel(0).0),
        }
    }

    pub(crate) fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.serve(request).await) }
        });
        Client::new(service, "default")
    }

    /// Answers instead of the server where `hook` gives a status and a body; the newest hook is asked first.
    pub(crate) fn hook(&self, hook: impl Fn(&Call) -> Option<(u16, Value)> + Send + Sync + 'static) {
        self.state.lock().hooks.insert(0, Box::new(hook));
    }

    pub(crate) fn clear_hooks(&self) {
        self.state.lock().hooks.clear();
    }

    /// While frozen, watches tell nothing.
    pub(crate) fn freeze_watches(&self, frozen: bool) {
        self.state.lock().frozen = frozen;
        self.news.send_modify(|news| *news += 1);
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.state.lock().calls.clone()
    }

    /// Writes that changed or could have changed something.
    pub(crate) fn writes(&self) -> Vec<Call> {
        self.calls()
            .into_iter()
            .filter(|call| call.is_write() && !call.is_dry_run())
            .collect()
    }

    pub(crate) fn get(&self, path: &str) -> Option<Value> {
        self.state.lock().objects.get(path).cloned()
    }

    /// Objects whose path starts with `prefix`.
    pub(crate) fn list(&self, prefix: &str) -> Vec<Value> {
        let state = self.state.lock();
        state
            .objects
            .iter()
            .filter(|(path, _)| path.starts_with(prefix))
            .map(|(_, value)| value.clone())
            .collect()
    }

    /// Objects whose path starts with `prefix` and holds `part`.
    pub(crate) fn matching(&self, prefix: &str, part: &str) -> Vec<Value> {
        let state = self.state.lock();
        let paths = state
            .objects
            .iter()
            .filter(|(path, _)| path.starts_with(prefix) && path.contains(part));
        paths.map(|(_, value)| value.clone()).collect()
    }

    /// Waits until `holds`, looking again after each change; fails after 10 s.
    pub(crate) async fn until(&self, holds: impl Fn(&Self) -> bool) {
        let mut news = self.news.subscribe();
        let wait = async {
            while !holds(self) {
                news.changed().await.unwrap();
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(10), wait)
            .await
            .expect("it never held");
    }

    /// Puts an object as somebody else would.
    pub(crate) fn put(&self, path: &str, mut object: Value) {
        let mut state = self.state.lock();
        let old = state.objects.get(path).cloned();
        if let Some(old) = &old {
            object["metadata"]["uid"] = old["metadata"]["uid"].clone();
        }
        store(&mut state, path, object, old.is_none(), true);
        drop(state);
        self.news.send_modify(|news| *news += 1);
    }

    pub(crate) fn remove(&self, path: &str) {
        let mut state = self.state.lock();
        erase(&mut state, path);
        drop(state);
        self.news.send_modify(|news| *news += 1);
    }

    async fn serve(&self, request: Request<Body>) -> Answer {
        let (parts, body) = request.into_parts();
        let bytes = body
            .collect()
            .await
            .map(http_body_util::Collected::to_bytes)
            .unwrap_or_default();
        let call = Call {
            method: parts.method,
            path: parts.uri.path().to_owned(),
            query: parts.uri.query().unwrap_or_default().to_owned(),
            body: serde_json::from_slice(&bytes).unwrap_or(Value::Null),
        };
        let hooked = {
            let mut state = self.state.lock();
            state.calls.push(call.clone());
            state.hooks.iter().find_map(|hook| hook(&call))
        };
        if let Some((code, body)) = hooked {
            return answer(code, &body);
        }
        if call.method == Method::GET && call.query.contains("watch=true") {
            return self.stream(&call);
        }
        let (code, body) = self.handle(&call);
        self.news.send_modify(|news| *news += 1);
        answer(code, &body)
    }

    fn handle(&self, call: &Call) -> (u16, Value) {
        let mut state = self.state.lock();
        let path = call.path.trim_end_matches("/status").to_owned();
        let old = state.objects.get(&path).cloned();
        let dry = call.is_dry_run();
        match (call.method.clone(), old) {
            (Method::GET, Some(object)) => (200, object),
            (Method::GET, None) if is_collection(&path) => list(&state, &path, &call.query),
            (Method::POST, _) => create(&mut state, &path, call, dry),
            (Method::PATCH, None) if !call.query.contains("force=true") || call.path.ends_with("/status") => {
                status(404, "NotFound", "not found")
            }
            (Method::PATCH, None) => {
                let object = store_unless(&mut state, &path, call.body.clone(), true, dry);
                (201, object)
            }
            (Method::PUT | Method::PATCH, Some(old)) => change(&mut state, &path, call, &old),
            (Method::DELETE, Some(old)) => delete(&mut state, &path, call, &old),
            _ => status(404, "NotFound", "not found"),
        }
    }

    fn stream(&self, call: &Call) -> Answer {
        let from = parameter(&call.query, "resourceVersion")
            .and_then(|text| text.parse().ok())
            .unwrap_or(0);
        let selector = parameter(&call.query, "labelSelector");
        let prefix = format!("{}/", call.path);
        let start = (self.clone(), self.news.subscribe(), from);
        let events = futures::stream::unfold(start, move |(server, mut news, mut seen): (Self, _, u64)| {
            let (prefix, selector) = (prefix.clone(), selector.clone());
            async move {
                loop {
                    let mut lines = String::new();
                    {
                        let state = server.state.lock();
                        let from = if state.frozen { u64::MAX } else { seen };
                        for (version, path, kind, object) in state.log.iter().filter(|entry| entry.0 > from) {
                            seen = *version;
                            if under(&prefix, path) && selected(object, selector.as_deref()) {
                                lines += &json!({"type": kind, "object": object}).to_string();
                                lines.push('\n');
                            }
                        }
                    }
                    if !lines.is_empty() {
                        let frame: Result<_, Infallible> = Ok(Frame::data(Bytes::from(lines)));
                        return Some((frame, (server, news, seen)));
                    }
                    let _ = news.changed().await;
                }
            }
        });
        Response::new(StreamBody::new(events.boxed()).boxed_unsync())
    }
}

/// True for objects of a collection, namespaced ones under the cluster-wide collection too.
fn under(prefix: &str, path: &str) -> bool {
    if path.starts_with(prefix) {
        return true;
    }
    // /api/v1/pods/ and /api/v1/namespaces/x/pods/y
    let Some((group, plural)) = prefix.trim_end_matches('/').rsplit_once('/') else {
        return false;
    };
    let Some(rest) = path.strip_prefix(&format!("{group}/namespaces/")) else {
        return false;
    };
    rest.split('/').nth(1) == Some(plural) && rest.split('/').count() == 3
}

fn is_collection(path: &str) -> bool {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let after_group = if parts.first() == Some(&"api") { 2 } else { 3 };
    let rest = parts.len() - after_group;
    rest == 1 || (rest == 3 && parts[after_group] == "namespaces")
}

fn parameter(query: &str, name: &str) -> Option<String> {
    let found = query
        .split('&')
        .find_map(|pair| pair.strip_prefix(&format!("{name}=")))?;
    let decoded = percent_encoding::percent_decode_str(found).decode_utf8().ok()?;
    Some(decoded.into_owned())
}

/// Only `key`, `key=value` and comma.
fn selected(object: &Value, selector: Option<&str>) -> bool {
    let labels = &object["metadata"]["labels"];
    selector.is_none_or(|selector| {
        selector.split(',').all(|term| match term.split_once('=') {
            Some((key, value)) => labels[key] == value,
            None => !labels[term].is_null(),
        })
    })
}

fn list(state: &State, path: &str, query: &str) -> (u16, Value) {
    let selector = parameter(query, "labelSelector");
    let prefix = format!("{path}/");
    let items: Vec<&Value> = state
        .objects
        .iter()
        .filter(|(path, object)| under(&prefix, path) && selected(object, selector.as_deref()))
        .map(|(_, object)| object)
        .collect();
    (
        200,
        json!({"kind": "List", "apiVersion": "v1",
        "metadata": {"resourceVersion": state.version.to_string()}, "items": items}),
    )
}

fn create(state: &mut State, path: &str, call: &Call, dry: bool) -> (u16, Value) {
    let Some(name) = call.body["metadata"]["name"].as_str() else {
        return (201, call.body.clone());
    };
    let path = format!("{path}/{name}");
    if state.objects.contains_key(&path) {
        return status(409, "AlreadyExists", &format!("{name} already exists"));
    }
    (201, store_unless(state, &path, call.body.clone(), true, dry))
}

fn change(state: &mut State, path: &str, call: &Call, old: &Value) -> (u16, Value) {
    let asked = &call.body["metadata"];
    for field in ["resourceVersion", "uid"] {
        if !asked[field].is_null() && asked[field] != old["metadata"][field] {
            return status(409, "Conflict", "the object has been modified");
        }
    }
    let mut object = if call.method == Method::PUT {
        call.body.clone()
    } else {
        merge(old.clone(), &call.body)
    };
    object["metadata"]["uid"] = old["metadata"]["uid"].clone();
    if object == *old {
        return (200, object);
    }
    (
        200,
        store(state, path, object.clone(), false, object["spec"] != old["spec"]),
    )
}

fn delete(state: &mut State, path: &str, call: &Call, old: &Value) -> (u16, Value) {
    let wanted = &call.body["preconditions"];
    for field in ["resourceVersion", "uid"] {
        if !wanted[field].is_null() && wanted[field] != old["metadata"][field] {
            return status(409, "Conflict", "the precondition failed");
        }
    }
    erase(state, path);
    (
        200,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}),
    )
}

fn store_unless(state: &mut State, path: &str, object: Value, new: bool, dry: bool) -> Value {
    if dry {
        object
    } else {
        store(state, path, object, new, true)
    }
}

fn store(state: &mut State, path: &str, mut object: Value, new: bool, spec_changed: bool) -> Value {
    state.version += 1;
    let version = state.version;
    let name = path.rsplit('/').next().unwrap_or_default();
    let parts: Vec<&str> = path.split('/').collect();
    let namespace = parts
        .iter()
        .position(|part| *part == "namespaces")
        .and_then(|at| parts.get(at + 1));
    let metadata = &mut object["metadata"];
    metadata["name"] = json!(name);
    metadata["namespace"] = json!(namespace);
    metadata["resourceVersion"] = json!(version.to_string());
    if metadata["uid"].is_null() {
        metadata["uid"] = json!(format!("uid-{version}"));
    }
    let generation = metadata["generation"].as_i64().unwrap_or(0);
    metadata["generation"] = json!(if spec_changed { generation + 1 } else { generation });
    state.objects.insert(path.to_owned(), object.clone());
    state.log.push((
        version,
        path.to_owned(),
        if new { "ADDED" } else { "MODIFIED" },
        object.clone(),
    ));
    object
}

fn erase(state: &mut State, path: &str) {
    if let Some(mut object) = state.objects.remove(path) {
        state.version += 1;
        let version = state.version;
        object["metadata"]["resourceVersion"] = json!(version.to_string());
        state.log.push((version, path.to_owned(), "DELETED", object));
    }
}

/// JSON merge patch.
fn merge(mut old: Value, patch: &Value) -> Value {
    let (Some(fields), true) = (patch.as_object(), old.is_object()) else {
        return patch.clone();
    };
    for (key, value) in fields {
        if value.is_null() {
            old.as_object_mut().map(|old| old.remove(key));
        } else {
            old[key] = merge(old[key].take(), value);
        }
    }
    old
}

/// A `Status` as the API server answers it.
pub(crate) fn status(code: u16, reason: &str, message: &str) -> (u16, Value) {
    (
        code,
        json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
        "code": code, "reason": reason, "message": message}),
    )
}

fn answer(code: u16, body: &Value) -> Answer {
    let body = Full::new(Bytes::from(body.to_string())).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap();
    response
}
