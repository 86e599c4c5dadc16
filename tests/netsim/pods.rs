//! What kubelets do in a world: containers start, become ready, start again when they end, and get their grace.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use elastic_pool::engine::ids::Birth;
use elastic_pool::net::TcpStream;
use elastic_pool::net::sim::Host;
use http::Request;
use http_body_util::Empty;

use crate::history::Event;
use crate::world::{AGENT_PEER, Role, Shared, World};

/// The kubelet asks for readiness this often.
const PROBE: u64 = 200;
const GRACE: Duration = Duration::from_secs(12);

/// What of a pod is not as it should be.
struct Look {
    birth: Birth,
    host: Host,
    name: String,
    uid: String,
    app: String,
    stopped: bool,
    wants_drain: bool,
    ready: bool,
}

impl World {
    pub(crate) fn keep_pods(&mut self, now: u64) {
        let pods: Vec<Look> = self
            .shared
            .cluster
            .lock()
            .pods
            .iter()
            .filter(|(_, pod)| pod.starts <= now)
            .map(|(birth, pod)| Look {
                birth: *birth,
                host: pod.host,
                name: pod.fact.name.clone(),
                uid: pod.fact.pod_uid.clone(),
                app: pod.app.clone(),
                stopped: pod.stopped,
                wants_drain: pod.fact.terminating && !pod.asked_to_drain,
                ready: pod.fact.ready,
            })
            .collect();
        for pod in pods {
            if pod.stopped {
                self.remove_pod(pod.birth);
                continue;
            }
            if !self.agents.contains_key(&pod.birth) && self.may_restart(&format!("agent {}", pod.name), now)
            {
                self.start_agent(pod.birth, pod.host, &pod.name, &pod.uid);
            }
            if !self.apps.contains_key(&pod.birth) && self.may_restart(&format!("app {}", pod.name), now) {
                self.start_app(pod.birth, pod.host, &pod.app);
            }
            if pod.wants_drain {
                if let Some(of) = self.shared.cluster.lock().pods.get_mut(&pod.birth) {
                    of.asked_to_drain = true;
                }
                self.shared.note(Event::Terminating { app: pod.app.clone() });
                self.start(
                    Role::Kubelet,
                    pod.host,
                    drain(Arc::clone(&self.shared), pod.birth, pod.host),
                );
            }
            if !pod.ready && now % PROBE == 0 {
                self.start(
                    Role::Kubelet,
                    pod.host,
                    probe(Arc::clone(&self.shared), pod.birth, pod.host),
                );
            }
        }
        self.forget_ended();
    }

    fn remove_pod(&mut self, birth: Birth) {
        self.kill_app(birth, false);
        if let Some(agent) = self.agents.remove(&birth) {
            self.kill(agent);
        }
        self.shared.cluster.lock().pods.remove(&birth);
    }

    /// The app's process ends; its container starts again where the pod stays.
    pub(crate) fn kill_app(&mut self, birth: Birth, restarts: bool) {
        let Some(process) = self.apps.remove(&birth) else {
            return;
        };
        self.kill(process);
        let app = {
            let mut cluster = self.shared.cluster.lock();
            let Some(pod) = cluster.pods.get_mut(&birth) else {
                return;
            };
            let ended = pod.app.clone();
            if restarts {
                pod.apps += 1;
                pod.app = format!("{}.{}", pod.fact.name, pod.apps);
                pod.fact.app_restarts += 1;
                pod.fact.app_container_id.clone_from(&pod.app);
                pod.fact.ready = false;
            }
            ended
        };
        self.shared.note(Event::AppEnded { app });
    }
}

/// One readiness probe.
async fn probe(shared: Arc<Shared>, birth: Birth, host: Host) {
    let asked = tokio::time::timeout(Duration::from_secs(1), get(host, "/readyz"));
    if asked.await.ok().flatten() == Some(200)
        && let Some(pod) = shared.cluster.lock().pods.get_mut(&birth)
    {
        pod.fact.ready = true;
    }
}

/// preStop, then the end of the pod. A preStop that fails is one that is over.
async fn drain(shared: Arc<Shared>, birth: Birth, host: Host) {
    let _ = tokio::time::timeout(GRACE, get(host, "/drained")).await;
    if let Some(pod) = shared.cluster.lock().pods.get_mut(&birth) {
        pod.stopped = true;
    }
}

async fn get(host: Host, path: &str) -> Option<u16> {
    let stream = TcpStream::connect((host, AGENT_PEER)).await.ok()?;
    let request = Request::get(path)
        .header("host", "agent")
        .body(Empty::<Bytes>::new())
        .ok()?;
    let (head, _) = crate::users::exchange(stream, request).await?;
    Some(head.status.as_u16())
}
