use serde_json::json;

use super::*;
use crate::controller::fake::{FakeApi, status};

fn review(audience: &str) -> serde_json::Value {
    json!({"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "metadata": {}, "spec": {"token": ""},
        "status": {"authenticated": true, "audiences": [audience], "user": {
            "username": "system:serviceaccount:shop:worker",
            "extra": {"authentication.kubernetes.io/pod-name": ["shop-blue-abcde"],
                "authentication.kubernetes.io/pod-uid": ["uid-1"]}}}})
}

fn reviewer(answer: serde_json::Value) -> TokenReviewer {
    let api = FakeApi::new();
    api.hook(move |_| Some((201, answer.clone())));
    TokenReviewer::new(api.client(), Clock::start())
}

#[tokio::test]
async fn a_good_token_names_its_pod_and_is_reviewed_once() {
    let reviewer = reviewer(review(AUDIENCE));
    let identity = PeerIdentity {
        namespace: "shop".to_owned(),
        pod_name: "shop-blue-abcde".to_owned(),
        pod_uid: "uid-1".to_owned(),
        service_account: "worker".to_owned(),
    };
    assert_eq!(reviewer.authenticate("token").await.unwrap(), identity);
    assert_eq!(reviewer.authenticate("token").await.unwrap(), identity);
    assert_eq!(reviewer.reviews(), 1);
    reviewer.authenticate("another").await.unwrap();
    assert_eq!(reviewer.reviews(), 2);
}

#[tokio::test]
async fn a_token_for_another_audience_is_refused() {
    let reviewer = reviewer(review("https://kubernetes.default.svc"));
    assert!(matches!(
        reviewer.authenticate("token").await,
        Err(AuthError::Refused)
    ));
}

#[tokio::test]
async fn a_token_of_no_pod_is_refused() {
    let mut answer = review(AUDIENCE);
    answer["status"]["user"]["extra"] = json!({});
    assert!(matches!(
        reviewer(answer).authenticate("token").await,
        Err(AuthError::Refused)
    ));
    let mut answer = review(AUDIENCE);
    answer["status"]["user"]["username"] = json!("alice");
    assert!(matches!(
        reviewer(answer).authenticate("token").await,
        Err(AuthError::Refused)
    ));
}

#[tokio::test]
async fn tokens_that_cannot_be_are_not_asked_about() {
    let reviewer = reviewer(review(AUDIENCE));
    for token in ["", "two words", &"x".repeat(LONGEST_TOKEN + 1)] {
        assert!(matches!(
            reviewer.authenticate(token).await,
            Err(AuthError::Refused)
        ));
    }
    assert_eq!(reviewer.reviews(), 0);
}

#[tokio::test]
async fn an_api_server_that_fails_refuses_nobody() {
    let api = FakeApi::new();
    api.hook(|_| Some(status(500, "InternalError", "etcd is away")));
    let reviewer = TokenReviewer::new(api.client(), Clock::start());
    assert!(matches!(
        reviewer.authenticate("token").await,
        Err(AuthError::Unavailable(_))
    ));
}

#[tokio::test]
async fn the_memory_is_bounded() {
    let reviewer = reviewer(review(AUDIENCE));
    let identity = identity_of(&serde_json::from_value(review(AUDIENCE)["status"].clone()).unwrap()).unwrap();
    for number in 0..REMEMBERED_AT_MOST + 10 {
        reviewer.remember(hash_of(&number.to_string()), identity.clone());
    }
    assert_eq!(reviewer.known.lock().len(), REMEMBERED_AT_MOST);
}
