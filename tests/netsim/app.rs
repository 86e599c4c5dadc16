//! A small app that counts each user's requests and speaks the worker contract; it tells the history all that it holds.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use elastic_pool::net::TcpListener;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::history::{Event, Standing};
use crate::world::Shared;

pub(crate) const PORT: u16 = 8080;

#[derive(Debug, Clone)]
struct Resident {
    life: u64,
    count: u64,
    frozen: Option<u64>,
    /// The move that brought him, while it can be undone.
    arrived: Option<u64>,
}

#[derive(Debug, Default)]
struct Store {
    residents: BTreeMap<String, Resident>,
    staged: BTreeMap<String, (u64, u64, u64)>,
    /// Joins that were activated, so that doing it again changes nothing.
    joined: BTreeMap<String, u64>,
}

struct App {
    shared: Arc<Shared>,
    name: String,
    store: Mutex<Store>,
}

/// Serves until its process is killed.
pub(crate) async fn run(shared: Arc<Shared>, name: String) {
    let Ok(listener) = TcpListener::bind(("0.0.0.0", PORT)).await else {
        return;
    };
    let app = Arc::new(App {
        shared,
        name,
        store: Mutex::default(),
    });
    while let Ok((stream, _)) = listener.accept().await {
        let app = Arc::clone(&app);
        let service = service_fn(move |request| {
            let app = Arc::clone(&app);
            async move { Ok::<_, Infallible>(app.serve(request).await) }
        });
        tokio::spawn(
            http1::Builder::new()
                .auto_date_header(false)
                .serve_connection(TokioIo::new(stream), service),
        );
    }
}

type Answer = Response<Full<Bytes>>;

fn answer(status: StatusCode, text: impl Into<Bytes>) -> Answer {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    response
}

fn json_answer(value: &Value) -> Answer {
    let mut response = answer(StatusCode::OK, value.to_string());
    response
        .headers_mut()
        .insert("content-type", http::HeaderValue::from_static("application/json"));
    response
}

impl App {
    async fn serve(&self, request: Request<Incoming>) -> Answer {
        let (head, body) = request.into_parts();
        let header = |name: &str| {
            head.headers
                .get(name)
                .and_then(|value| value.to_str().ok())
                .map(str::to_owned)
        };
        let path: Vec<String> = head.uri.path().split('/').skip(1).map(str::to_owned).collect();
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let id = header("x-sim-id")
            .and_then(|id| id.parse().ok())
            .unwrap_or_default();
        match (&head.method, path.as_slice()) {
            (_, ["login", user]) => self.login(user),
            (_, ["count"]) => self.count(id, header("pool-user").as_deref()),
            (_, ["_pool", "v1", "users"]) => self.list(),
            (_, ["_pool", "v1", "report"]) => self.report(),
            (&Method::DELETE, ["_pool", "v1", "users", user]) => self.forget(user),
            (method, ["_pool", "v1", "users", user, "snapshot", mv]) => {
                self.snapshot(method, user, number(mv))
            }
            (method, ["_pool", "v1", "users", user, "package", mv]) => {
                let (method, user, mv) = (method.clone(), (*user).to_owned(), number(mv));
                match body.collect().await {
                    Ok(body) => self.package(&method, &user, mv, &body.to_bytes()),
                    // A package that breaks off changes nothing.
                    Err(_) => answer(StatusCode::BAD_REQUEST, ""),
                }
            }
            _ => answer(StatusCode::NOT_FOUND, ""),
        }
    }

    fn holds(&self, user: &str, life: u64, standing: Standing) {
        self.shared.note(Event::Holds {
            user: user.to_owned(),
            app: self.name.clone(),
            life,
            standing,
        });
    }

    fn login(&self, user: &str) -> Answer {
        let mut store = self.store.lock();
        if store
            .residents
            .get(user)
            .is_some_and(|resident| resident.frozen.is_some())
        {
            return answer(StatusCode::CONFLICT, "moving");
        }
        if !store.residents.contains_key(user) {
            let life = self.shared.new_life();
            store.residents.insert(
                user.to_owned(),
                Resident {
                    life,
                    count: 0,
                    frozen: None,
                    arrived: None,
                },
            );
            self.holds(user, life, Standing::Live);
        }
        let life = store.residents[user].life;
        let mut response = answer(StatusCode::OK, format!("in {life}"));
        if let Ok(user) = user.parse() {
            response.headers_mut().insert("pool-user", user);
        }
        response
    }

    fn count(&self, request: u64, user: Option<&str>) -> Answer {
        let Some(user) = user else {
            return answer(StatusCode::OK, "guest");
        };
        let mut store = self.store.lock();
        let staged = store.staged.contains_key(user);
        match store.residents.get_mut(user) {
            Some(resident) if resident.frozen.is_none() => {
                resident.count += 1;
                resident.arrived = None;
                let (life, count) = (resident.life, resident.count);
                let (user, app) = (user.to_owned(), self.name.clone());
                self.shared.note(Event::Executed {
                    request,
                    user,
                    life,
                    count,
                    app,
                });
                answer(StatusCode::OK, format!("count {life} {count}"))
            }
            None if !staged => answer(StatusCode::OK, "stranger"),
            _ => {
                let (user, app) = (user.to_owned(), self.name.clone());
                self.shared.note(Event::ServedUnready { request, user, app });
                answer(StatusCode::CONFLICT, "moving")
            }
        }
    }

    fn list(&self) -> Answer {
        let store = self.store.lock();
        let residents = store
            .residents
            .iter()
            .map(|(user, resident)| match resident.frozen {
                None => json!({ "id": user, "state": "live" }),
                Some(mv) => json!({ "id": user, "state": "frozen", "move": mv.to_string() }),
            });
        let staged = store
            .staged
            .iter()
            .map(|(user, (mv, ..))| json!({ "id": user, "state": "staged", "move": mv.to_string() }));
        let users: Vec<Value> = residents.chain(staged).collect();
        json_answer(&json!({ "instance": self.name, "capabilities": ["snapshot"], "users": users }))
    }

    fn report(&self) -> Answer {
        let users = self.store.lock().residents.len() as u64;
        let busy = (users * self.shared.pressure()).min(100);
        json_answer(&json!({ "users": users, "executor": { "busy": busy, "total": 100 } }))
    }

    fn forget(&self, user: &str) -> Answer {
        let mut store = self.store.lock();
        match store.residents.remove(user) {
            Some(resident) => {
                self.holds(user, resident.life, Standing::Gone);
                answer(StatusCode::NO_CONTENT, "")
            }
            None => answer(StatusCode::NOT_FOUND, ""),
        }
    }

    fn snapshot(&self, method: &Method, user: &str, mv: u64) -> Answer {
        let mut store = self.store.lock();
        let Some(resident) = store.residents.get_mut(user) else {
            return answer(StatusCode::NOT_FOUND, "");
        };
        if *method == Method::DELETE {
            if resident.frozen != Some(mv) {
                return answer(StatusCode::NOT_FOUND, "");
            }
            resident.frozen = None;
            self.holds(user, resident.life, Standing::Live);
            return answer(StatusCode::NO_CONTENT, "");
        }
        resident.frozen = Some(mv);
        resident.arrived = None;
        self.holds(user, resident.life, Standing::Frozen);
        let mut response = answer(StatusCode::OK, format!("{}:{}", resident.life, resident.count));
        response
            .headers_mut()
            .insert("pool-format", http::HeaderValue::from_static("count/1"));
        response
    }

    fn package(&self, method: &Method, user: &str, mv: u64, body: &[u8]) -> Answer {
        let mut store = self.store.lock();
        match *method {
            Method::PUT => {
                let read = std::str::from_utf8(body)
                    .ok()
                    .and_then(|text| text.split_once(':'));
                let read = read.and_then(|(life, count)| Some((life.parse().ok()?, count.parse().ok()?)));
                let Some((life, count)) = read else {
                    return answer(StatusCode::UNPROCESSABLE_ENTITY, "");
                };
                store.staged.insert(user.to_owned(), (mv, life, count));
                answer(StatusCode::NO_CONTENT, "")
            }
            Method::POST => self.activate(&mut store, user, mv),
            _ => {
                if store.staged.get(user).is_some_and(|(staged, ..)| *staged == mv) {
                    store.staged.remove(user);
                    return answer(StatusCode::NO_CONTENT, "");
                }
                if store
                    .residents
                    .get(user)
                    .is_some_and(|resident| resident.arrived == Some(mv))
                    && let Some(resident) = store.residents.remove(user)
                {
                    self.holds(user, resident.life, Standing::Gone);
                    return answer(StatusCode::NO_CONTENT, "");
                }
                answer(StatusCode::NOT_FOUND, "")
            }
        }
    }

    fn activate(&self, store: &mut Store, user: &str, mv: u64) -> Answer {
        let before = store.residents.get(user);
        if before.is_some_and(|resident| resident.arrived == Some(mv)) || store.joined.get(user) == Some(&mv)
        {
            return answer(StatusCode::NO_CONTENT, "");
        }
        if before.is_some_and(|resident| resident.frozen.is_some()) {
            return answer(StatusCode::CONFLICT, "");
        }
        let is_join = before.is_some();
        let Some((_, life, count)) = store
            .staged
            .get(user)
            .copied()
            .filter(|(staged, ..)| *staged == mv)
        else {
            return answer(StatusCode::NOT_FOUND, "");
        };
        store.staged.remove(user);
        if is_join {
            // The resident's values win.
            store.joined.insert(user.to_owned(), mv);
        } else {
            let resident = Resident {
                life,
                count,
                frozen: None,
                arrived: Some(mv),
            };
            store.residents.insert(user.to_owned(), resident);
            self.holds(user, life, Standing::Live);
        }
        answer(StatusCode::NO_CONTENT, "")
    }
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_default()
}
