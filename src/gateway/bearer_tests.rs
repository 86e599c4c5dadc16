//! Tokens that are right, and all the ways in which one is not.

use std::path::PathBuf;

use super::*;
use proptest::prelude::*;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use serde_json::json;

const NOW: u64 = 1_900_000_000;

fn encoded(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(value.to_string())
}

struct Signer {
    key: Ed25519KeyPair,
    id: &'static str,
}

impl Signer {
    fn new(id: &'static str, seed: u8) -> Self {
        Self {
            key: Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap(),
            id,
        }
    }

    fn jwk(&self) -> Value {
        let x = URL_SAFE_NO_PAD.encode(self.key.public_key().as_ref());
        json!({"kty": "OKP", "crv": "Ed25519", "kid": self.id, "x": x})
    }

    fn sign_with(&self, header: &Value, claims: &Value) -> String {
        let message = format!("{}.{}", encoded(header), encoded(claims));
        let signature = self.key.sign(message.as_bytes());
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()))
    }

    fn sign(&self, claims: &Value) -> String {
        self.sign_with(&json!({"alg": "EdDSA", "kid": self.id}), claims)
    }
}

struct Scene {
    _folder: tempfile::TempDir,
    path: PathBuf,
    verifier: Verifier,
}

impl Scene {
    fn new(keys: &[Value], issuer: Option<&str>, audience: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jwks");
        std::fs::write(&path, json!({"keys": keys}).to_string()).unwrap();
        let checks = Checks {
            claim: "sub".to_owned(),
            issuer: issuer.map(str::to_owned),
            audience: audience.map(str::to_owned),
        };
        let verifier = Verifier::open(checks, &KeySource::File(path.clone())).unwrap();
        Self {
            _folder: folder,
            path,
            verifier,
        }
    }

    fn claim(&self, token: &str) -> Option<String> {
        self.verifier.claim(token, NOW).map(|claim| claim.to_string())
    }
}

#[test]
fn a_token_of_ed25519_names_its_subject_until_it_expires() {
    let signer = Signer::new("one", 1);
    let scene = Scene::new(&[signer.jwk()], None, None);
    let token = signer.sign(&json!({"sub": "alice", "exp": NOW + 60, "nbf": NOW - 60}));
    // Twice: the second time it is remembered.
    for _ in 0..2 {
        assert_eq!(scene.claim(&token).as_deref(), Some("alice"));
        assert_eq!(scene.verifier.claim(&token, NOW + 60 + LEEWAY), None);
        assert_eq!(scene.verifier.claim(&token, NOW - 61 - LEEWAY), None);
    }
    assert_eq!(
        scene.claim(&signer.sign(&json!({"sub": "bob"}))).as_deref(),
        Some("bob")
    );
}

#[test]
fn a_token_of_p_256_is_right_under_its_own_algorithm_only() {
    let random = SystemRandom::new();
    let secret = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
    let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, secret.as_ref(), &random).unwrap();
    let point = key.public_key().as_ref();
    let (x, y) = (
        URL_SAFE_NO_PAD.encode(&point[1..33]),
        URL_SAFE_NO_PAD.encode(&point[33..]),
    );
    let scene = Scene::new(
        &[json!({"kty": "EC", "crv": "P-256", "x": x, "y": y})],
        None,
        None,
    );
    for (alg, expected) in [
        ("ES256", Some("alice")),
        ("EdDSA", None),
        ("RS256", None),
        ("none", None),
    ] {
        let message = format!(
            "{}.{}",
            encoded(&json!({"alg": alg})),
            encoded(&json!({"sub": "alice"}))
        );
        let signature = key.sign(&random, message.as_bytes()).unwrap();
        let token = format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref()));
        assert_eq!(scene.claim(&token).as_deref(), expected, "{alg}");
    }
}

/// RFC 7515, A.2.
#[test]
fn the_rfc_s_token_of_rsa_is_right() {
    let n = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ";
    let token = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
    let mut scene = Scene::new(&[json!({"kty": "RSA", "n": n, "e": "AQAB"})], None, None);
    scene.verifier.checks.claim = "iss".to_owned();
    assert_eq!(scene.verifier.claim(token, 1_300_819_000).as_deref(), Some("joe"));
    assert_eq!(scene.claim(token), None, "expired long ago");
}

#[test]
fn nothing_else_names_anybody() {
    let (signer, stranger) = (Signer::new("one", 1), Signer::new("one", 2));
    let scene = Scene::new(&[signer.jwk()], Some("issuer"), Some("shop"));
    let good = json!({"sub": "alice", "iss": "issuer", "aud": ["other", "shop"]});
    assert_eq!(scene.claim(&signer.sign(&good)).as_deref(), Some("alice"));
    assert_eq!(scene.claim(&stranger.sign(&good)), None, "another's signature");
    let with = |change: &dyn Fn(&mut Value)| {
        let mut claims = good.clone();
        change(&mut claims);
        scene.claim(&signer.sign(&claims))
    };
    assert_eq!(with(&|claims| claims["iss"] = "x".into()), None);
    assert_eq!(with(&|claims| claims["aud"] = "x".into()), None);
    assert_eq!(with(&|claims| claims["aud"] = 5.into()), None);
    assert_eq!(with(&|claims| claims["sub"] = 5.into()), None);
    assert_eq!(with(&|claims| claims["exp"] = "tomorrow".into()), None);
    assert_eq!(with(&|claims| claims["exp"] = (-1).into()), None);
    let header = |header: Value| scene.claim(&signer.sign_with(&header, &good));
    assert_eq!(
        header(json!({"alg": "EdDSA"})).as_deref(),
        Some("alice"),
        "no key id: any key"
    );
    assert_eq!(header(json!({"alg": "EdDSA", "kid": "two"})), None);
    assert_eq!(header(json!({"alg": "none"})), None);
    assert_eq!(header(json!({"alg": "HS256"})), None);
    assert_eq!(header(json!({"alg": "EdDSA", "crit": ["b64"]})), None);
    let unsigned = format!("{}.{}.", encoded(&json!({"alg": "none"})), encoded(&good));
    for nonsense in [
        "",
        ".",
        "..",
        "a.b.c",
        unsigned.as_str(),
        &"a".repeat(MAX_TOKEN + 1),
    ] {
        assert_eq!(scene.claim(nonsense), None, "{nonsense}");
    }
}

#[tokio::test]
async fn a_rotation_believes_the_new_key_and_no_longer_the_old_one() {
    let (old, new) = (Signer::new("old", 1), Signer::new("new", 2));
    let scene = Scene::new(&[old.jwk()], None, None);
    let (by_old, by_new) = (
        old.sign(&json!({"sub": "alice"})),
        new.sign(&json!({"sub": "alice"})),
    );
    assert_eq!(
        (scene.claim(&by_old).is_some(), scene.claim(&by_new).is_some()),
        (true, false)
    );
    let write = |keys: Value| std::fs::write(&scene.path, keys.to_string()).unwrap();
    write(json!({"keys": [old.jwk(), new.jwk()]}));
    scene.verifier.renew().await.unwrap();
    assert_eq!(
        (scene.claim(&by_old).is_some(), scene.claim(&by_new).is_some()),
        (true, true)
    );
    write(json!({"keys": [new.jwk()]}));
    scene.verifier.renew().await.unwrap();
    assert_eq!(
        (scene.claim(&by_old).is_some(), scene.claim(&by_new).is_some()),
        (false, true)
    );
    // A file that was written badly takes nothing away.
    write(json!({"keys": []}));
    let error = scene.verifier.renew().await.unwrap_err().to_string();
    assert!(
        error.starts_with("identity-jwks: ") && error.contains("no key for RS256"),
        "{error}"
    );
    assert!(scene.claim(&by_new).is_some());
}

proptest! {
    #[test]
    fn no_bytes_but_the_signer_s_name_anybody(text in "[A-Za-z0-9_.-]{0,200}", cut in 0_usize..200, with in "[A-Za-z0-9_-]") {
        let signer = Signer::new("one", 1);
        let scene = Scene::new(&[signer.jwk()], None, None);
        prop_assert_eq!(scene.claim(&text), None);
        let good = signer.sign(&json!({"sub": "alice"}));
        let at = cut % good.len();
        let mut altered = good.clone();
        altered.replace_range(at..=at, &with);
        // The last letter of a part carries bits that nothing decodes.
        let same = altered.split('.').zip(good.split('.')).all(|(a, b)| {
            let (a, b) = (URL_SAFE_NO_PAD.decode(a), URL_SAFE_NO_PAD.decode(b));
            a.is_ok() && a == b
        });
        if altered != good && !same {
            prop_assert_eq!(scene.claim(&altered), None);
        }
    }
}
