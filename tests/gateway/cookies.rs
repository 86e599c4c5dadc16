//! The affinity cookie as browsers see it, and what other cookies and proxies' headers become on the way to the app.

use bytes::Bytes;
use elastic_pool::gateway::{CookieConfig, CookieSameSite, CookieSecure, GatewayConfig, IdentityConfig};
use http::{Request, StatusCode};
use http_body_util::Full;

use crate::client::Answer;
use crate::stage::{Stage, app};

/// A stage whose gateway is configured otherwise.
async fn stage(change: impl FnOnce(&mut GatewayConfig)) -> Stage {
    Stage::with(app("one").await, app("two").await, change).await
}

fn trusting(config: &mut GatewayConfig) {
    config.trusted_proxies = vec!["127.0.0.0/8".parse().unwrap()];
}

async fn get(stage: &Stage, headers: &[(&'static str, &str)]) -> Answer {
    let mut request = Request::get("/").header("host", "shop.test");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::<Bytes>::default()).unwrap();
    crate::client::send(stage.front.gateway.address, request)
        .await
        .unwrap()
}

/// The line that sets our cookie, its value cut out.
fn line(answer: &Answer) -> String {
    let line = answer.headers["set-cookie"].to_str().unwrap();
    let (name, rest) = line.split_once('=').unwrap();
    let (_, end) = rest.split_once(';').unwrap();
    format!("{name}=V;{end}")
}

#[tokio::test]
async fn a_secure_cookie_is_set_where_a_trusted_proxy_says_https_and_nowhere_else() {
    let (plain, secure) = (
        "pool-affinity=V; Path=/; HttpOnly; SameSite=Lax",
        "__Host-pool-affinity=V; Path=/; HttpOnly; SameSite=Lax; Secure",
    );
    let https = [("x-forwarded-proto", "https")];
    let strangers = stage(|_| {}).await;
    assert_eq!(line(&get(&strangers, &https).await), plain, "a stranger's header");
    let behind = stage(trusting).await;
    assert_eq!(line(&get(&behind, &[]).await), plain);
    assert_eq!(line(&get(&behind, &https).await), secure);
    assert_eq!(
        line(&get(&behind, &[("x-forwarded-proto", "https, http")]).await),
        plain
    );
    let always = stage(|config| config.cookie.secure = CookieSecure::Always).await;
    assert_eq!(line(&get(&always, &[]).await), secure);
    let never = stage(|config| {
        trusting(config);
        config.cookie.secure = CookieSecure::Never;
    });
    assert_eq!(line(&get(&never.await, &https).await), plain);
}

#[tokio::test]
async fn a_cookie_of_another_name_domain_and_lifetime_keeps_its_client() {
    let stage = stage(|config| {
        config.cookie = CookieConfig {
            name: "shop".to_owned(),
            domain: Some("shop.test".to_owned()),
            same_site: CookieSameSite::None,
            secure: CookieSecure::Always,
            lifetime: Some(std::time::Duration::from_hours(1)),
        };
    })
    .await;
    let first = get(&stage, &[]).await;
    let end = "; Path=/; Domain=shop.test; Max-Age=3600; HttpOnly; SameSite=None; Secure";
    assert_eq!(line(&first), format!("__Secure-shop=V{end}"));
    let cookie = first.headers["set-cookie"]
        .to_str()
        .unwrap()
        .split(';')
        .next()
        .unwrap()
        .to_owned();
    let client = stage.one.last().header("pool-client").unwrap().to_owned();
    let second = get(&stage, &[("cookie", &format!("a=1; {cookie}"))]).await;
    assert!(second.headers.get("set-cookie").is_none());
    let seen = stage.one.last();
    assert_eq!(
        (seen.header("pool-client"), seen.header("cookie")),
        (Some(client.as_str()), Some("a=1"))
    );
}

#[tokio::test]
async fn nearly_8_kib_of_other_cookies_pass_beside_ours_byte_for_byte() {
    let stage = stage(|_| {}).await;
    let mut browser = stage.front.browser();
    browser.get("/").await;
    let ours = browser.cookie.clone().unwrap();
    let others: String = (0..63)
        .map(|n| format!("c{n:02}=\"{}\"; ", "x".repeat(120)))
        .collect();
    let others = format!("{others}last={}", "y".repeat(8089 - others.len() - 5));
    assert_eq!(others.len(), 8089, "7.9 KiB");
    for cookie in [format!("{ours}; {others}"), format!("{others}; {ours}")] {
        let answer = get(&stage, &[("cookie", &cookie)]).await;
        assert_eq!((answer.status, answer.cookies().len()), (StatusCode::OK, 0));
        assert_eq!(stage.one.last().header("cookie"), Some(others.as_str()));
    }
}

#[tokio::test]
async fn where_a_request_came_from_is_told_by_trusted_proxies_alone() {
    let sent = [
        ("x-forwarded-for", "9.9.9.9"),
        ("x-forwarded-for", "8.8.8.8, 7.7.7.7"),
        ("x-forwarded-host", "outer.test"),
        ("x-forwarded-proto", "https"),
        ("x-forwarded-port", "443"),
        ("x-real-ip", "9.9.9.9"),
        ("forwarded", "for=9.9.9.9;proto=https"),
        ("x_forwarded_for", "6.6.6.6"),
    ];
    let seen = |stage: &Stage| {
        let seen = stage.one.last();
        move |name: &str| {
            seen.headers
                .get_all(name)
                .iter()
                .map(|v| v.to_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        }
    };
    let strangers = stage(|_| {}).await;
    get(&strangers, &sent).await;
    let values = seen(&strangers);
    assert_eq!(values("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(
        (values("x-forwarded-proto"), values("x-forwarded-host")),
        (vec!["http".to_owned()], vec!["shop.test".to_owned()])
    );
    for name in ["x-forwarded-port", "x-real-ip", "forwarded", "x_forwarded_for"] {
        assert_eq!(values(name), Vec::<String>::new(), "{name}");
    }
    let behind = stage(trusting).await;
    get(&behind, &sent).await;
    let values = seen(&behind);
    assert_eq!(
        values("x-forwarded-for"),
        ["9.9.9.9, 8.8.8.8, 7.7.7.7, 127.0.0.1"]
    );
    assert_eq!(values("x-forwarded-host"), ["outer.test"]);
    assert_eq!(values("x-forwarded-proto"), ["https"]);
    for (name, value) in [
        ("x-forwarded-port", "443"),
        ("x-real-ip", "9.9.9.9"),
        ("forwarded", "for=9.9.9.9;proto=https"),
    ] {
        assert_eq!(values(name), [value], "{name}");
    }
    assert_eq!(values("x_forwarded_for"), Vec::<String>::new());
}

#[tokio::test]
async fn a_client_named_by_a_header_stays_one_client_without_any_cookie() {
    let stage = stage(|config| config.identity = IdentityConfig::Header("x-api-user".parse().unwrap())).await;
    let mut clients = Vec::new();
    for user in ["alice", "bob", "alice"] {
        let answer = get(&stage, &[("x-api-user", user)]).await;
        assert_eq!((answer.status, answer.cookies().len()), (StatusCode::OK, 0));
        let seen = stage.one.last();
        assert_eq!(seen.header("x-api-user"), Some(user));
        clients.push(seen.header("pool-client").unwrap().to_owned());
    }
    assert_eq!(clients[0], clients[2]);
    assert_ne!(clients[0], clients[1]);
    // Once the surface binds that client to a user, he is served as him, wherever he lives.
    let owner = crate::commander::owned("alice", 2, 11, &[&clients[0]]);
    stage
        .commander
        .send(crate::commander::delta(11, vec![owner]))
        .await;
    crate::stage::eventually("at worker 2", async || {
        get(&stage, &[("x-api-user", "alice")]).await.text() == "two"
    })
    .await;
    assert_eq!(stage.two.last().header("pool-user"), Some("alice"));
    // Whoever sends no such header is told apart by the cookie.
    assert_eq!(get(&stage, &[]).await.cookies().len(), 1);
}
