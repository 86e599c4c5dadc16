//! The access log: off unless asked for, one line per request, whatever became of it.

use serde_json::Value;

use crate::backend::{Backend, text};
use crate::raw::RawClient;
use crate::stage::{Stage, app, eventually};

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[tokio::test]
async fn each_request_is_one_line_with_its_id_its_trace_and_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access");
    let one = Backend::start(|_| async { text("hello") }).await;
    let file = path.clone();
    let stage = Stage::with(one, app("two").await, |config| config.access_log = Some(file)).await;
    let mut browser = stage.front.browser();
    let request = browser
        .request("/a?b=c")
        .header("traceparent", TRACE)
        .header("user-agent", "test \"1\"")
        .header("x-request-id", "forged");
    let answer = browser
        .send(request.body(http_body_util::Full::default()).unwrap())
        .await;
    assert_eq!(browser.get("/break").await.status, 502);
    let mut hasty = RawClient::connect(stage.front.gateway.address).await;
    hasty
        .send(b"POST /hasty HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf")
        .await;
    eventually("it has arrived", async || {
        stage.front.metric("elastic_pool_gateway_requests_total").await > 2.5
    })
    .await;
    drop(hasty);
    let lines = || -> Vec<Value> {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    eventually("three lines", async || lines().len() == 3).await;
    let lines = lines();
    let first = &lines[0];
    let id = answer.headers["x-request-id"].to_str().unwrap();
    assert_ne!(id, "forged");
    assert_eq!(
        (first["id"].as_str(), first["target"].as_str()),
        (Some(id), Some("/a?b=c"))
    );
    assert_eq!(
        (first["status"].as_u64(), first["bytes"].as_u64()),
        (Some(200), Some(5))
    );
    assert_eq!(
        (first["outcome"].as_str(), first["worker"].as_str()),
        (Some("answered"), Some("blue-1"))
    );
    assert_eq!(first["trace"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(
        (first["agent"].as_str(), first["peer"].as_str()),
        (Some("test \"1\""), Some("127.0.0.1"))
    );
    let seen = &stage.one.requests()[0];
    assert_eq!(
        (seen.header("traceparent"), seen.header("x-request-id")),
        (Some(TRACE), Some(id))
    );
    assert_eq!(
        (lines[1]["status"].as_u64(), lines[1]["outcome"].as_str()),
        (Some(502), Some("broken"))
    );
    assert_eq!(
        (lines[2]["target"].as_str(), lines[2]["worker"].as_str()),
        (Some("/hasty"), None)
    );
}
