use elastic_pool_engine::ids::{Birth, Term};
use http::Method;
use serde_json::{Value, json};

use super::bench::{BUDGET, Bench, GROUPS, PODS, blue, key};
use super::fake::{Call, status};
use super::group_tests::{ONE, TWO, condition, spawn, two_workers, uid_of, view};
use crate::vehicle::{Desired, GroupView};

#[tokio::test]
async fn a_refused_template_changes_nothing_that_runs_and_names_the_field() {
    let mut bench = two_workers().await;
    let good = bench.retold();
    let mut bad = blue();
    bad["metadata"]["generation"] = json!(1);
    bad["spec"]["template"]["spec"]["containers"][0]["image"] = json!("web:2");
    bench.api.put(&format!("{GROUPS}/blue"), bad);
    bench.api.hook(|call| {
        let bad = call.body["spec"]["containers"][0]["image"] == "web:2";
        bad.then(|| {
            let (code, mut body) = status(422, "Invalid", "invalid");
            body["details"] =
                json!({"causes": [{"field": "spec.containers[0].image", "message": "no such thing"}]});
            (code, body)
        })
    });
    let told = bench.sync();
    assert_eq!(told.len(), 1);
    bench.order(spawn(&[Birth(Term(1).number(3))]), Some(view()));
    for _ in 0..5 {
        bench.pass().await.unwrap();
    }
    let condition = condition(&bench.api, "TemplateInvalid").unwrap();
    assert_eq!(condition["status"], "True");
    assert_eq!(
        condition["message"],
        "spec.template.spec.containers[0].image: no such thing"
    );
    let dry_runs = bench.api.calls().into_iter().filter(Call::is_dry_run).count();
    assert_eq!(dry_runs, 2, "one per template");
    let images: Vec<Value> = bench
        .pods()
        .iter()
        .map(|pod| pod["spec"]["containers"][0]["image"].clone())
        .collect();
    assert_eq!(
        images,
        vec!["web:1"; 3],
        "a worker that is needed is made from the last good template"
    );
    assert_eq!((good.len(), bench.retold().len()), (1, 1), "the verdict is told");
    let spec = bench.context.world.lock().group_spec(&key("blue")).unwrap();
    let pod = &bench.pods()[0]["metadata"]["annotations"]["elasticpool.dev/template-hash"];
    assert_eq!(*pod, spec.template_hash, "no worker counts as outdated");
}

#[tokio::test]
async fn a_webhook_without_dry_runs_leaves_the_verdict_to_the_first_create() {
    let mut bench = Bench::new();
    bench.api.hook(|call| {
        call.is_dry_run()
            .then(|| status(400, "BadRequest", "webhook does not support dry run"))
    });
    bench.order(spawn(&[ONE]), Some(view()));
    bench.pass().await.unwrap();
    bench.pass().await.unwrap();
    assert_eq!(bench.pods().len(), 1);
    assert_eq!(
        condition(&bench.api, "TemplateInvalid").unwrap()["status"],
        "False"
    );
}

#[tokio::test]
async fn the_budget_is_raised_before_a_pod_is_made_and_lowered_after_one_is_gone() {
    let mut bench = two_workers().await;
    let writes: Vec<String> = bench
        .api
        .writes()
        .into_iter()
        .filter(|call| call.path == PODS || call.path == BUDGET)
        .map(|call| call.method.to_string())
        .collect();
    assert_eq!(writes, ["PATCH", "POST", "POST"]);
    let least = |bench: &Bench| bench.api.get(BUDGET).unwrap()["spec"]["minAvailable"].clone();
    assert_eq!(least(&bench), 1);
    let uid = uid_of(&bench, ONE);
    let shrunk = GroupView {
        desired_workers: 1,
        ..view()
    };
    bench.order(
        Desired {
            retire: vec![(ONE, uid)],
            ..Desired::default()
        },
        Some(shrunk),
    );
    bench.pass().await.unwrap();
    assert_eq!(least(&bench), 1, "the pod may still be there");
    bench.sync();
    bench.pass().await.unwrap();
    assert_eq!(least(&bench), 0);
}

#[tokio::test]
async fn a_released_worker_loses_the_budget_s_label_once() {
    let mut bench = two_workers().await;
    bench.order(
        Desired {
            released: vec![TWO],
            ..Desired::default()
        },
        Some(view()),
    );
    bench.pass().await.unwrap();
    bench.sync();
    bench.pass().await.unwrap();
    let labelled = bench
        .pods()
        .into_iter()
        .filter(|pod| !pod["metadata"]["labels"]["elasticpool.dev/budget"].is_null());
    assert_eq!(labelled.count(), 1);
    let merges = bench
        .api
        .writes()
        .into_iter()
        .filter(|call| call.path.starts_with(PODS) && call.method == Method::PATCH);
    assert_eq!(merges.count(), 1);
}

#[tokio::test]
async fn the_commander_is_told_which_template_and_agent_a_worker_is_made_of() {
    let mut bench = two_workers().await;
    let fact = |bench: &Bench| {
        let world = bench.context.world.lock();
        let (_, pod) = world.workers.iter().next().unwrap();
        super::pods::worker_fact(pod).unwrap()
    };
    let spec = |bench: &Bench| bench.context.world.lock().group_spec(&key("blue")).unwrap();
    let worker = fact(&bench);
    assert!(!spec(&bench).outdates(&worker));
    assert_eq!(spec(&bench).agent_hash, "", "a new operator outdates nobody");
    // The same template on a newer operator.
    bench.context.world.lock().env.image = "pool:2".to_owned();
    assert!(!spec(&bench).outdates(&worker));
    let mut moved = blue();
    moved["spec"]["agentUpdate"] = json!("Move");
    bench.api.put(&format!("{GROUPS}/blue"), moved.clone());
    bench.sync();
    assert!(
        spec(&bench).outdates(&worker),
        "another agent counts where the manifest says so"
    );
    bench.context.world.lock().env = bench.context.config.env.clone();
    assert!(!spec(&bench).outdates(&worker));
    moved["spec"]["template"]["spec"]["containers"][0]["image"] = json!("web:2");
    bench.api.put(&format!("{GROUPS}/blue"), moved);
    bench.sync();
    assert!(spec(&bench).outdates(&worker));
}
