//! The copy of the surface that requests are served from: groups, workers, users, clients; it asks nobody and decides nothing.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Release},
};

use arc_swap::ArcSwap;
use elastic_pool_engine::ids::{Birth, ClientId, Epoch, UserId};
use elastic_pool_engine::ownership::is_news;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::clients::Clients;
use super::clock::Clocks;
use super::resident::{ByUser, Owner, Resident};
use super::shards::Sharded;
use super::spread::Spread;
use super::upstream::Upstream;
use crate::channel::proto;
use crate::credentials::Key;

/// One group.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) name: Arc<str>,
    pub(crate) reception: Option<Birth>,
    pub(crate) newcomer: Option<Birth>,
    pub(crate) session: bool,
    default: bool,
    /// Takes no newcomers.
    closed: bool,
}

impl Group {
    fn new(group: &proto::Group) -> Self {
        let birth = |number: u64| (number != 0).then_some(Birth(number));
        Self {
            name: Arc::from(group.name.as_str()),
            reception: birth(group.reception),
            newcomer: birth(group.newcomer),
            session: group.session_users,
            default: group.default_group,
            closed: group.closed,
        }
    }

    /// Who takes in somebody new.
    pub(crate) fn entrance(&self) -> Option<Birth> {
        if self.session {
            self.newcomer
        } else {
            self.reception
        }
    }
}

/// Groups and workers; replaced as a whole, read without a lock.
#[derive(Debug, Default, Clone)]
pub(crate) struct Topology {
    pub(crate) groups: Vec<Group>,
    pub(crate) workers: HashMap<Birth, Arc<Upstream>, Spread>,
}

impl Topology {
    /// The group of this name, else the default one (T2).
    pub(crate) fn group(&self, name: &str) -> Option<&Group> {
        self.groups
            .iter()
            .find(|group| &*group.name == name)
            .or_else(|| self.default_group())
    }

    /// The group that takes a newcomer in who would go to `named`: that one, or while it takes none the default one,
    /// or any; `None` when all are closed.
    pub(crate) fn open_group<'a>(&'a self, named: &'a Group) -> Option<&'a Group> {
        let open = |group: &&Group| !group.closed;
        Some(named)
            .filter(open)
            .or_else(|| self.default_group().filter(open))
            .or_else(|| self.groups.iter().find(open))
    }

    pub(crate) fn default_group(&self) -> Option<&Group> {
        self.groups
            .iter()
            .find(|group| group.default)
            .or_else(|| self.groups.first())
    }
}

/// What is kept from before although a new leader's first table does not name it: the leader is still hearing who
/// lives where (D4). What it has not named once its table is live, goes.
#[derive(Default)]
struct Unconfirmed {
    users: HashSet<UserId>,
    workers: HashSet<Birth>,
}

/// The whole copy.
pub(crate) struct Table {
    topology: ArcSwap<Topology>,
    users: Sharded<ByUser, ()>,
    clients: Clients,
    version: AtomicU64,
    live: AtomicBool,
    received: AtomicBool,
    unconfirmed: Mutex<Unconfirmed>,
    changed: watch::Sender<u64>,
    clocks: Arc<Clocks>,
    pool_key: Key,
}

impl Table {
    pub(crate) fn new(pool_key: Key, clocks: Arc<Clocks>) -> Self {
        Self {
            topology: ArcSwap::default(),
            users: Sharded::default(),
            clients: Clients::default(),
            version: AtomicU64::new(0),
            live: AtomicBool::new(false),
            received: AtomicBool::new(false),
            unconfirmed: Mutex::default(),
            changed: watch::Sender::new(0),
            clocks,
            pool_key,
        }
    }

    pub(crate) fn topology(&self) -> arc_swap::Guard<Arc<Topology>> {
        self.topology.load()
    }

    pub(crate) fn worker(&self, birth: Birth) -> Option<Arc<Upstream>> {
        self.topology.load().workers.get(&birth).cloned()
    }

    pub(crate) fn owner(&self, user: &UserId) -> Option<Owner> {
        self.resident(user).map(|resident| resident.owner())
    }

    /// What is known of a user.
    pub(crate) fn resident(&self, user: &UserId) -> Option<Arc<Resident>> {
        self.users.key(user.as_str()).map(|known| known.0)
    }

    /// The user that this client id was bound to (L4).
    pub(crate) fn bound(&self, client: &ClientId) -> Option<Arc<Resident>> {
        self.clients.get(client)
    }

    /// True once any table was received; stays true when the commander goes away.
    pub(crate) fn is_received(&self) -> bool {
        self.received.load(Acquire)
    }

    /// L6: may this table say that a user born at `epoch` is gone?
    pub(crate) fn covers(&self, epoch: Epoch) -> bool {
        self.live.load(Acquire) && epoch.0 <= self.version.load(Acquire)
    }

    /// The commander knows every group, and this copy names them.
    pub(crate) fn is_live(&self) -> bool {
        self.is_received() && self.live.load(Acquire)
    }

    /// Wakes at each change of the table.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    pub(crate) fn users_known(&self) -> usize {
        self.users.len()
    }

    /// What a Hello says (D3).
    pub(crate) fn ownerships(&self) -> Vec<proto::Ownership> {
        let mut all = Vec::new();
        self.users.each(|known, ()| all.push(known.0.ownership()));
        all
    }

    /// Counters of users that changed since the last call; after `everything` also of the others.
    pub(crate) fn user_totals(&self, everything: bool) -> Vec<proto::UserTotals> {
        let mut all = Vec::new();
        self.users
            .each(|known, ()| all.extend(known.0.clock.totals(&known.0.user, everything)));
        all
    }

    /// Takes a table or a change of it. A full one replaces everything; but while it is not live, what was known
    /// before stays until the leader has heard everybody.
    pub(crate) fn apply(&self, table: &proto::Table) {
        if table.full {
            self.doubt_all();
        }
        self.confirm_workers(table);
        self.apply_topology(table);
        for owner in &table.users {
            // A full live table is the present, even where an epoch in it looks older.
            self.put(owner, table.full && table.live);
        }
        if table.live {
            self.drop_unconfirmed();
        }
        if !table.dead.is_empty() {
            self.sweep(&table.dead);
        }
        self.version.store(table.version, Release);
        self.live.store(table.live, Release);
        self.received.store(true, Release);
        self.changed.send_modify(|count| *count += 1);
    }

    fn doubt_all(&self) {
        let mut doubted = Unconfirmed::default();
        self.users.each(|known, ()| {
            doubted.users.extend(known.0.id());
        });
        doubted.workers.extend(self.topology.load().workers.keys());
        *self.unconfirmed.lock() = doubted;
    }

    fn confirm_workers(&self, table: &proto::Table) {
        let mut unconfirmed = self.unconfirmed.lock();
        for birth in table
            .workers
            .iter()
            .map(|worker| worker.birth)
            .chain(table.dead.iter().copied())
        {
            unconfirmed.workers.remove(&Birth(birth));
        }
    }

    fn drop_unconfirmed(&self) {
        let gone = std::mem::take(&mut *self.unconfirmed.lock());
        for user in &gone.users {
            self.forget(user);
        }
        if gone.workers.is_empty() {
            return;
        }
        let mut next = Topology::clone(&self.topology.load());
        for birth in &gone.workers {
            next.workers.remove(birth);
            self.clocks.forget_worker(*birth);
        }
        self.topology.store(Arc::new(next));
    }

    fn apply_topology(&self, table: &proto::Table) {
        if !table.full && table.groups.is_empty() && table.workers.is_empty() && table.dead.is_empty() {
            return;
        }
        let present = self.topology.load();
        let mut next = Topology {
            groups: present.groups.clone(),
            workers: present.workers.clone(),
        };
        if !table.groups.is_empty() || (table.full && table.live) {
            next.groups = table.groups.iter().map(Group::new).collect();
        }
        for worker in &table.workers {
            let birth = Birth(worker.birth);
            let known = present
                .workers
                .get(&birth)
                .filter(|known| known.is_same_pod(worker));
            let upstream = if let Some(known) = known {
                known.set_flags(worker);
                Some(Arc::clone(known))
            } else {
                Upstream::new(worker, &self.pool_key, self.clocks.worker(birth)).map(Arc::new)
            };
            if let Some(upstream) = upstream {
                next.workers.insert(birth, upstream);
            } else {
                tracing::warn!(%birth, address = %worker.address, "worker left out: its address is not IP:port");
            }
        }
        for birth in &table.dead {
            next.workers.remove(&Birth(*birth));
            self.clocks.forget_worker(Birth(*birth));
        }
        self.topology.store(Arc::new(next));
    }

    /// Takes one ownership that arrived outside a table (Route, Placed, Found, Cancel).
    pub(crate) fn apply_owner(&self, owner: &proto::Ownership) {
        self.put(owner, false);
        self.changed.send_modify(|count| *count += 1);
    }

    fn put(&self, ownership: &proto::Ownership, anyway: bool) {
        let Ok(user) = UserId::new(&ownership.user) else {
            tracing::warn!("ownership left out: its user id breaks the bounds");
            return;
        };
        self.unconfirmed.lock().users.remove(&user);
        if ownership.birth == 0 {
            self.forget(&user);
            return;
        }
        let (resident, gone) =
            self.users
                .change(user.as_str(), |users| match users.get_key_value(user.as_str()) {
                    Some((known, ()))
                        if !anyway && !is_news(Some(known.0.epoch()), Epoch(ownership.epoch)) =>
                    {
                        (None, Vec::new())
                    }
                    Some((known, ())) => (Some(Arc::clone(&known.0)), known.0.change_owner(ownership)),
                    None => {
                        let resident = Resident::new(&user, ownership);
                        users.insert(ByUser(Arc::clone(&resident)), ());
                        (Some(resident), Vec::new())
                    }
                });
        let Some(resident) = resident else { return };
        for client in gone {
            self.clients.remove(&client, user.as_str());
        }
        for client in resident.clients() {
            self.clients.insert(client, Arc::clone(&resident));
        }
    }

    /// Binds a client id to a user at once, before the commander's next table says so.
    pub(crate) fn bind(&self, client: ClientId, user: &UserId) {
        if let Some(resident) = self.resident(user) {
            resident.change_client(client, true);
            self.clients.insert(client, resident);
        }
    }

    /// This client id is a guest's again (L5).
    pub(crate) fn release_client(&self, client: ClientId, user: &UserId) {
        if let Some(resident) = self.resident(user) {
            resident.change_client(client, false);
        }
        self.clients.remove(&client, user.as_str());
    }

    /// The user lives nowhere any more.
    pub(crate) fn forget(&self, user: &UserId) {
        let known = self
            .users
            .change(user.as_str(), |users| users.remove_entry(user.as_str()));
        for client in known.iter().flat_map(|(known, ())| known.0.clients()) {
            self.clients.remove(&client, user.as_str());
        }
    }

    fn sweep(&self, dead: &[u64]) {
        let mut swept = Vec::new();
        self.users.each(|known, ()| {
            if dead.contains(&known.0.birth().0) {
                swept.extend(known.0.id());
            }
        });
        for user in &swept {
            self.forget(user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        Table::new(Key::random().unwrap(), Arc::new(Clocks::default()))
    }

    fn owner(user: &str, birth: u64, epoch: u64, clients: &[&str]) -> proto::Ownership {
        proto::Ownership {
            user: user.to_owned(),
            birth,
            epoch,
            ticket: "ab".to_owned(),
            clients: clients.iter().map(|c| (*c).to_owned()).collect(),
        }
    }

    fn id(user: &str) -> UserId {
        UserId::new(user).unwrap()
    }

    #[test]
    fn an_older_epoch_never_replaces_a_newer_owner() {
        let table = table();
        table.apply_owner(&owner("alice", 2, 9, &[]));
        table.apply_owner(&owner("alice", 1, 8, &[]));
        assert_eq!(table.owner(&id("alice")).unwrap().birth, Birth(2));
        table.apply_owner(&owner("alice", 0, 8, &[]));
        assert!(table.owner(&id("alice")).is_none());
    }

    #[test]
    fn clients_follow_their_user_and_leave_with_him() {
        let (table, first, second) = (table(), "11".repeat(16), "22".repeat(16));
        let parsed = |text: &str| ClientId::parse(text).unwrap();
        table.apply_owner(&owner("alice", 1, 1, &[&first, &second]));
        assert_eq!(table.bound(&parsed(&first)).unwrap().id(), Some(id("alice")));
        table.apply_owner(&owner("alice", 1, 2, &[&second]));
        assert!(table.bound(&parsed(&first)).is_none());
        table.bind(parsed(&first), &id("alice"));
        assert_eq!(table.resident(&id("alice")).unwrap().clients().len(), 2);
        let dead = proto::Table {
            version: 3,
            live: true,
            dead: vec![1],
            ..proto::Table::default()
        };
        table.apply(&dead);
        assert!(table.bound(&parsed(&second)).is_none());
        assert_eq!(table.users_known(), 0);
    }

    #[test]
    fn only_a_live_table_at_least_as_new_may_say_who_is_gone() {
        let table = table();
        let mut full = proto::Table {
            version: 7,
            full: true,
            live: false,
            ..proto::Table::default()
        };
        table.apply(&full);
        assert!(!table.covers(Epoch(7)));
        full.live = true;
        table.apply(&full);
        assert!(table.covers(Epoch(7)) && !table.covers(Epoch(8)));
    }

    #[test]
    fn what_a_new_leader_has_not_named_goes_once_its_table_is_live_and_not_before() {
        let table = table();
        let worker = |birth: u64| proto::Worker {
            birth,
            address: format!("127.0.0.1:{birth}"),
            ..proto::Worker::default()
        };
        let mut full = proto::Table {
            version: 9,
            full: true,
            live: true,
            ..proto::Table::default()
        };
        full.workers = vec![worker(1), worker(2)];
        full.users = vec![owner("alice", 1, 5, &[]), owner("bob", 2, 6, &[])];
        table.apply(&full);
        let empty = proto::Table {
            version: 0,
            full: true,
            live: false,
            ..proto::Table::default()
        };
        table.apply(&empty);
        assert_eq!((table.users_known(), table.topology().workers.len()), (2, 2));
        let heard = proto::Table {
            version: 12,
            workers: vec![worker(1)],
            ..proto::Table::default()
        };
        table.apply(&heard);
        table.apply_owner(&owner("alice", 1, 5, &[]));
        assert_eq!((table.users_known(), table.topology().workers.len()), (2, 2));
        table.apply(&proto::Table {
            version: 12,
            live: true,
            ..proto::Table::default()
        });
        assert!(table.owner(&id("alice")).is_some() && table.owner(&id("bob")).is_none());
        assert_eq!(
            table.topology().workers.keys().copied().collect::<Vec<_>>(),
            [Birth(1)]
        );
        full.users = vec![owner("carol", 2, 2, &[])];
        table.apply(&full);
        assert_eq!((table.users_known(), table.topology().workers.len()), (1, 2));
    }
}
