use serde_json::{Value, json};

use super::*;

fn pod(change: impl FnOnce(&mut Value)) -> Pod {
    let mut pod = json!({
        "metadata": {"namespace": "shop", "name": "blue-abcde", "uid": "pod-uid",
            "labels": {"elasticpool.dev/birth": "1099511627777", "elasticpool.dev/group": "blue"},
            "annotations": {"elasticpool.dev/template-hash": "h1", "kubectl.kubernetes.io/default-container": "web"},
            "ownerReferences": [{"apiVersion": "elasticpool.dev/v1alpha1", "kind": "PoolGroup", "name": "blue",
                "uid": "group-uid", "controller": true}]},
        "spec": {"containers": [{"name": "helper"}, {"name": "web"}]},
        "status": {"phase": "Running", "podIP": "10.0.0.5",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [
                {"name": "helper", "image": "", "imageID": "", "ready": true, "restartCount": 9, "containerID": "x://no"},
                {"name": "web", "image": "", "imageID": "", "ready": true, "restartCount": 2,
                    "containerID": "containerd://0123abcd"}]},
    });
    change(&mut pod);
    serde_json::from_value(pod).unwrap()
}

fn waiting(reason: &str) -> Pod {
    pod(|pod| {
        pod["status"]["conditions"][0]["status"] = json!("False");
        pod["status"]["containerStatuses"][1]["state"] =
            json!({"waiting": {"reason": reason, "message": "so it is"}});
    })
}

#[test]
fn a_ready_pod_is_told_whole() {
    let fact = worker_fact(&pod(|_| ())).unwrap();
    assert_eq!(
        fact,
        WorkerFact {
            birth: Birth((1 << 40) + 1),
            group: ObjectKey {
                namespace: "shop".to_owned(),
                name: "blue".to_owned()
            },
            name: "blue-abcde".to_owned(),
            pod_uid: "pod-uid".to_owned(),
            ready: true,
            address: "10.0.0.5:15080".to_owned(),
            peer: "10.0.0.5:15081".to_owned(),
            terminating: false,
            finished: false,
            app_container_id: "0123abcd".to_owned(),
            app_restarts: 2,
            failure: None,
            template_hash: "h1".to_owned(),
            agent_hash: String::new(),
            must_go: false,
        }
    );
}

#[test]
fn a_pod_that_no_group_controls_is_no_worker() {
    assert_eq!(
        worker_fact(&pod(|pod| pod["metadata"]["ownerReferences"] = json!([]))),
        None
    );
    assert_eq!(
        worker_fact(&pod(
            |pod| pod["metadata"]["ownerReferences"][0]["kind"] = json!("ReplicaSet")
        )),
        None
    );
    let foreign =
        |pod: &mut Value| pod["metadata"]["ownerReferences"][0]["apiVersion"] = json!("elasticpool.devil/v1");
    assert_eq!(worker_fact(&pod(foreign)), None);
    let unreadable = |pod: &mut Value| pod["metadata"]["labels"]["elasticpool.dev/birth"] = json!("-1");
    assert_eq!(worker_fact(&pod(unreadable)), None);
}

#[test]
fn a_lack_of_room_and_a_mistake_are_told_apart() {
    let unschedulable = pod(|pod| {
        pod["status"]["conditions"] = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
            "message": "0/2 nodes are available"}]);
    });
    let no_room = SpawnFailure::NoCapacity("0/2 nodes are available".to_owned());
    assert_eq!(worker_fact(&unschedulable).unwrap().failure, Some(no_room));
    for reason in [
        "ImagePullBackOff",
        "ErrImagePull",
        "CrashLoopBackOff",
        "CreateContainerConfigError",
    ] {
        let text = format!("container web: {reason}: so it is");
        assert_eq!(
            worker_fact(&waiting(reason)).unwrap().failure,
            Some(SpawnFailure::Mistake(text))
        );
    }
    assert_eq!(worker_fact(&waiting("ContainerCreating")).unwrap().failure, None);
}

#[test]
fn an_ended_pod_says_why_and_that_it_ended() {
    let ended = pod(|pod| {
        pod["status"] = json!({"phase": "Failed", "reason": "OutOfcpu", "message": "not enough cpu"});
    });
    let fact = worker_fact(&ended).unwrap();
    assert!(fact.finished && !fact.ready);
    assert_eq!(
        fact.failure,
        Some(SpawnFailure::NoCapacity("OutOfcpu: not enough cpu".to_owned()))
    );
}

#[test]
fn an_address_of_version_six_is_bracketed() {
    let six = pod(|pod| pod["status"]["podIP"] = json!("fd00::5"));
    assert_eq!(worker_fact(&six).unwrap().address, "[fd00::5]:15080");
}
