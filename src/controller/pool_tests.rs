use elastic_pool_engine::ids::Birth;
use http::Method;
use serde_json::json;

use super::bench::{Bench, POOLS, SECRETS, blue, key};
use super::fake::Call;
use super::pool::PoolMemory;
use super::roster::Role;
use crate::vehicle::{Fact, PoolKeys};

/// A bench whose implicit pool is made, seen and served.
async fn served() -> Bench {
    let mut bench = Bench::new();
    bench.pool_pass().await.unwrap();
    bench.sync();
    bench.pool_pass().await.unwrap();
    bench.sync();
    bench
}

fn keys_told(bench: &mut Bench) -> Vec<PoolKeys> {
    let told = bench.told().into_iter();
    told.filter_map(|fact| {
        if let Fact::Keys(_, keys) = fact {
            Some(keys)
        } else {
            None
        }
    })
    .collect()
}

#[tokio::test]
async fn a_pool_that_nobody_wrote_is_made_and_goes_with_its_groups() {
    let bench = served().await;
    let pool = bench.api.get(&format!("{POOLS}/shop")).unwrap();
    assert_eq!(
        pool["metadata"]["annotations"]["elasticpool.dev/implicit"],
        "true"
    );
    assert_eq!(pool["metadata"]["ownerReferences"][0]["name"], "blue");
    for path in [
        "/apis/apps/v1/namespaces/shop/deployments/shop-gateway",
        "/api/v1/namespaces/shop/services/shop",
        "/api/v1/namespaces/shop/serviceaccounts/shop-gateway",
        "/apis/policy/v1/namespaces/shop/poddisruptionbudgets/shop-gateway",
    ] {
        assert!(bench.api.get(path).is_some(), "{path}");
    }
}

#[tokio::test]
async fn a_second_group_owns_the_implicit_pool_too() {
    let mut bench = served().await;
    let mut green = blue();
    green["metadata"]["name"] = json!("green");
    bench.api.put(&format!("{}/green", super::bench::GROUPS), green);
    bench.sync();
    bench.pool_pass().await.unwrap();
    let pool = bench.api.get(&format!("{POOLS}/shop")).unwrap();
    assert_eq!(pool["metadata"]["ownerReferences"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_pool_in_which_somebody_set_something_is_theirs() {
    let mut bench = served().await;
    let path = format!("{POOLS}/shop");
    let mut pool = bench.api.get(&path).unwrap();
    pool["spec"]["gateway"] = json!({"replicas": 5});
    bench.api.put(&path, pool);
    bench.sync();
    bench.pool_pass().await.unwrap();
    let pool = bench.api.get(&path).unwrap();
    assert!(pool["metadata"]["ownerReferences"].is_null());
    assert!(pool["metadata"]["annotations"]["elasticpool.dev/implicit"].is_null());
    assert_eq!(pool["spec"]["gateway"]["replicas"], 5);
}

#[tokio::test]
async fn a_pool_whose_gateways_wait_for_a_certificate_says_for_which() {
    let mut bench = served().await;
    let path = format!("{POOLS}/shop");
    let mut pool = bench.api.get(&path).unwrap();
    pool["spec"]["gateway"] = json!({"tls": {"secretName": "shop-tls"}});
    bench.api.put(&path, pool);
    bench.sync();
    bench.pool_pass().await.unwrap();
    let status = bench.api.get(&path).unwrap()["status"].clone();
    let ready = &status["conditions"][0];
    let message = ready["message"].as_str().unwrap();
    assert_eq!(
        (&ready["type"], &ready["status"]),
        (&json!("Ready"), &json!("False"))
    );
    assert!(
        message.contains("spec.gateway.tls.secretName: shop-tls: "),
        "{message}"
    );
    assert_eq!(status["address"], "shop.shop.svc:443");
}

#[tokio::test]
async fn who_writes_a_default_into_an_implicit_pool_owns_it_too() {
    let path = format!("{POOLS}/shop");
    for (manager, theirs) in [("kubectl", true), ("elastic-pool", false)] {
        let mut bench = served().await;
        let mut pool = bench.api.get(&path).unwrap();
        pool["metadata"]["managedFields"] = json!([{"manager": manager, "operation": "Apply", "fieldsType": "FieldsV1",
            "apiVersion": "elasticpool.dev/v1alpha1", "fieldsV1": {"f:spec": {"f:gateway": {"f:replicas": {}}}}}]);
        bench.api.put(&path, pool);
        bench.sync();
        bench.pool_pass().await.unwrap();
        let pool = bench.api.get(&path).unwrap();
        assert_eq!(pool["metadata"]["ownerReferences"].is_null(), theirs, "{manager}");
    }
}

#[tokio::test]
async fn keys_are_made_once_and_never_overwritten() {
    let mut bench = served().await;
    let first = keys_told(&mut bench);
    assert_eq!(first.len(), 1);
    // Another operator reads what this one made.
    bench.shop = PoolMemory::default();
    bench.pool_pass().await.unwrap();
    assert_eq!(keys_told(&mut bench), first);
    let secrets = bench
        .api
        .writes()
        .into_iter()
        .filter(|call| call.path.starts_with(SECRETS));
    let methods: Vec<Method> = secrets.map(|call| call.method).collect();
    assert_eq!(methods, vec![Method::POST, Method::POST]);
}

#[tokio::test]
async fn a_damaged_key_is_named_and_left_alone() {
    let mut bench = served().await;
    let path = format!("{SECRETS}/shop-gateway");
    let mut secret = bench.api.get(&path).unwrap();
    secret["data"]["pool-key"] = json!("bm8=");
    bench.api.put(&path, secret);
    let damaged = bench.api.get(&path);
    bench.shop = PoolMemory::default();
    let error = bench.pool_pass().await.unwrap_err().to_string();
    assert!(
        error.contains("shop-gateway") && error.contains("pool-key"),
        "{error}"
    );
    assert_eq!(bench.api.get(&path), damaged);
    let pool = bench.api.get(&format!("{POOLS}/shop")).unwrap();
    assert_eq!(pool["status"]["conditions"][0]["type"], "Degraded");
}

#[tokio::test]
async fn a_served_pool_is_left_alone() {
    let mut bench = served().await;
    bench.pool_pass().await.unwrap();
    bench.sync();
    let before = bench.api.calls().into_iter().filter(Call::is_write).count();
    for _ in 0..20 {
        bench.pool_pass().await.unwrap();
        bench.sync();
    }
    assert_eq!(
        bench.api.calls().into_iter().filter(Call::is_write).count(),
        before
    );
}

#[tokio::test]
async fn a_deployment_that_is_wanted_otherwise_is_applied_at_once() {
    let mut bench = served().await;
    let path = format!("{POOLS}/shop");
    let mut pool = bench.api.get(&path).unwrap();
    pool["spec"]["gateway"] = json!({"replicas": 3});
    bench.api.put(&path, pool);
    bench.sync();
    bench.pool_pass().await.unwrap();
    let deployment = bench
        .api
        .get("/apis/apps/v1/namespaces/shop/deployments/shop-gateway")
        .unwrap();
    assert_eq!(deployment["spec"]["replicas"], 3);
}

#[tokio::test]
async fn a_pod_is_a_gateway_only_if_our_deployment_made_it() {
    let mut bench = served().await;
    let pod = |name: &str, owner: &str, account: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"uid": name,
                "labels": {"elasticpool.dev/pool": "shop", "elasticpool.dev/component": "gateway", "pod-template-hash": "h1"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": "u",
                    "controller": true}]},
            "spec": {"containers": [], "serviceAccountName": account},
        })
    };
    for (name, owner, account) in [
        ("ours", "shop-gateway-h1", "shop-gateway"),
        ("foreign", "evil-h1", "shop-gateway"),
        ("other-account", "shop-gateway-h1", "default"),
    ] {
        bench.api.put(
            &format!("{}/{name}", super::bench::PODS),
            pod(name, owner, account),
        );
    }
    bench.sync();
    let roster = &bench.context.config.roster;
    assert_eq!(roster.role("shop", "ours"), Some(Role::Gateway(key("shop"))));
    assert_eq!(roster.role("elsewhere", "ours"), None);
    assert_eq!(roster.role("shop", "foreign"), None);
    assert_eq!(roster.role("shop", "other-account"), None);
    bench.api.remove(&format!("{}/ours", super::bench::PODS));
    bench.sync();
    assert_eq!(bench.context.config.roster.role("shop", "ours"), None);
}

#[tokio::test]
async fn a_worker_is_known_by_its_uid() {
    let mut bench = Bench::new();
    let birth = Birth(7);
    bench.order(
        crate::vehicle::Desired {
            spawn: vec![birth],
            ..Default::default()
        },
        None,
    );
    bench.pass().await.unwrap();
    bench.sync();
    let uid = bench.pods()[0]["metadata"]["uid"].as_str().unwrap().to_owned();
    assert_eq!(
        bench.context.config.roster.role("shop", &uid),
        Some(Role::Worker(key("blue"), birth))
    );
}
