//! The page on which a person sees who he is, his counter and the worker that serves him, live; never any other user's data.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{Html, IntoResponse, Response};
use maud::{DOCTYPE, Markup, html};

use super::app::{App, Caller};
use super::identity::random_id;
use super::routes::finish;

/// `GET /`: the page. It is one of the user's open pages from now on.
pub(super) async fn home(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let who = app.identify(&headers);
    let seen = app.act(&who.caller, |slice| {
        slice.open_page(random_id());
        (slice.counter, slice.pages.len())
    });
    let (counter, pages) = match seen {
        Ok(seen) => seen,
        Err(refusal) => return refusal.into_response(),
    };
    let page = render(&app, &who.caller, counter, pages, app.worker(&headers));
    let mut response = finish(who, Html(page.into_string()));
    response.headers_mut().insert(
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'self'; connect-src 'self' ws: wss:; frame-ancestors 'none'"),
    );
    response
}

/// `GET /app.js`
pub(super) async fn script() -> impl IntoResponse {
    (
        [(header::CONTENT_TYPE, "text/javascript; charset=utf-8")],
        include_str!("page.js"),
    )
}

/// `GET /app.css`
pub(super) async fn style() -> impl IntoResponse {
    (
        [(header::CONTENT_TYPE, "text/css; charset=utf-8")],
        include_str!("page.css"),
    )
}

fn render(app: &App, caller: &Caller, counter: u64, pages: usize, worker: &str) -> Markup {
    let user = match caller {
        Caller::User { user, .. } => Some(user.as_str()),
        _ => None,
    };
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Reference app" }
                link rel="stylesheet" href="/app.css";
                script src="/app.js" defer {}
            }
            body {
                main {
                    h1 { (user.unwrap_or("Guest")) }
                    @if *caller == Caller::Stale {
                        p.note { "Your session has ended. Log in again to start a new one." }
                    }
                    dl {
                        dt { "Counter" }
                        dd #counter { (counter) }
                        dt { "Worker" }
                        dd #worker { (worker) }
                        dt { "Connection" }
                        dd #link role="status" { "connecting" }
                        dt { "Open pages" }
                        dd { (pages) }
                    }
                    div.row {
                        button #count type="button" { "Count" }
                        button #burn type="button" { "Count and burn 500 ms of CPU" }
                    }
                    @if !app.plain { (session_form(user)) }
                    h2 { "What happened" }
                    ol #log aria-live="polite" {}
                }
            }
        }
    }
}

fn session_form(user: Option<&str>) -> Markup {
    html! {
        @if user.is_some() {
            form.row method="post" action="/logout" { button { "Log out" } }
        } @else {
            form.row method="post" action="/login" {
                label for="user" { "Name" }
                input #user name="user" required maxlength="256" autocomplete="username";
                button { "Log in" }
            }
        }
    }
}
