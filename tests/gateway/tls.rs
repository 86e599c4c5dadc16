//! TLS from clients: what they speak, what the app is told, and certificates that come, go and change.

use std::time::Duration;

use bytes::Bytes;
use elastic_pool::gateway::TlsConfig;
use futures::{SinkExt as _, StreamExt as _};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;

use crate::authority::{Authority, shown};
use crate::client::Answer;
use crate::commander::PATIENCE;
use crate::stage::{Front, Stage, app, eventually};

const NAME: &str = "shop.test";

struct Secured {
    stage: Stage,
    authority: Authority,
    folder: tempfile::TempDir,
}

impl Secured {
    async fn set(change: impl FnOnce(&mut TlsConfig)) -> Self {
        let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
        authority.write(folder.path(), NAME);
        let mut tls = TlsConfig::new(folder.path().to_owned());
        // Looked at whenever a test looks.
        tls.reread = Duration::from_millis(1);
        change(&mut tls);
        let stage = Stage::with(app("one").await, app("two").await, |config| {
            config.tls = Some(tls);
        })
        .await;
        Self {
            stage,
            authority,
            folder,
        }
    }

    fn front(&self) -> &Front {
        &self.stage.front
    }

    async fn connect(&self, protocol: &str) -> std::io::Result<TlsStream<TcpStream>> {
        self.authority
            .connect(self.front().gateway.address, NAME, protocol)
            .await
    }

    /// One request over a new connection by `protocol`.
    async fn get(&self, protocol: &str, path: &str, cookie: Option<&str>) -> Answer {
        let stream = self.connect(protocol).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol.as_bytes()));
        let request = Request::builder()
            .uri(format!("https://{NAME}{path}"))
            .header("host", NAME);
        let request = cookie
            .into_iter()
            .fold(request, |request, cookie| request.header("cookie", cookie));
        let request = request.body(Full::<Bytes>::default()).unwrap();
        let response = if protocol == "h2" {
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                    .await
                    .unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await.unwrap()
        } else {
            let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
                .await
                .unwrap();
            tokio::spawn(connection);
            sender.send_request(request).await.unwrap()
        };
        let (head, body) = response.into_parts();
        Answer {
            status: head.status,
            headers: head.headers,
            body: body.collect().await.unwrap().to_bytes(),
        }
    }
}

#[tokio::test]
async fn both_versions_are_spoken_and_the_app_and_the_cookie_say_https() {
    let secured = Secured::set(|_| {}).await;
    for protocol in ["http/1.1", "h2"] {
        let answer = secured.get(protocol, "/", None).await;
        assert_eq!(
            (answer.status, answer.text()),
            (StatusCode::OK, "one"),
            "{protocol}"
        );
        let line = answer.headers["set-cookie"].to_str().unwrap().to_owned();
        assert!(line.starts_with("__Host-pool-affinity="), "{line}");
        assert!(line.ends_with("; Secure"), "{line}");
        let seen = secured.stage.one.last();
        assert_eq!(seen.header("x-forwarded-proto"), Some("https"), "{protocol}");
        assert_eq!(seen.header("x-forwarded-host"), Some(NAME), "{protocol}");
        let again = secured.get(protocol, "/", Some(&answer.cookies()[0])).await;
        assert_eq!((again.text(), again.cookies().len()), ("one", 0), "{protocol}");
        assert_eq!(secured.stage.one.last().header("cookie"), None);
    }
}

#[tokio::test]
async fn a_websocket_passes_over_tls() {
    let secured = Secured::set(|_| {}).await;
    let stream = secured.connect("http/1.1").await.unwrap();
    let request = Request::builder()
        .uri(format!("wss://{NAME}/ws"))
        .header("host", NAME)
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", generate_key())
        .body(())
        .unwrap();
    let (mut socket, _) = tokio_tungstenite::client_async(request, stream).await.unwrap();
    for size in [0, 5, 70_000, 1_000_000] {
        let sent = Frame::binary(vec![7; size]);
        socket.send(sent.clone()).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), sent);
    }
    assert_eq!(
        secured.stage.one.last().header("x-forwarded-proto"),
        Some("https")
    );
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_to_new_connections_and_open_ones_go_on() {
    let secured = Secured::set(|_| {}).await;
    let old = secured.connect("http/1.1").await.unwrap();
    let before = shown(&old);
    secured.authority.write(secured.folder.path(), NAME);
    eventually("renewed", async || {
        shown(&secured.connect("http/1.1").await.unwrap()) != before
    })
    .await;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(old))
        .await
        .unwrap();
    tokio::spawn(connection);
    let request = Request::get("/")
        .header("host", NAME)
        .body(Full::<Bytes>::default())
        .unwrap();
    assert_eq!(
        sender.send_request(request).await.unwrap().status(),
        StatusCode::OK
    );
}

#[tokio::test]
async fn what_is_no_pair_changes_nothing_and_the_next_right_one_does() {
    let secured = Secured::set(|_| {}).await;
    let before = shown(&secured.connect("h2").await.unwrap());
    let (other, _) = secured.authority.certify(NAME);
    for wrong in [other.as_str(), "no certificate", ""] {
        std::fs::write(secured.folder.path().join("tls.crt"), wrong).unwrap();
        // It was looked at when the next right one would have been: the connections in between show the old one.
        for _ in 0..3 {
            assert_eq!(shown(&secured.connect("h2").await.unwrap()), before);
        }
        assert_eq!(secured.front().admin("/readyz").await.status, StatusCode::OK);
    }
    secured.authority.write(secured.folder.path(), NAME);
    eventually("renewed", async || {
        shown(&secured.connect("h2").await.unwrap()) != before
    })
    .await;
}

#[tokio::test]
async fn without_a_certificate_a_gateway_is_not_ready_says_why_and_waits_for_one() {
    let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
    let stage = Stage::set(app("one").await, app("two").await).await;
    let mut tls = TlsConfig::new(folder.path().to_owned());
    tls.reread = Duration::from_millis(1);
    let front = Front::start_with(&stage.commander, &stage.keys, |config| config.tls = Some(tls)).await;
    let ready = front.admin("/readyz").await;
    assert_eq!(ready.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(
        ready.text().contains("tls.crt: read it: No such file"),
        "{}",
        ready.text()
    );
    assert_eq!(front.admin("/livez").await.status, StatusCode::OK);
    assert!(
        authority
            .connect(front.gateway.address, NAME, "h2")
            .await
            .is_err()
    );
    let (certificate, key) = authority.certify(NAME);
    let other = authority.certify(NAME).1;
    for (certificate, key, said) in [
        ("", key.as_str(), "tls.crt: it holds no certificate in PEM"),
        (
            certificate.as_str(),
            "",
            "tls.key: it holds no private key in PEM",
        ),
        (certificate.as_str(), other.as_str(), "cannot be used together"),
    ] {
        std::fs::write(folder.path().join("tls.crt"), certificate).unwrap();
        std::fs::write(folder.path().join("tls.key"), key).unwrap();
        eventually(said, async || front.admin("/readyz").await.text().contains(said)).await;
    }
    std::fs::write(folder.path().join("tls.key"), key).unwrap();
    eventually("ready", async || {
        front.admin("/readyz").await.status == StatusCode::OK
    })
    .await;
    authority
        .connect(front.gateway.address, NAME, "h2")
        .await
        .unwrap();
}

#[tokio::test]
async fn who_does_not_finish_a_handshake_is_cut_and_counted() {
    let secured = Secured::set(|tls| tls.handshake_timeout = Duration::from_millis(20)).await;
    let failed = "elastic_pool_gateway_tls_handshakes_failed_total";
    let address = secured.front().gateway.address;
    let mut silent = TcpStream::connect(address).await.unwrap();
    let end = tokio::time::timeout(PATIENCE, silent.read_to_end(&mut Vec::new()))
        .await
        .unwrap();
    assert!(matches!(end, Ok(0)), "{end:?}");
    eventually("counted", async || secured.front().metric(failed).await > 0.5).await;
    // Cleartext is no handshake, and nothing of it reaches an app.
    let mut clear = TcpStream::connect(address).await.unwrap();
    clear
        .write_all(b"GET / HTTP/1.1\r\nhost: shop.test\r\n\r\n")
        .await
        .unwrap();
    let mut got = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, clear.read_to_end(&mut got))
        .await
        .unwrap();
    assert!(!got.starts_with(b"HTTP"), "{got:?}");
    eventually("counted", async || secured.front().metric(failed).await > 1.5).await;
    assert_eq!(secured.stage.one.requests().len(), 0);
    assert!(secured.front().metric("elastic_pool_gateway_connections").await < 0.5);
}
