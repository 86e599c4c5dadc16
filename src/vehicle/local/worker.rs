//! The workers of the local vehicle: an app process and its agent each, as a pod would hold them.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use elastic_pool_engine::ids::Birth;
use tokio::sync::mpsc;

use super::WorkerRow;
use super::auth::LocalTokens;
use super::groups::Change;
use super::process::{Child, answers, free_addresses};
use crate::api::resolve::LocalApp;
use crate::channel::server::PeerIdentity;
use crate::clock::Clock;
use crate::credentials::{hex_encode, random_bytes};
use crate::vehicle::{Fact, ObjectKey, Orders, SpawnFailure, WorkerFact};

/// An agent that keeps ending is started once in this time.
const PAUSE: Duration = Duration::from_secs(1);

/// What a group runs.
#[derive(Debug, Clone)]
pub(super) struct App {
    pub(super) pool: ObjectKey,
    pub(super) run: LocalApp,
    pub(super) template_hash: String,
}

/// All workers of one run.
#[derive(Debug)]
pub(super) struct Workers {
    apps: HashMap<ObjectKey, App>,
    folder: PathBuf,
    channel: String,
    tokens: Arc<LocalTokens>,
    facts: mpsc::Sender<Fact>,
    running: BTreeMap<Birth, Running>,
    clock: Clock,
}

#[derive(Debug)]
struct Running {
    fact: WorkerFact,
    app: Child,
    agent: Child,
    ports: Ports,
    /// The agent is not started anew before this.
    again: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Ports {
    traffic: SocketAddr,
    peer: SocketAddr,
    loopback: SocketAddr,
    app: SocketAddr,
}

impl Workers {
    pub(super) fn new(
        apps: HashMap<ObjectKey, App>,
        folder: PathBuf,
        channel: String,
        tokens: Arc<LocalTokens>,
        facts: mpsc::Sender<Fact>,
    ) -> Self {
        Self {
            apps,
            folder,
            channel,
            tokens,
            facts,
            running: BTreeMap::new(),
            clock: Clock::start(),
        }
    }

    /// Makes what is wanted, ends what is to be retired; touches nothing else.
    pub(super) async fn converge(&mut self, orders: &Orders) -> anyhow::Result<()> {
        for (group, desired) in &orders.desired {
            for birth in &desired.spawn {
                if self.running.contains_key(birth) {
                    continue;
                }
                if let Err(error) = self.spawn(group, *birth).await {
                    let failure = SpawnFailure::Mistake(format!("{error:#}"));
                    self.facts
                        .send(Fact::SpawnFailed(group.clone(), *birth, failure))
                        .await?;
                }
            }
            for (birth, uid) in &desired.retire {
                if self
                    .running
                    .get(birth)
                    .is_some_and(|worker| worker.fact.pod_uid == *uid)
                {
                    self.remove(*birth).await?;
                }
            }
        }
        Ok(())
    }

    async fn spawn(&mut self, group: &ObjectKey, birth: Birth) -> anyhow::Result<()> {
        let Some(app) = self.apps.get(group).cloned() else {
            return Ok(());
        };
        let name = format!("{}-{}", group.name, hex_encode(&random_bytes::<3>()?));
        let uid = hex_encode(&random_bytes::<8>()?);
        let folder = self.folder.join(&name);
        for part in ["token", "state"] {
            tokio::fs::create_dir_all(folder.join(part)).await?;
        }
        let [traffic, peer, loopback, app_address] = free_addresses().await?;
        let ports = Ports {
            traffic,
            peer,
            loopback,
            app: app_address,
        };
        let app_child = start_app(&app.run, &name, &folder, ports)?;
        let fact = WorkerFact {
            birth,
            group: group.clone(),
            name,
            pod_uid: uid,
            ready: false,
            address: ports.traffic.to_string(),
            peer: ports.peer.to_string(),
            terminating: false,
            finished: false,
            app_container_id: String::new(),
            app_restarts: 0,
            failure: None,
            template_hash: app.template_hash,
            agent_hash: String::new(),
            must_go: false,
        };
        // The fact goes first: an agent of a pod that nobody knows is refused.
        self.facts.send(Fact::Worker(Box::new(fact.clone()))).await?;
        let agent = self.start_agent(&fact, &app.run, app_child.pid(), ports).await?;
        self.running.insert(
            birth,
            Running {
                fact,
                app: app_child,
                agent,
                ports,
                again: self.clock.now(),
            },
        );
        Ok(())
    }

    async fn start_agent(
        &self,
        fact: &WorkerFact,
        app: &LocalApp,
        pid: u32,
        ports: Ports,
    ) -> anyhow::Result<Child> {
        self.tokens.revoke(&fact.pod_uid);
        let token = self.tokens.issue(PeerIdentity {
            namespace: fact.group.namespace.clone(),
            pod_name: fact.name.clone(),
            pod_uid: fact.pod_uid.clone(),
            service_account: "default".to_owned(),
        })?;
        let folder = self.folder.join(&fact.name);
        let token_file = folder.join("channel-token");
        tokio::fs::write(&token_file, token).await?;
        let mut arguments = vec![
            "agent".to_owned(),
            format!("--channel={}", self.channel),
            format!("--token-file={}", token_file.display()),
            format!("--listen={}", ports.traffic),
            format!("--peer-listen={}", ports.peer),
            format!("--loopback-listen={}", ports.loopback),
            format!("--app-port={}", ports.app.port()),
            format!("--app-token-file={}", folder.join("token/token").display()),
            format!("--state-dir={}", folder.join("state").display()),
            format!("--app-pid={pid}"),
            format!("--contract={}", if app.target.contract { "auto" } else { "none" }),
        ];
        if app.target.h2c {
            arguments.push("--app-protocol=h2c".to_owned());
        }
        if app.target.contract && app.target.contract_port != app.target.port {
            arguments.push(format!("--contract-port={}", app.target.contract_port));
        }
        let environment = [
            ("POD_UID".to_owned(), fact.pod_uid.clone()),
            ("POD_NAME".to_owned(), fact.name.clone()),
            ("POD_NAMESPACE".to_owned(), fact.group.namespace.clone()),
            ("POD_IP".to_owned(), "127.0.0.1".to_owned()),
        ];
        Child::start(&std::env::current_exe()?, &arguments, &environment, None)
    }

    /// Readiness, restarts of agents, ends of apps: what a kubelet does.
    pub(super) async fn look_after(&mut self) -> anyhow::Result<()> {
        let births: Vec<Birth> = self.running.keys().copied().collect();
        for birth in births {
            let Some(worker) = self.running.get_mut(&birth) else {
                continue;
            };
            if let Some(how) = worker.app.end_seen() {
                tracing::warn!(worker = %worker.fact.name, %how, "the app ended: the worker is dead");
                if !worker.fact.ready {
                    let text = format!("the app ended before it was ready: {how}");
                    worker.fact.failure = Some(SpawnFailure::Mistake(text));
                    let fact = Box::new(worker.fact.clone());
                    self.facts.send(Fact::Worker(fact)).await?;
                }
                self.remove(birth).await?;
                continue;
            }
            if worker.agent.ended() {
                if self.clock.now() < worker.again {
                    continue;
                }
                tracing::warn!(worker = %worker.fact.name, "an agent ended and is started anew");
                let (fact, pid, ports) = (worker.fact.clone(), worker.app.pid(), worker.ports);
                let Some(app) = self.apps.get(&fact.group).map(|app| app.run.clone()) else {
                    continue;
                };
                let agent = self.start_agent(&fact, &app, pid, ports).await?;
                if let Some(worker) = self.running.get_mut(&birth) {
                    worker.agent = agent;
                    worker.again = self.clock.now() + PAUSE;
                }
                continue;
            }
            if !worker.fact.ready && answers(worker.ports.peer, "/readyz").await {
                worker.fact.ready = true;
                self.facts
                    .send(Fact::Worker(Box::new(worker.fact.clone())))
                    .await?;
            }
        }
        Ok(())
    }

    /// The worker must go (D2): the commander moves its users away and then lets it be removed.
    pub(super) async fn must_go(&mut self, name: &str) -> anyhow::Result<()> {
        if let Some(worker) = self.running.values_mut().find(|worker| worker.fact.name == name) {
            worker.fact.must_go = true;
            self.facts
                .send(Fact::Worker(Box::new(worker.fact.clone())))
                .await?;
        }
        Ok(())
    }

    /// The manifest changed: what is made from now on, and groups whose workers are told to stop.
    pub(super) async fn change(&mut self, change: Change) -> anyhow::Result<()> {
        // What a group ran that is gone, its workers run until they are.
        self.apps.extend(change.apps);
        let gone = |worker: &&mut Running| change.gone.contains(&worker.fact.group);
        let mut unready = Vec::new();
        for worker in self.running.values_mut().filter(gone) {
            if worker.fact.ready {
                worker.fact.terminating = true;
                self.facts
                    .send(Fact::Worker(Box::new(worker.fact.clone())))
                    .await?;
            } else {
                unready.push(worker.fact.birth);
            }
        }
        for birth in unready {
            self.remove(birth).await?;
        }
        Ok(())
    }

    async fn remove(&mut self, birth: Birth) -> anyhow::Result<()> {
        let Some(worker) = self.running.remove(&birth) else {
            return Ok(());
        };
        self.tokens.revoke(&worker.fact.pod_uid);
        let folder = self.folder.join(&worker.fact.name);
        self.facts.send(Fact::WorkerGone(birth)).await?;
        tokio::spawn(async move {
            worker.app.end().await;
            worker.agent.end().await;
            let _ = tokio::fs::remove_dir_all(folder).await;
        });
        Ok(())
    }

    pub(super) fn rows(&self) -> Vec<WorkerRow> {
        let row = |worker: &Running| WorkerRow {
            name: worker.fact.name.clone(),
            birth: worker.fact.birth.to_string(),
            agent_pid: worker.agent.pid(),
            app_pid: worker.app.pid(),
            agent: worker.ports.traffic.to_string(),
            peer: worker.ports.peer.to_string(),
            app: worker.ports.app.to_string(),
        };
        self.running.values().map(row).collect()
    }

    pub(super) async fn end(self) {
        let all = self
            .running
            .into_values()
            .flat_map(|worker| [worker.app.end(), worker.agent.end()]);
        futures::future::join_all(all).await;
    }
}

fn start_app(app: &LocalApp, name: &str, folder: &Path, ports: Ports) -> anyhow::Result<Child> {
    let mut environment = app.env.clone();
    environment.push(("PORT".to_owned(), ports.app.port().to_string()));
    environment.push(("HOSTNAME".to_owned(), name.to_owned()));
    environment.push((
        "POOL_TOKEN_FILE".to_owned(),
        folder.join("token/token").display().to_string(),
    ));
    environment.push(("POOL_AGENT".to_owned(), format!("http://{}", ports.loopback)));
    let (program, arguments) = app
        .command
        .split_first()
        .map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
    Child::start(
        &find(program),
        arguments,
        &environment,
        app.working_dir.as_deref(),
    )
}

/// A program without a folder is looked for beside this one first: the reference app is this program.
fn find(program: &str) -> PathBuf {
    let beside = std::env::current_exe()
        .ok()
        .and_then(|own| Some(own.parent()?.join(program)));
    match beside {
        Some(path) if !program.contains('/') && path.is_file() => path,
        _ => PathBuf::from(program),
    }
}
