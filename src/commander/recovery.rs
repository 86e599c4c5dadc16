//! A new leader's relearning (D3): who claims whom, judged by the engine once every pod that may hold users has spoken.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use elastic_pool_engine::ids::{Birth, ClientId, Epoch, UserId};
use elastic_pool_engine::recovery::{self as judge, Heard, Late, Order, Owner};

use super::operation::{Kind, Operation, Subject};
use super::{Commander, GATEWAYS_LIMIT, RECOVERY_LIMIT};
use crate::channel::proto::{
    self, Activate, AgentHello, Discard, Forget, GatewayHello, Thaw, agent_command, claim,
};
use crate::vehicle::ObjectKey;

/// What was heard and not judged yet.
#[derive(Debug, Default)]
pub(super) struct Recovery {
    claims: HashMap<Subject, BTreeMap<Birth, judge::Claim>>,
    clients: HashMap<Subject, BTreeSet<ClientId>>,
    /// Highest ownership that a gateway's table named, and where.
    tables: HashMap<Subject, (Epoch, Birth)>,
    heard: BTreeSet<Birth>,
    /// Users in a move that the last leader may have committed: only gateways can tell, so they wait for them.
    open: BTreeSet<Subject>,
    /// By pool: workers that may hold users and have not spoken in this term.
    unheard: HashMap<ObjectKey, BTreeSet<Birth>>,
}

impl Recovery {
    /// It is not known yet where he lives.
    pub(super) fn is_open(&self, key: &ObjectKey, user: &UserId) -> bool {
        !self.open.is_empty() && self.open.contains(&(key.clone(), user.clone()))
    }

    /// Where some users of the pool live is not known yet, so that its tables do not say who is gone (L6).
    pub(super) fn is_open_in(&self, key: &ObjectKey) -> bool {
        self.open.iter().any(|(pool, _)| pool == key)
    }
}

impl Commander {
    /// What an agent holds. Before the pool is live it is kept for the judgement, later it is judged at once.
    pub(super) fn claims(&mut self, birth: Birth, hello: &AgentHello) {
        let Some(key) = self.pool_of_worker(birth) else {
            return;
        };
        self.recovery.heard.insert(birth);
        self.nothing_more_of(&key, birth);
        for claim in &hello.users {
            let Ok(user) = UserId::new(&claim.user) else {
                continue;
            };
            let subject = (key.clone(), user);
            let Some(heard) = self.checked(&subject, birth, claim) else {
                continue;
            };
            let clients = claim.clients.iter().filter_map(|client| ClientId::parse(client));
            self.recovery
                .clients
                .entry(subject.clone())
                .or_default()
                .extend(clients);
            self.recovery
                .claims
                .entry(subject)
                .or_default()
                .insert(birth, heard);
        }
        if self.pools.get(&key).is_some_and(|pool| pool.live) {
            self.judge_late(&key, birth);
        }
    }

    /// A claim without a valid ticket is provisional (design: who speaks).
    fn checked(&self, (key, user): &Subject, birth: Birth, claim: &proto::Claim) -> Option<judge::Claim> {
        let epoch = Epoch(claim.epoch);
        let uid = self.workers.get(&birth)?.pod_uid();
        let pod_key = self.pools.get(key)?.pod_key(uid)?;
        let granted =
            epoch != Epoch::PROVISIONAL && pod_key.ticket_is_valid(user.as_str(), epoch, &claim.ticket);
        let id = Epoch(claim.r#move);
        let held = match claim.state() {
            claim::State::Unknown => return None,
            claim::State::Owned if granted => judge::Held::Owned,
            claim::State::Frozen if granted => judge::Held::Frozen { id },
            claim::State::Staged => judge::Held::Staged {
                id,
                complete: claim.complete,
            },
            claim::State::Past => judge::Held::Past,
            claim::State::Provisional | claim::State::Owned | claim::State::Frozen => {
                judge::Held::Provisional
            }
        };
        let epoch = if held == judge::Held::Provisional {
            Epoch::PROVISIONAL
        } else {
            epoch
        };
        Some(judge::Claim {
            worker: birth,
            epoch,
            held,
        })
    }

    /// What a gateway's table says of users (D3): a hint where the worker itself is not heard yet.
    pub(super) fn gateway_claims(&mut self, key: &ObjectKey, hello: &GatewayHello) {
        let live = self.pools.get(key).is_some_and(|pool| pool.live);
        for ownership in &hello.users {
            let Ok(user) = UserId::new(&ownership.user) else {
                continue;
            };
            let clients = ownership
                .clients
                .iter()
                .filter_map(|client| ClientId::parse(client));
            let clients: BTreeSet<ClientId> = clients.collect();
            let seen = (Epoch(ownership.epoch), Birth(ownership.birth));
            if live && !self.recovery.is_open(key, &user) {
                self.take_late(&(key.clone(), user), seen, &clients);
                continue;
            }
            let known = self
                .recovery
                .tables
                .entry((key.clone(), user.clone()))
                .or_insert(seen);
            *known = (*known).max(seen);
            self.recovery
                .clients
                .entry((key.clone(), user))
                .or_default()
                .extend(clients);
        }
    }

    /// A table that comes when the pool is live: of whom nobody else knows lives where it says, if that worker has not
    /// spoken yet. Otherwise this gateway would be told that he is gone, while his worker is only slow to dial.
    fn take_late(&mut self, subject: &Subject, (epoch, birth): (Epoch, Birth), clients: &BTreeSet<ClientId>) {
        let (key, user) = subject;
        let pool = self.pools.get(key);
        let is_unknown = pool.is_some_and(|pool| pool.surface.get(user).is_none());
        let here = self.pool_of_worker(birth).as_ref() == Some(key);
        if !is_unknown || !here || !self.is_unheard(birth) {
            return;
        }
        self.take(subject, birth, epoch);
        if let Some(pool) = self.pools.get_mut(key) {
            for client in clients {
                pool.surface.bind(*client, user);
            }
        }
        self.refresh(birth);
    }

    /// It lives, and has not spoken in this term.
    fn is_unheard(&self, birth: Birth) -> bool {
        let lives = self.workers.get(&birth).is_some_and(|worker| !worker.dead);
        lives && !self.recovery.heard.contains(&birth)
    }

    /// The vehicle has told all it had.
    pub(super) fn synced(&mut self) {
        self.synced = true;
        self.started = self.now;
        self.dirty_groups.extend(self.groups.keys().cloned());
    }

    /// D3: a worker of an earlier term may hold users until it has spoken.
    pub(super) fn recovery_waits_for(&mut self, birth: Birth) {
        if let Some(key) = self.pool_of_worker(birth) {
            self.recovery.unheard.entry(key).or_default().insert(birth);
        }
    }

    fn nothing_more_of(&mut self, key: &ObjectKey, birth: Birth) {
        if let Some(unheard) = self.recovery.unheard.get_mut(key) {
            unheard.remove(&birth);
        }
    }

    pub(super) fn recovery_loses_worker(&mut self, birth: Birth) {
        if let Some(key) = self.pool_of_worker(birth) {
            self.nothing_more_of(&key, birth);
        }
        for claims in self.recovery.claims.values_mut() {
            claims.remove(&birth);
        }
    }

    /// L7: he left after the Hello that named him, and before anybody judged it.
    pub(super) fn recovery_loses_user(&mut self, key: &ObjectKey, user: &UserId, birth: Birth, epoch: Epoch) {
        if let Some(claims) = self.recovery.claims.get_mut(&(key.clone(), user.clone()))
            && claims.get(&birth).is_some_and(|claim| claim.epoch == epoch)
        {
            claims.remove(&birth);
            let subject = (key.clone(), user.clone());
            if self.recovery.tables.get(&subject) == Some(&(epoch, birth)) {
                self.recovery.tables.remove(&subject);
            }
        }
    }

    /// Makes pools live whose pods have all spoken, or whose time is up.
    pub(super) fn finish_recovery(&mut self) {
        if !self.synced {
            return;
        }
        self.judge_open();
        let late = self.now.saturating_sub(self.started) >= RECOVERY_LIMIT;
        let known = |key: &&ObjectKey| {
            let unheard = self.recovery.unheard.get(*key);
            late || unheard.is_none_or(BTreeSet::is_empty)
        };
        let has_keys = |key: &&ObjectKey| self.pools.get(key).is_some_and(|pool| pool.keys.is_some());
        let ready: Vec<ObjectKey> = self
            .pools
            .recovering()
            .filter(known)
            .filter(has_keys)
            .cloned()
            .collect();
        for key in ready {
            self.make_live(&key);
        }
    }

    /// Every gateway has spoken: those that live dial at once, and how many there are nobody says.
    fn gateways_heard(&self, key: &ObjectKey) -> bool {
        let since = self.now.saturating_sub(self.started);
        let any = self.pools.get(key).is_some_and(|pool| !pool.gateways.is_empty());
        since >= RECOVERY_LIMIT || (any && since >= GATEWAYS_LIMIT)
    }

    /// Users whose moves only gateways could tell about, once those have spoken.
    fn judge_open(&mut self) {
        let due: Vec<Subject> = self
            .recovery
            .open
            .iter()
            .filter(|(key, _)| self.gateways_heard(key))
            .cloned()
            .collect();
        for subject in due {
            self.judge(&subject);
        }
    }

    fn make_live(&mut self, key: &ObjectKey) {
        let mut subjects: BTreeSet<UserId> = BTreeSet::new();
        let of_pool = |(pool, _): &&Subject| pool == key;
        subjects.extend(
            self.recovery
                .claims
                .keys()
                .filter(of_pool)
                .map(|(_, user)| user.clone()),
        );
        subjects.extend(
            self.recovery
                .tables
                .keys()
                .filter(of_pool)
                .map(|(_, user)| user.clone()),
        );
        let known = subjects.len();
        for user in subjects {
            self.judge(&(key.clone(), user));
        }
        self.pools.make_live(key);
        self.recovery.unheard.remove(key);
        tracing::info!(pool = %key, users = known, "the pool is live");
        let groups = self.groups.values().filter(|group| group.spec.pool == *key);
        let groups: Vec<ObjectKey> = groups.map(|group| group.spec.key.clone()).collect();
        self.dirty_groups.extend(groups);
    }

    /// Judges one user and does what follows.
    fn judge(&mut self, subject: &Subject) {
        self.recovery.open.remove(subject);
        let spoken = self.recovery.claims.remove(subject).unwrap_or_default();
        let claims: Vec<judge::Claim> = spoken.values().copied().collect();
        let table = self.recovery.tables.remove(subject);
        let clients = self.recovery.clients.get(subject).cloned().unwrap_or_default();
        let heard = Heard {
            claims,
            gateways_saw: table.map(|(epoch, _)| epoch),
            gateways_heard: self.gateways_heard(&subject.0),
            worker_died: table.is_some_and(|(_, birth)| !self.workers.contains_key(&birth)),
        };
        // Nobody who spoke has held him since: he lives where a table says, if that worker is only silent.
        let silent = table.filter(|(epoch, birth)| {
            self.is_unheard(*birth) && heard.claims.iter().all(|claim| claim.epoch < *epoch)
        });
        if let Some((epoch, birth)) = silent {
            self.take(subject, birth, epoch);
            for claim in &heard.claims {
                if let judge::Held::Frozen { id } = claim.held {
                    self.order(subject, claim.worker, Order::Forget { id }, None);
                }
            }
        } else if heard.claims.is_empty() {
            if table.is_some() {
                self.metrics.users_lost("worker_died", 1);
            }
        } else {
            let verdict = judge::resolve(&heard);
            if verdict.owner == Owner::Unknown {
                self.recovery.claims.insert(subject.clone(), spoken);
                self.recovery
                    .tables
                    .extend(table.map(|seen| (subject.clone(), seen)));
                self.recovery.open.insert(subject.clone());
                return;
            }
            if verdict.alarm {
                tracing::error!(pool = %subject.0, user = %subject.1, "two owners were heard: the higher epoch wins");
                self.metrics.moved("two_owners");
            }
            self.enact(subject, &verdict);
        }
        self.recovery.clients.remove(subject);
        if let Some(pool) = self.pools.get_mut(&subject.0) {
            for client in clients {
                pool.surface.bind(client, &subject.1);
            }
        }
    }

    fn take(&mut self, (key, user): &Subject, birth: Birth, epoch: Epoch) {
        if let Some(pool) = self.pools.get_mut(key) {
            pool.surface.settle(user, birth, epoch);
        }
    }

    fn enact(&mut self, subject: &Subject, verdict: &judge::Verdict) {
        let mut thawed = None;
        match verdict.owner {
            Owner::Keeps(birth, epoch) | Owner::Activated(birth, epoch) => self.take(subject, birth, epoch),
            Owner::Granted(birth) => {
                let epoch = self.next_epoch();
                self.take(subject, birth, epoch);
                thawed = Some(epoch);
            }
            Owner::Nobody { lost } => {
                if let Some(pool) = self.pools.get_mut(&subject.0) {
                    pool.surface.remove(&subject.1);
                }
                if lost {
                    tracing::warn!(pool = %subject.0, user = %subject.1, "user lost: no copy of him is valid");
                    self.metrics.users_lost("leader_changed", 1);
                }
            }
            Owner::Unknown => {}
        }
        for (birth, order) in &verdict.orders {
            self.order(subject, *birth, *order, thawed);
        }
    }

    /// Orders of a judgement are idempotent; a lost one is judged again when the agent says Hello.
    fn order(&mut self, subject: &Subject, birth: Birth, order: Order, thawed: Option<Epoch>) {
        let (key, user) = subject;
        let name = user.to_string();
        let command = match order {
            Order::Thaw { id } => {
                let Some(pool) = self.pools.get(key) else { return };
                let epoch = thawed.unwrap_or_default();
                let ticket = self.ticket(pool, user, birth, epoch);
                agent_command::Command::Thaw(Thaw {
                    user: name,
                    r#move: id.0,
                    epoch: epoch.0,
                    ticket,
                })
            }
            Order::Activate { id } => {
                self.tell_agent(
                    birth,
                    agent_command::Command::Activate(Activate {
                        user: name,
                        r#move: id.0,
                        join: false,
                    }),
                );
                return self.assign(key, user);
            }
            Order::Discard { id } => agent_command::Command::Discard(Discard {
                user: name,
                r#move: id.0,
            }),
            Order::Forget { id } => agent_command::Command::Forget(Forget {
                user: name,
                r#move: id.0,
            }),
            Order::Grant => return self.assign(key, user),
            Order::Join => return self.join_slice(subject, birth),
        };
        self.tell_agent(birth, command);
    }

    fn join_slice(&mut self, subject: &Subject, at: Birth) {
        let clients = self.recovery.clients.get(subject).cloned().unwrap_or_default();
        let owner = self
            .pools
            .get(&subject.0)
            .and_then(|pool| pool.surface.get(&subject.1))
            .map(|r| r.owner);
        if let (Some(client), Some(owner)) = (clients.into_iter().next(), owner) {
            let operation = Operation::new(
                subject.0.clone(),
                subject.1.clone(),
                at,
                owner,
                Kind::Join { client },
            );
            self.operations.enqueue(operation);
            self.start_ready(&subject.0, &subject.1);
        }
    }

    /// An agent that (re)connects while the pool is live: its claims are weighed against the surface.
    fn judge_late(&mut self, key: &ObjectKey, birth: Birth) {
        let subjects: Vec<Subject> = self
            .recovery
            .claims
            .iter()
            .filter(|((pool, _), claims)| pool == key && claims.contains_key(&birth))
            .map(|(subject, _)| subject.clone())
            .collect();
        for subject in subjects {
            if self.recovery.open.contains(&subject) {
                self.judge(&subject);
                continue;
            }
            let claim = self
                .recovery
                .claims
                .remove(&subject)
                .and_then(|mut claims| claims.remove(&birth));
            let clients = self.recovery.clients.remove(&subject).unwrap_or_default();
            if let Some(claim) = claim
                && !self.operations.is_busy(&subject.0, &subject.1)
            {
                self.weigh(&subject, claim, &clients);
            }
        }
    }

    fn weigh(&mut self, subject: &Subject, claim: judge::Claim, clients: &BTreeSet<ClientId>) {
        let (key, user) = subject;
        let birth = claim.worker;
        let resident = self
            .pools
            .get(key)
            .and_then(|pool| pool.surface.get(user))
            .map(|resident| (resident.owner, resident.epoch));
        match judge::weigh(&claim, resident) {
            Late::Assign => self.assign(key, user),
            Late::Take => self.take(subject, birth, claim.epoch),
            Late::Order(order) => self.order(subject, birth, order, None),
            Late::Thaw { id } => {
                let epoch = self.next_epoch();
                self.take(subject, birth, epoch);
                self.order(subject, birth, Order::Thaw { id }, Some(epoch));
            }
            Late::Nothing => {}
            Late::Born => {
                let name = user.to_string();
                for client in clients {
                    let born = proto::UserBorn {
                        user: name.clone(),
                        client: client.to_string(),
                    };
                    self.user_born(birth, &born);
                }
            }
        }
        if resident.is_none()
            && let Some(pool) = self.pools.get_mut(key)
        {
            for client in clients {
                pool.surface.bind(*client, user);
            }
        }
        self.refresh(birth);
    }

    /// A frozen original asks what became of its move.
    pub(super) fn resolve(&mut self, birth: Birth, open: &proto::Resolve) {
        let (Ok(user), Some(key)) = (UserId::new(&open.user), self.pool_of_worker(birth)) else {
            return;
        };
        let live = self.pools.get(&key).is_some_and(|pool| pool.live);
        if !live || self.operations.is_busy(&key, &user) || self.recovery.is_open(&key, &user) {
            return;
        }
        let id = Epoch(open.r#move);
        let resident = self
            .pools
            .get(&key)
            .and_then(|pool| pool.surface.get(&user))
            .map(|resident| resident.epoch);
        let epoch = resident.unwrap_or_default();
        let claim = judge::Claim {
            worker: birth,
            epoch,
            held: judge::Held::Frozen { id },
        };
        self.weigh(&(key, user), claim, &BTreeSet::new());
    }

    /// An agent that came back in the middle of moves: resends of the state machines reach it; nothing else is owed.
    pub(super) fn agent_returned(&mut self, birth: Birth) {
        self.refresh(birth);
    }
}
