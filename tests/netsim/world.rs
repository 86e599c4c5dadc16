//! One world: its processes, each with a runtime and a clock of its own, stepped together; what starts them, and what they share.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use elastic_pool::agent::{Agent, AgentConfig, AppProtocol, Measured};
use elastic_pool::channel::link::{LinkConfig, Token};
use elastic_pool::engine::ids::Birth;
use elastic_pool::gateway::{Gateway, GatewayConfig, Listeners};
use elastic_pool::net::TcpListener;
use elastic_pool::net::sim::{self, Host, Net, Process, Random};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::faults::Act;
pub(crate) use crate::shared::Shared;

pub(crate) const OPERATORS: usize = 2;
pub(crate) const GATEWAYS: usize = 2;
pub(crate) const CHANNEL_PORT: u16 = 7443;
pub(crate) const GATEWAY_PORT: u16 = 8000;
pub(crate) const GATEWAY_ADMIN: u16 = 8001;
pub(crate) const AGENT_PORT: u16 = 15080;
pub(crate) const AGENT_PEER: u16 = 15081;
/// One step of all clocks, in milliseconds.
pub(crate) const STEP: u64 = 5;
/// Between a container's end and its next start.
const RESTART: u64 = 300;

pub(crate) fn operator_host(number: usize) -> Host {
    Ipv4Addr::new(10, 0, 0, 1 + u8::try_from(number).unwrap_or(0))
}

pub(crate) fn gateway_host(number: usize) -> Host {
    Ipv4Addr::new(10, 0, 1, 1 + u8::try_from(number).unwrap_or(0))
}

pub(crate) const PEOPLE: Host = Ipv4Addr::new(10, 0, 9, 1);
const CHANNEL: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1)), CHANNEL_PORT);

/// What a process is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Role {
    Operator(usize),
    Gateway(usize),
    Agent(Birth),
    App(Birth),
    People,
    /// A probe or a preStop call.
    Kubelet,
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Operator(number) => write!(f, "operator-{number}"),
            Self::Gateway(number) => write!(f, "gateway-{number}"),
            Self::Agent(birth) => write!(f, "agent {birth}"),
            Self::App(birth) => write!(f, "app {birth}"),
            Self::People => f.write_str("people"),
            Self::Kubelet => f.write_str("kubelet"),
        }
    }
}

struct Running {
    host: Host,
    runtime: Runtime,
    main: JoinHandle<()>,
}

/// A world of one seed.
pub(crate) struct World {
    pub(crate) shared: Arc<Shared>,
    pub(crate) net: Net,
    running: BTreeMap<Process, Running>,
    next: Process,
    pub(crate) operators: [Option<Process>; OPERATORS],
    pub(crate) gateways: [Option<Process>; GATEWAYS],
    pub(crate) agents: BTreeMap<Birth, Process>,
    pub(crate) apps: BTreeMap<Birth, Process>,
    /// When what ended starts again.
    again: BTreeMap<String, u64>,
    incarnations: u64,
    folder: PathBuf,
    browsers: usize,
}

impl World {
    /// All processes but the workers, which the commander asks for.
    pub(crate) fn new(seed: u64, folder: PathBuf, users: u64, seconds: &[bool]) -> Self {
        let mut random = Random::new(seed);
        let net = Net::new(random.next(), (1, 1 + random.below(20)));
        let min = 1 + u32::from(random.chance(50));
        let shared = Arc::new(Shared::new(random, min));
        net.observe(crate::steps::observer(Arc::clone(&shared)));
        let members = (0..OPERATORS).map(|number| SocketAddr::from((operator_host(number), CHANNEL_PORT)));
        net.service(CHANNEL, members.collect());
        let mut world = Self {
            shared,
            net,
            running: BTreeMap::new(),
            next: 0,
            operators: [None; OPERATORS],
            gateways: [None; GATEWAYS],
            agents: BTreeMap::new(),
            apps: BTreeMap::new(),
            again: BTreeMap::new(),
            incarnations: 0,
            folder,
            browsers: 0,
        };
        world.people(users, seconds);
        world
    }

    fn people(&mut self, users: u64, seconds: &[bool]) {
        let mut browsers = Vec::new();
        for user in 0..users {
            let twice = seconds
                .get(usize::try_from(user).unwrap_or_default())
                .copied()
                .unwrap_or_default();
            for number in 0..=u64::from(twice) {
                let random = Random::new(self.shared.random.lock().next());
                let begins = Duration::from_millis(1500 + self.shared.below(1500) + 2500 * number);
                let browser =
                    crate::users::Browser::new(Arc::clone(&self.shared), &format!("u{user}"), number, random);
                browsers.push((browser, begins));
            }
        }
        self.browsers = browsers.len();
        let people = async move {
            let all: Vec<_> = browsers
                .into_iter()
                .map(|(browser, begins)| tokio::spawn(browser.run(begins)))
                .collect();
            for one in all {
                let _ = one.await;
            }
        };
        self.start(Role::People, PEOPLE, people);
    }

    pub(crate) fn start(
        &mut self,
        role: Role,
        host: Host,
        main: impl Future<Output = ()> + Send + 'static,
    ) -> Process {
        self.next += 1;
        let process = self.next;
        self.shared.is_now(process, role);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime without I/O");
        let main = sim::enter(&self.net, process, host, || runtime.spawn(main));
        self.running.insert(process, Running { host, runtime, main });
        process
    }

    /// Ends a process as SIGKILL does.
    pub(crate) fn kill(&mut self, process: Process) {
        self.net.kill(process);
        if let Some(Running { host, runtime, main }) = self.running.remove(&process) {
            sim::enter(&self.net, process, host, || {
                drop(main);
                drop(runtime);
            });
        }
    }

    fn has_ended(&self, process: Process) -> bool {
        self.running
            .get(&process)
            .is_none_or(|running| running.main.is_finished())
    }

    /// All clocks go on by [`STEP`].
    pub(crate) fn step(&mut self) {
        let now = self.shared.tick(STEP);
        let due: Vec<Act> = {
            let mut due = self.shared.due.lock();
            let (ready, later) = due.drain(..).partition(|(at, _)| *at <= now);
            *due = later;
            let ready: Vec<(u64, Act)> = ready;
            ready.into_iter().map(|(_, act)| act).collect()
        };
        for act in due {
            self.act(&act);
        }
        self.keep_running(now);
        self.net.advance(now);
        for (process, running) in &self.running {
            sim::enter(&self.net, *process, running.host, || {
                running
                    .runtime
                    .block_on(async { tokio::time::sleep(Duration::from_millis(STEP)).await });
            });
        }
    }

    /// True once in the time between the end of something and its next start.
    fn may_start(&mut self, what: &str, now: u64) -> bool {
        match self.again.get(what) {
            None => {
                self.again.insert(what.to_owned(), 0);
                true
            }
            Some(0) => {
                let pause = RESTART + self.shared.below(500);
                self.again.insert(what.to_owned(), now + pause);
                false
            }
            Some(at) if *at <= now => {
                self.again.insert(what.to_owned(), 0);
                true
            }
            Some(_) => false,
        }
    }

    /// Starts what has to run and does not: what deployments and kubelets do.
    fn keep_running(&mut self, now: u64) {
        for number in 0..OPERATORS {
            if let Some(process) = self.operators[number].filter(|process| self.has_ended(*process)) {
                self.kill(process);
                self.operators[number] = None;
            }
            if self.operators[number].is_none() && self.may_start(&format!("operator {number}"), now) {
                self.start_operator(number);
            }
        }
        for number in 0..GATEWAYS {
            if let Some(process) = self.gateways[number].filter(|process| self.has_ended(*process)) {
                self.kill(process);
                self.gateways[number] = None;
            }
            if self.gateways[number].is_none() && self.may_start(&format!("gateway {number}"), now) {
                self.start_gateway(number);
            }
        }
        self.keep_pods(now);
    }

    fn start_operator(&mut self, number: usize) {
        self.incarnations += 1;
        let (host, name) = (
            operator_host(number),
            format!("operator-{number}.{}", self.incarnations),
        );
        let address = SocketAddr::from((host, CHANNEL_PORT));
        self.shared.cluster.lock().present[number].clone_from(&name);
        let main = crate::operator::run(Arc::clone(&self.shared), name, address);
        self.operators[number] = Some(self.start(Role::Operator(number), host, main));
    }

    fn start_gateway(&mut self, number: usize) {
        self.incarnations += 1;
        let cookie_key = self.shared.cluster.lock().cookie_key.clone();
        let pool_key = self.shared.cluster.lock().keys.pool.clone();
        let name = format!("gateway-{number}.{}", self.incarnations);
        let link = LinkConfig {
            address: CHANNEL.to_string(),
            token: Token::Fixed(name.clone()),
        };
        let config = GatewayConfig::new("sim", "shop", &name, link, cookie_key, pool_key);
        let main = async move {
            let bind = async |port| TcpListener::bind(("0.0.0.0", port)).await.expect("a free port");
            let (traffic, admin) = (bind(GATEWAY_PORT).await, bind(GATEWAY_ADMIN).await);
            let listeners = Listeners {
                traffic,
                admin,
                monitor: None,
            };
            let gateway =
                Gateway::start(config, listeners, CancellationToken::new()).expect("a gateway starts");
            gateway.ended().await;
        };
        self.gateways[number] = Some(self.start(Role::Gateway(number), gateway_host(number), main));
    }

    pub(crate) fn start_agent(&mut self, birth: Birth, host: Host, name: &str, uid: &str) {
        let folder = self.folder.join(name);
        let any = |port| SocketAddr::from(([0, 0, 0, 0], port));
        let app = SocketAddr::from((host, crate::app::PORT));
        let config = AgentConfig {
            link: LinkConfig {
                address: CHANNEL.to_string(),
                token: Token::Fixed(uid.to_owned()),
            },
            listen: any(AGENT_PORT),
            peer_listen: any(AGENT_PEER),
            loopback_listen: any(15082),
            app,
            app_protocol: AppProtocol::Http1,
            contract: Some(app),
            app_token_file: folder.join("token/token"),
            state_dir: folder.join("state"),
            pod_uid: uid.to_owned(),
            worker: name.to_owned(),
            measured: Measured::Nothing,
            proc_root: folder.join("no-processes"),
            drain_wait: Duration::from_secs(10),
            list_interval: Duration::from_secs(5),
        };
        let main = async move {
            let agent = Agent::start(config, CancellationToken::new())
                .await
                .expect("an agent starts");
            agent.stopped().await;
        };
        let process = self.start(Role::Agent(birth), host, main);
        self.agents.insert(birth, process);
    }

    pub(crate) fn start_app(&mut self, birth: Birth, host: Host, app: &str) {
        let main = crate::app::run(Arc::clone(&self.shared), app.to_owned());
        let process = self.start(Role::App(birth), host, main);
        self.apps.insert(birth, process);
    }

    pub(crate) fn may_restart(&mut self, what: &str, now: u64) -> bool {
        self.may_start(what, now)
    }

    pub(crate) fn faults_stop(&mut self) {
        self.net.heal();
        self.shared.faults_stop();
    }

    /// Every browser was served since the faults stopped, and nobody's move is open.
    pub(crate) fn is_well(&self) -> bool {
        self.shared.served_browsers() == self.browsers && self.shared.is_clean()
    }

    /// The browsers stop, then the gateways are asked what they still hold.
    pub(crate) fn finish(&mut self) {
        self.shared.end();
        let people = self
            .running
            .iter()
            .find(|(process, _)| self.shared.role(**process) == Some(Role::People));
        let Some(people) = people.map(|(process, _)| *process) else {
            return;
        };
        for _ in 0..25_000 / STEP {
            if self.has_ended(people) {
                break;
            }
            self.step();
        }
        let asked = self.start(Role::People, PEOPLE, crate::left::ask(Arc::clone(&self.shared)));
        for _ in 0..5000 / STEP {
            if self.has_ended(asked) {
                break;
            }
            self.step();
        }
    }

    /// Everything ends.
    pub(crate) fn end(mut self) {
        for process in self.running.keys().copied().collect::<Vec<_>>() {
            self.kill(process);
        }
    }
}

impl World {
    /// Probes and preStop calls that are over.
    pub(crate) fn forget_ended(&mut self) {
        let ended: Vec<Process> = self
            .running
            .iter()
            .filter(|(process, running)| {
                running.main.is_finished() && self.shared.role(**process) == Some(Role::Kubelet)
            })
            .map(|(process, _)| *process)
            .collect();
        for process in ended {
            self.kill(process);
        }
    }
}
