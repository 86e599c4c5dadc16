//! Containers as the node sees them: their process, their CPU time, a hard kill; only of pods that a test made.

use serde_json::Value;

use crate::harness::{attempt, cluster_dir, run};

/// The id of a container that runs in a pod.
pub(crate) fn id(pod: &Value, container: &str) -> String {
    try_id(pod, container).unwrap_or_else(|| panic!("no container {container} runs in {}", pod["status"]))
}

/// As [`id`]; none while it does not run.
pub(crate) fn try_id(pod: &Value, container: &str) -> Option<String> {
    let all = ["containerStatuses", "initContainerStatuses"]
        .into_iter()
        .flat_map(|list| pod["status"][list].as_array().into_iter().flatten());
    let mut running = all.filter(|one| one["name"] == container && one["state"]["running"].is_object());
    let id = running.find_map(|one| one["containerID"].as_str())?;
    Some(id.trim_start_matches("containerd://").to_owned())
}

/// Ends the container's process at once, as a kernel out of memory would.
pub(crate) fn kill(pod: &Value, container: &str) {
    let id = id(pod, container);
    ctr(node(pod), &["task", "kill", "-s", "SIGKILL", &id]);
}

/// The cluster's end of the pod's wire, to be taken down and up by [`wire`]; none where no container of it runs.
pub(crate) fn wire_of(pod: &Value) -> Option<String> {
    let all = ["containerStatuses", "initContainerStatuses"]
        .into_iter()
        .flat_map(|list| pod["status"][list].as_array().into_iter().flatten());
    let mut running = all.filter(|one| one["state"]["running"].is_object());
    let container = running.find_map(|one| one["name"].as_str())?;
    let process = process(node(pod), &id(pod, container));
    let inner = ["-t", process.as_str(), "-n", "ip", "-o", "link", "show", "eth0"];
    // Such as `2: eth0@if17: <BROADCAST,...`: 17 is the number of the other end.
    let shown = run("nsenter", &inner, "");
    let number = shown.split("@if").nth(1)?.split(':').next()?.to_owned();
    let ends = run("tests/cluster/cluster.sh", &["exec", "ip", "-o", "link"], "");
    let end = ends
        .lines()
        .find(|line| line.starts_with(&format!("{number}: ")))?;
    Some(end.split([' ', '@', ':']).nth(2)?.to_owned())
}

/// Takes a wire `up` or `down`, as if it was pulled: neither end is told.
pub(crate) fn wire(end: &str, state: &str) -> Result<String, String> {
    attempt(
        "tests/cluster/cluster.sh",
        &["exec", "ip", "link", "set", end, state],
        "",
    )
}

/// The node that a pod runs on.
pub(crate) fn node(pod: &Value) -> &str {
    pod["spec"]["nodeName"].as_str().expect("a pod on a node")
}

fn ctr(node: &str, args: &[&str]) -> String {
    let socket = format!("{}/{node}/containerd.sock", cluster_dir());
    run("ctr", &[&["-a", &socket, "-n", "k8s.io"], args].concat(), "")
}

/// The process of a container, as the machine numbers it.
fn process(node: &str, id: &str) -> String {
    let tasks = ctr(node, &["task", "ls"]);
    let row = tasks.lines().find(|line| line.starts_with(id));
    let pid = row.and_then(|row| row.split_whitespace().nth(1));
    pid.expect("a process").to_owned()
}

/// CPU seconds that the container has used, by its control group.
pub(crate) fn cpu_seconds(pod: &Value, container: &str) -> f64 {
    let id = id(pod, container);
    let pid = process(node(pod), &id);
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("its control groups");
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        if controllers.split(',').any(|controller| controller == "cpuacct") {
            let file = format!("/sys/fs/cgroup/cpuacct{path}/cpuacct.usage");
            let nanoseconds: f64 = read(&file).trim().parse().expect("nanoseconds");
            return nanoseconds / 1e9;
        }
    }
    let path = groups
        .lines()
        .find_map(|line| line.strip_prefix("0::"))
        .expect("version 2");
    let stat = read(&format!("/sys/fs/cgroup{path}/cpu.stat"));
    let microseconds = stat.lines().find_map(|line| line.strip_prefix("usage_usec "));
    let microseconds: f64 = microseconds.expect("a sum").parse().expect("microseconds");
    microseconds / 1e6
}

fn read(file: &str) -> String {
    std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{file}: {error}"))
}
