//! API clients told apart by bearer tokens whose keys are published: who is believed, and what becomes of keys that change or cannot be had.

use std::time::Duration;

use bytes::Bytes;
use elastic_pool::gateway::{GatewayConfig, IdentityConfig, JwksUrl, KeySource};
use http::{Request, StatusCode};
use http_body_util::Full;
use serde_json::{Value, json};

use crate::authority::Authority;
use crate::client::Answer;
use crate::publisher::{Publisher, Publishes, Signer};
use crate::stage::{Front, Stage, app, eventually};

const FAILURES: &str = "elastic_pool_gateway_jwks_failures_total";

/// A publisher, and a gateway that believes it.
struct Scene {
    stage: Stage,
    publisher: Publisher,
    /// Holds the publisher's authority.
    _folder: tempfile::TempDir,
}

fn identity(url: JwksUrl) -> IdentityConfig {
    IdentityConfig::Jwt {
        claim: "sub".to_owned(),
        keys: KeySource::Url(url),
        issuer: Some("https://idp.test".to_owned()),
        audience: Some("shop".to_owned()),
    }
}

impl Scene {
    async fn set(says: Publishes, change: impl FnOnce(&mut JwksUrl)) -> Self {
        let (authority, folder) = (Authority::new(), tempfile::tempdir().unwrap());
        let file = folder.path().join("ca.crt");
        std::fs::write(&file, authority.pem()).unwrap();
        let publisher = Publisher::start(&authority, says).await;
        let mut url = JwksUrl::new(publisher.url.clone());
        url.authorities = Some(file);
        (url.refresh, url.at_least) = (Duration::from_millis(5), Duration::from_millis(1));
        change(&mut url);
        let configure = |config: &mut GatewayConfig| config.identity = identity(url);
        let stage = Stage::with(app("one").await, app("two").await, configure).await;
        Self {
            stage,
            publisher,
            _folder: folder,
        }
    }

    async fn ask(&self, token: &str) -> Answer {
        let request = Request::get("/")
            .header("host", "shop.test")
            .header("authorization", format!("Bearer {token}"));
        let request = request.body(Full::<Bytes>::default()).unwrap();
        crate::client::send(self.stage.front.gateway.address, request)
            .await
            .unwrap()
    }

    /// The client that a token stands for: `None` when it is told apart by the cookie that it gets.
    async fn client(&self, token: &str) -> Option<String> {
        let answer = self.ask(token).await;
        assert_eq!(answer.status, StatusCode::OK);
        let client = self.stage.one.last().header("pool-client").unwrap().to_owned();
        answer.cookies().is_empty().then_some(client)
    }

    async fn failures(&self) -> f64 {
        self.stage.front.metric(FAILURES).await
    }
}

fn now() -> u64 {
    elastic_pool::clock::unix_seconds()
}

fn claims(user: &str) -> Value {
    json!({"sub": user, "iss": "https://idp.test", "aud": "shop", "exp": now() + 600})
}

#[tokio::test]
async fn a_token_by_a_published_key_names_its_client_and_nothing_that_resembles_one_does() {
    let (signer, stranger) = (Signer::new("one", 1), Signer::new("one", 2));
    let scene = Scene::set(Publishes::Keys(vec![signer.jwk()]), |_| {}).await;
    let alice = scene.client(&signer.sign(&claims("alice"))).await;
    assert!(alice.is_some());
    assert_eq!(scene.client(&signer.sign(&claims("alice"))).await, alice);
    assert_ne!(scene.client(&signer.sign(&claims("bob"))).await, alice);
    // The app sees the token as it came: it has to check it itself.
    assert!(
        scene
            .stage
            .one
            .last()
            .header("authorization")
            .unwrap()
            .starts_with("Bearer ")
    );
    let with = |name: &str, value: Value| {
        let mut claims = claims("alice");
        claims[name] = value;
        signer.sign(&claims)
    };
    for (why, token) in [
        ("another's signature", stranger.sign(&claims("alice"))),
        ("the public key as a secret", signer.confused(&claims("alice"))),
        ("no signature", signer.unsigned(&claims("alice"))),
        ("expired", with("exp", (now() - 3600).into())),
        ("not yet", with("nbf", (now() + 3600).into())),
        ("another audience", with("aud", "bank".into())),
        ("another issuer", with("iss", "https://evil.test".into())),
    ] {
        assert_eq!(scene.client(&token).await, None, "{why}");
    }
}

#[tokio::test]
async fn a_rotation_is_followed_by_itself() {
    let (old, new) = (Signer::new("old", 1), Signer::new("new", 2));
    let scene = Scene::set(Publishes::Keys(vec![old.jwk()]), |_| {}).await;
    let alice = scene.client(&old.sign(&claims("alice"))).await.unwrap();
    assert_eq!(scene.client(&new.sign(&claims("alice"))).await, None);
    scene.publisher.says(Publishes::Keys(vec![old.jwk(), new.jwk()]));
    // She is the same client under the new key.
    eventually("the new key", async || {
        scene.client(&new.sign(&claims("alice"))).await.as_ref() == Some(&alice)
    })
    .await;
    scene.publisher.says(Publishes::Keys(vec![new.jwk()]));
    eventually("the old key gone", async || {
        scene.client(&old.sign(&claims("alice"))).await.is_none()
    })
    .await;
    assert_eq!(scene.client(&new.sign(&claims("alice"))).await, Some(alice));
}

#[tokio::test]
async fn an_unknown_key_has_them_fetched_at_once_when_they_would_not_be_for_long() {
    let (old, new) = (Signer::new("old", 1), Signer::new("new", 2));
    let hour = |url: &mut JwksUrl| url.refresh = Duration::from_hours(1);
    let scene = Scene::set(Publishes::Keys(vec![old.jwk()]), hour).await;
    assert!(scene.client(&old.sign(&claims("alice"))).await.is_some());
    scene.publisher.says(Publishes::Keys(vec![new.jwk()]));
    // What is signed by a known key asks for nothing.
    assert!(scene.client(&old.sign(&claims("bob"))).await.is_some());
    assert_eq!(scene.publisher.asked(), 1);
    eventually("the new key", async || {
        scene.client(&new.sign(&claims("alice"))).await.is_some()
    })
    .await;
}

#[tokio::test]
async fn a_flood_of_unknown_keys_asks_the_publisher_nothing_before_its_time() {
    let signer = Signer::new("one", 1);
    let hours =
        |url: &mut JwksUrl| (url.refresh, url.at_least) = (Duration::from_hours(2), Duration::from_hours(1));
    let scene = Scene::set(Publishes::Keys(vec![signer.jwk()]), hours).await;
    let unknown = Signer::new("made-up", 9);
    for user in 0..100 {
        assert_eq!(
            scene.client(&unknown.sign(&claims(&user.to_string()))).await,
            None
        );
    }
    assert_eq!(scene.publisher.asked(), 1);
    assert!(scene.client(&signer.sign(&claims("alice"))).await.is_some());
}

#[tokio::test]
async fn whatever_is_published_instead_of_keys_leaves_the_last_ones() {
    let signer = Signer::new("one", 1);
    let scene = Scene::set(Publishes::Keys(vec![signer.jwk()]), |_| {}).await;
    let text = |status, text: &str| Publishes::Text(status, Bytes::copy_from_slice(text.as_bytes()));
    let deep = "[".repeat(100_000);
    for (what, says) in [
        ("no keys", Publishes::Keys(Vec::new())),
        (
            "secrets alone",
            Publishes::Keys(vec![json!({"kty": "oct", "k": "c2VjcmV0", "kid": "one"})]),
        ),
        (
            "a key for another algorithm",
            Publishes::Keys(vec![{
                let mut jwk = signer.jwk();
                jwk["alg"] = "HS256".into();
                jwk
            }]),
        ),
        (
            "a key for another use",
            Publishes::Keys(vec![{
                let mut jwk = signer.jwk();
                jwk["use"] = "enc".into();
                jwk
            }]),
        ),
        ("a page", text(StatusCode::OK, "<html>Sign in</html>")),
        ("depth", text(StatusCode::OK, &format!("{{\"keys\": {deep}"))),
        (
            "an error",
            text(
                StatusCode::INTERNAL_SERVER_ERROR,
                &json!({"keys": [signer.jwk()]}).to_string(),
            ),
        ),
        ("elsewhere", text(StatusCode::FOUND, "")),
        ("no end", Publishes::Endless),
        ("no answer", Publishes::Nothing),
    ] {
        scene.publisher.says(says);
        let before = scene.failures().await;
        // Two: the first may have been asked for before.
        eventually(what, async || scene.failures().await > before + 1.5).await;
        assert!(
            scene.client(&signer.sign(&claims("alice"))).await.is_some(),
            "{what}"
        );
    }
    let new = Signer::new("new", 2);
    scene
        .publisher
        .says(Publishes::Keys(vec![json!(5), json!({"kty": "RSA"}), new.jwk()]));
    eventually("keys again", async || {
        scene.client(&new.sign(&claims("alice"))).await.is_some()
    })
    .await;
}

#[tokio::test]
async fn a_gateway_whose_publisher_is_away_serves_and_believes_its_tokens_once_it_is_back() {
    let signer = Signer::new("one", 1);
    let scene = Scene::set(Publishes::Nothing, |_| {}).await;
    assert_eq!(scene.stage.front.admin("/readyz").await.status, StatusCode::OK);
    assert_eq!(scene.client(&signer.sign(&claims("alice"))).await, None);
    scene.publisher.says(Publishes::Keys(vec![signer.jwk()]));
    eventually("keys", async || {
        scene.client(&signer.sign(&claims("alice"))).await.is_some()
    })
    .await;
}

#[tokio::test]
async fn a_publisher_of_an_authority_that_nobody_named_is_not_believed() {
    let signer = Signer::new("one", 1);
    let scene = Scene::set(Publishes::Keys(vec![signer.jwk()]), |url| url.authorities = None).await;
    eventually("refused", async || scene.failures().await > 0.5).await;
    assert_eq!(scene.client(&signer.sign(&claims("alice"))).await, None);
    assert_eq!(scene.publisher.asked(), 0);
}

#[tokio::test]
async fn keys_by_http_are_refused_unless_they_are_allowed() {
    let stage = Stage::set(app("one").await, app("two").await).await;
    for (url, said) in [
        (
            "http://idp.test/keys",
            "identity-jwks-url: http://idp.test/keys: write https://",
        ),
        (
            "https://me:secret@idp.test/keys",
            "take the user and password out",
        ),
        ("/keys", "write a URL such as"),
    ] {
        let url = JwksUrl::new(url.parse().unwrap());
        let refused = Front::try_start(&stage.commander, &stage.keys, |config| {
            config.identity = identity(url);
        })
        .await;
        let error = refused.err().unwrap().to_string();
        assert!(error.contains(said), "{error}");
    }
    let mut allowed = JwksUrl::new("http://127.0.0.1:9/keys".parse().unwrap());
    allowed.allow_http = true;
    let started = Front::try_start(&stage.commander, &stage.keys, |config| {
        config.identity = identity(allowed);
    })
    .await;
    assert!(started.is_ok());
}
