//! One operator: stands for election, serves the channel, and while it leads runs the real commander over the simulated cluster.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use elastic_pool::channel::LeaderState;
use elastic_pool::channel::server::Server;
use elastic_pool::commander;
use elastic_pool::engine::ids::{Birth, Term};
use elastic_pool::metrics::Metrics;
use elastic_pool::net::TcpListener;
use elastic_pool::vehicle::{Fact, Orders, WorkerFact};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cluster::{GIVEN_UP_AFTER, LEASE, RENEWED_EVERY, Tokens, pool};
use crate::history::Event;
use crate::world::{CHANNEL_PORT, Shared};

const QUEUE: usize = 4096;
/// How often the cluster is looked at, as a watch would tell.
const WATCH: Duration = Duration::from_millis(40);

/// Runs until its leadership ends; a process leads once.
pub(crate) async fn run(shared: Arc<Shared>, name: String, address: SocketAddr) {
    let Ok(listener) = TcpListener::bind(("0.0.0.0", CHANNEL_PORT)).await else {
        return;
    };
    let (events, channel) = mpsc::channel(QUEUE);
    let following = LeaderState::Following {
        address: String::new(),
        term: Term(0),
    };
    let (state, leader) = watch::channel(following);
    let raise = Arc::new(AtomicU64::new(0));
    let raised = Arc::clone(&raise);
    let server =
        Server::new(Arc::new(Tokens(Arc::clone(&shared))), leader, events).on_higher_term(move |term| {
            let _ = raised.fetch_max(term.0, Ordering::Relaxed);
        });
    tokio::spawn(server.serve(listener, CancellationToken::new()));
    let mut campaign = Campaign {
        shared: Arc::clone(&shared),
        name,
        address,
        seen: (0, Instant::now()),
        leads: None,
    };
    let mut channel = Some(channel);
    loop {
        if !campaign.step(&state, &raise) {
            return;
        }
        if let Some((term, _)) = campaign.leads
            && let Some(channel) = channel.take()
        {
            shared.note(Event::Said {
                what: format!("{} leads in term {term}", campaign.name),
            });
            lead(&shared, Term(term), channel, &campaign.name);
        }
        tokio::time::sleep(RENEWED_EVERY).await;
    }
}

struct Campaign {
    shared: Arc<Shared>,
    name: String,
    address: SocketAddr,
    /// Version of the lease, and since when it has been that.
    seen: (u64, Instant),
    /// Term, and when the lease was last written.
    leads: Option<(u64, Instant)>,
}

impl Campaign {
    /// Looks at the lease once; false when this process must end.
    fn step(&mut self, state: &watch::Sender<LeaderState>, raise: &AtomicU64) -> bool {
        let now = Instant::now();
        let mut cluster = self.shared.cluster.lock();
        if cluster.cut.contains(&self.name) {
            return self
                .leads
                .is_none_or(|(_, written)| now - written < GIVEN_UP_AFTER);
        }
        let (lease, raise) = (cluster.lease.clone(), raise.load(Ordering::Relaxed));
        let address = self.address.to_string();
        if let Some((term, written)) = self.leads {
            if now - written >= GIVEN_UP_AFTER || lease.term != term || lease.holder != self.name {
                return false;
            }
            if raise > term {
                // A peer knows a higher term: the next one is above that.
                cluster.swap(lease.version, "", "", raise);
                return false;
            }
            self.leads = Some((term, now));
            return cluster.swap(lease.version, &self.name, &address, term);
        }
        if lease.version != self.seen.0 {
            self.seen = (lease.version, now);
        }
        let free = lease.holder.is_empty() || now - self.seen.1 >= LEASE;
        let term = lease.term.max(raise) + 1;
        if free && cluster.swap(lease.version, &self.name, &address, term) {
            self.leads = Some((term, now));
            state.send_replace(LeaderState::Leading { term: Term(term) });
        } else {
            state.send_replace(LeaderState::Following {
                address: lease.address,
                term: Term(lease.term),
            });
        }
        true
    }
}

fn lead(
    shared: &Arc<Shared>,
    term: Term,
    channel: mpsc::Receiver<elastic_pool::channel::server::ChannelEvent>,
    name: &str,
) {
    let (facts, told) = mpsc::channel(QUEUE);
    let (orders, wanted) = watch::channel(Arc::new(Orders::default()));
    let metrics = Arc::new(Metrics::new().expect("metrics of one process"));
    drop(commander::start(
        term,
        channel,
        told,
        orders,
        None,
        metrics,
        CancellationToken::new(),
    ));
    tokio::spawn(vehicle(Arc::clone(shared), facts, wanted, name.to_owned()));
}

/// Tells facts and carries out orders, as the controller does.
async fn vehicle(
    shared: Arc<Shared>,
    facts: mpsc::Sender<Fact>,
    wanted: watch::Receiver<Arc<Orders>>,
    name: String,
) {
    let mut told: BTreeMap<Birth, WorkerFact> = BTreeMap::new();
    let mut synced = false;
    loop {
        for fact in news(&shared, &mut told, &mut synced, &name) {
            if facts.send(fact).await.is_err() {
                return;
            }
        }
        let orders = Arc::clone(&wanted.borrow());
        obey(&shared, &orders, &name);
        tokio::time::sleep(WATCH).await;
    }
}

fn news(shared: &Shared, told: &mut BTreeMap<Birth, WorkerFact>, synced: &mut bool, name: &str) -> Vec<Fact> {
    let cluster = shared.cluster.lock();
    let mut news = Vec::new();
    if cluster.cut.contains(name) {
        return news;
    }
    if !*synced {
        news.push(Fact::Group(Box::new(cluster.spec.clone())));
        news.push(Fact::Keys(pool(), cluster.keys.clone()));
    }
    for (birth, pod) in &cluster.pods {
        if told.get(birth) != Some(&pod.fact) {
            told.insert(*birth, pod.fact.clone());
            news.push(Fact::Worker(Box::new(pod.fact.clone())));
        }
    }
    let gone: Vec<Birth> = told
        .keys()
        .filter(|birth| !cluster.pods.contains_key(birth))
        .copied()
        .collect();
    for birth in gone {
        told.remove(&birth);
        news.push(Fact::WorkerGone(birth));
    }
    if !std::mem::replace(synced, true) {
        news.push(Fact::Synced);
    }
    news
}

fn obey(shared: &Shared, orders: &Orders, name: &str) {
    let mut cluster = shared.cluster.lock();
    if cluster.cut.contains(name) {
        return;
    }
    for desired in orders.desired.values() {
        for birth in &desired.spawn {
            let starts = shared.now() + shared.below(300) + 50;
            cluster.make(*birth, starts);
        }
        for (birth, uid) in &desired.retire {
            if let Some(app) = cluster.delete(*birth, uid) {
                shared.note(Event::Retired { app });
            }
        }
    }
}
