//! What goes wrong in a world, chosen by its seed: at a time, or when a message of a kind is seen.

use elastic_pool::engine::ids::Birth;
use elastic_pool::net::sim::{Host, Process, Random};

use crate::history::Event;
use crate::steps::Step;
use crate::world::{GATEWAYS, OPERATORS, PEOPLE, Role, World, gateway_host, operator_host};

/// Something to do to a world; `at` chooses among those whom it can befall.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Act {
    KillLeader,
    KillOperator(usize),
    KillGateway(usize),
    KillAgent {
        at: u64,
    },
    KillApp {
        at: u64,
    },
    /// Somebody deletes a pod (D2).
    Delete {
        at: u64,
    },
    /// Its node is cordoned (D2).
    Cordon {
        at: u64,
    },
    /// Packets between two hosts wait, both ways or one.
    Hold {
        at: u64,
        both: bool,
        millis: u64,
    },
    Release {
        from: Host,
        to: Host,
        both: bool,
    },
    Slow {
        at: u64,
        by: u64,
    },
    /// Connections between two hosts end.
    Reset {
        at: u64,
    },
    ResetConn(u64),
    KillProcess(Process),
    /// An operator does not reach the API server.
    Cut {
        operator: usize,
        millis: u64,
    },
    Mend(usize),
    /// Users become more or less work.
    Pressure(u64),
    /// The next package is altered on its way.
    Corrupt,
}

/// What to do when a message is seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hit {
    KillSender,
    KillReceiver,
    Reset,
}

/// A fault that waits for the n-th message of a kind.
#[derive(Debug, Clone)]
pub(crate) struct Armed {
    pub(crate) name: &'static str,
    left: u64,
    hit: Hit,
    delay: u64,
}

impl Armed {
    /// When and what, if this is the message.
    pub(crate) fn hit(&mut self, step: &Step) -> Option<(u64, Act)> {
        if step.name != self.name || self.left == 0 {
            return None;
        }
        self.left -= 1;
        if self.left > 0 {
            return None;
        }
        let act = match self.hit {
            Hit::KillSender => Act::KillProcess(step.from),
            Hit::KillReceiver => Act::KillProcess(step.to?),
            Hit::Reset => Act::ResetConn(step.conn),
        };
        Some((self.delay, act))
    }
}

/// Messages at which faults are most telling: all steps of moves, logins and recoveries.
const STEPS: [&str; 22] = [
    "Hold",
    "Held",
    "Snapshot",
    "Ack",
    "Fetch",
    "Activate",
    "Route",
    "Assign",
    "Forget",
    "Thaw",
    "Discard",
    "Cancel",
    "Place",
    "Placed",
    "Quiet",
    "Resolve",
    "AgentWelcome",
    "AgentHello",
    "GatewayHello",
    "Table",
    "LookUp",
    "Nack",
];

/// All that a seed brings about.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) timed: Vec<(u64, Act)>,
    pub(crate) armed: Vec<Armed>,
    /// When faults stop, in milliseconds.
    pub(crate) until: u64,
}

/// A world is up and everybody logged in by then.
const BEGIN: u64 = 3000;

impl Plan {
    pub(crate) fn new(random: &mut Random) -> Self {
        let until = 9000 + random.below(4000);
        let mut timed = Vec::new();
        let when = |random: &mut Random| BEGIN + random.below(until - BEGIN);
        // Load that rises and falls, so that workers come and go.
        for pressure in [20 + random.below(30), random.below(4), 10 + random.below(40)] {
            timed.push((when(random), Act::Pressure(pressure)));
        }
        for _ in 0..=random.below(3) {
            let at = random.next();
            timed.push((
                when(random),
                if random.chance(50) {
                    Act::Delete { at }
                } else {
                    Act::Cordon { at }
                },
            ));
        }
        for _ in 0..=random.below(3) {
            timed.push((when(random), fault(random)));
        }
        let armed = (0..=random.below(3)).map(|_| armed(random)).collect();
        if random.chance(25) {
            timed.push((when(random), Act::Corrupt));
        }
        timed.sort_by_key(|(at, _)| *at);
        Self { timed, armed, until }
    }
}

fn armed(random: &mut Random) -> Armed {
    Armed {
        name: STEPS[usize::try_from(random.below(STEPS.len() as u64)).unwrap_or_default()],
        left: 1 + random.below(4),
        hit: [Hit::KillSender, Hit::KillReceiver, Hit::Reset]
            [usize::try_from(random.below(3)).unwrap_or_default()],
        delay: if random.chance(50) { 0 } else { random.below(40) },
    }
}

fn fault(random: &mut Random) -> Act {
    let at = random.next();
    let of =
        |random: &mut Random, count: usize| usize::try_from(random.below(count as u64)).unwrap_or_default();
    match random.below(11) {
        0 | 1 => Act::KillLeader,
        2 => Act::KillOperator(of(random, OPERATORS)),
        3 => Act::KillGateway(of(random, GATEWAYS)),
        4 => Act::KillAgent { at },
        5 => Act::KillApp { at },
        6 => Act::Hold {
            at,
            both: random.chance(60),
            millis: 200 + random.below(5000),
        },
        7 => Act::Slow {
            at,
            by: 20 + random.below(300),
        },
        8 => Act::Reset { at },
        9 => Act::Cut {
            operator: of(random, OPERATORS),
            millis: 500 + random.below(5000),
        },
        _ => Act::Hold {
            at,
            both: true,
            millis: 200 + random.below(2000),
        },
    }
}

impl World {
    fn pod(&self, at: u64) -> Option<Birth> {
        let cluster = self.shared.cluster.lock();
        let births: Vec<Birth> = cluster.pods.keys().copied().collect();
        let at = usize::try_from(at % u64::try_from(births.len()).ok().filter(|count| *count > 0)?).ok()?;
        births.get(at).copied()
    }

    /// Two hosts that speak with each other.
    fn pair(&self, at: u64) -> (Host, Host) {
        let cluster = self.shared.cluster.lock();
        let pods: Vec<Host> = cluster.pods.values().map(|pod| pod.host).collect();
        let (operators, gateways) = ((0..OPERATORS).map(operator_host), (0..GATEWAYS).map(gateway_host));
        let mut pairs = Vec::new();
        for gateway in gateways {
            pairs.push((PEOPLE, gateway));
            pairs.extend(pods.iter().map(|pod| (gateway, *pod)));
            pairs.extend(operators.clone().map(|operator| (gateway, operator)));
        }
        for (number, pod) in pods.iter().enumerate() {
            pairs.extend(operators.clone().map(|operator| (*pod, operator)));
            pairs.extend(pods[..number].iter().map(|other| (*pod, *other)));
        }
        pairs[usize::try_from(at % pairs.len() as u64).unwrap_or_default()]
    }

    fn later(&self, millis: u64, act: Act) {
        self.shared.due.lock().push((self.shared.now() + millis, act));
    }

    /// Does it now.
    pub(crate) fn act(&mut self, act: &Act) {
        self.shared.note(Event::Fault {
            what: format!("{act:?}"),
        });
        match *act {
            Act::KillLeader => {
                let holder = self.shared.cluster.lock().lease.address.clone();
                let leads =
                    (0..OPERATORS).find(|number| holder.starts_with(&operator_host(*number).to_string()));
                leads
                    .into_iter()
                    .for_each(|number| self.act(&Act::KillOperator(number)));
            }
            Act::KillOperator(number) => self.operators[number]
                .into_iter()
                .for_each(|process| self.kill(process)),
            Act::KillGateway(number) => self.gateways[number]
                .into_iter()
                .for_each(|process| self.kill(process)),
            Act::KillAgent { at } => self.pod(at).into_iter().for_each(|birth| self.kill_agent(birth)),
            Act::KillApp { at } => self
                .pod(at)
                .into_iter()
                .for_each(|birth| self.kill_app(birth, true)),
            Act::KillProcess(process) => self.kill_one(process),
            Act::Delete { at } => self.pod(at).into_iter().for_each(|birth| self.delete(birth)),
            Act::Cordon { at } => self.pod(at).into_iter().for_each(|birth| self.cordon(birth)),
            Act::Cut { operator, millis } => self.cut(operator, millis),
            Act::Mend(operator) => {
                let prefix = format!("operator-{operator}.");
                let mut cluster = self.shared.cluster.lock();
                cluster.cut.retain(|name| !name.starts_with(&prefix));
            }
            Act::Pressure(pressure) => self.shared.set_pressure(pressure),
            Act::Corrupt => self.shared.corrupt_next(),
            Act::Hold { at, both, millis } => {
                let (from, to) = self.pair(at);
                self.hold(from, to, both, true);
                self.later(millis, Act::Release { from, to, both });
            }
            Act::Release { from, to, both } => self.hold(from, to, both, false),
            Act::Slow { at, by } => {
                let (from, to) = self.pair(at);
                self.net.slow(from, to, by);
                self.net.slow(to, from, by);
            }
            Act::Reset { at } => {
                let (from, to) = self.pair(at);
                self.net.reset(from, to);
            }
            Act::ResetConn(conn) => self.net.reset_one(conn),
        }
    }

    fn hold(&self, from: Host, to: Host, both: bool, held: bool) {
        self.net.hold(from, to, held);
        if both {
            self.net.hold(to, from, held);
        }
    }

    fn kill_agent(&mut self, birth: Birth) {
        if let Some(agent) = self.agents.remove(&birth) {
            self.kill(agent);
        }
    }

    fn kill_one(&mut self, process: Process) {
        match self.shared.role(process) {
            Some(Role::Agent(birth)) if self.agents.get(&birth) == Some(&process) => self.kill_agent(birth),
            Some(Role::Operator(_) | Role::Gateway(_)) => self.kill(process),
            _ => {}
        }
    }

    fn delete(&self, birth: Birth) {
        let mut cluster = self.shared.cluster.lock();
        let uid = cluster.pods[&birth].fact.pod_uid.clone();
        cluster.delete(birth, &uid);
    }

    fn cordon(&self, birth: Birth) {
        if let Some(pod) = self.shared.cluster.lock().pods.get_mut(&birth) {
            pod.fact.must_go = true;
        }
    }

    fn cut(&self, operator: usize, millis: u64) {
        let present = self.shared.cluster.lock().present[operator].clone();
        self.shared.cluster.lock().cut.insert(present);
        self.later(millis, Act::Mend(operator));
    }
}
