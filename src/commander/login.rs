//! Logins and questions of gateways (L1-L7, P1-P7): answers at once, leaves what moves to the operations.

use std::time::Duration;

use elastic_pool_engine::ids::{Birth, ClientId, Epoch, UserId};
use elastic_pool_engine::ownership::{self, Answer, Known};
use elastic_pool_engine::placement::{self, Placement, Verdict};

use super::operation::{Kind, Operation};
use super::{Commander, LOGIN_ANSWER_LIMIT, pool};
use crate::channel::proto::{self, Assign, Found, Ownership, Placed, agent_command, found, gateway_command};
use crate::channel::server::ConnectionId;
use crate::vehicle::ObjectKey;

/// A user born on an agent is left to his gateway's Place for this long; then he is provisional (P6).
const BORN_LIMIT: Duration = Duration::from_millis(1500);

impl Commander {
    /// L2: a login's answer stands at its headers and asks where the user lives.
    pub(super) fn place(&mut self, key: &ObjectKey, connection: ConnectionId, place: &proto::Place) {
        let (Ok(user), Some(client)) = (UserId::new(&place.user), ClientId::parse(&place.client)) else {
            self.metrics.peer_refused("bad_place");
            return;
        };
        let at = Birth(place.birth);
        if !self.pools.get(key).is_some_and(|pool| pool.live) || self.recovery.is_open(key, &user) {
            return;
        }
        let resident = self
            .pools
            .get(key)
            .and_then(|pool| pool.surface.get(&user))
            .map(|resident| resident.owner);
        let (join_follows, move_follows) = match resident {
            Some(owner) if owner == at => (false, false),
            Some(owner) => (self.expect_join(key, &user, client, at, owner), true),
            None => match self.settle_newcomer(key, &user, at) {
                Some(moves) => (false, moves),
                None => return,
            },
        };
        if let Some(pool) = self.pools.get_mut(key)
            && !join_follows
        {
            pool.surface.bind(client, &user);
        }
        let ownership = self.owner_of(key, &user);
        let placed = Placed {
            request: place.request,
            user: Some(ownership),
            join_follows,
            move_follows,
        };
        self.tell_gateway(key, connection, gateway_command::Command::Placed(placed));
        self.refresh(at);
    }

    /// P2, P3, L5 for somebody who lives nowhere: he is settled where he logged in, and moved from there if he is
    /// passed (P5). Answers whether a move follows; `None` when the worker is no worker of this pool.
    fn settle_newcomer(&mut self, key: &ObjectKey, user: &UserId, at: Birth) -> Option<bool> {
        let worker = self.workers.get(&at).filter(|worker| !worker.dead)?;
        let group = self
            .groups
            .get(&worker.group)
            .filter(|group| group.spec.pool == *key)?;
        let placed = placement::place(&group.engine, &group.policy, Some(at));
        let (session_users, live) = (
            group.spec.session_users,
            group.policy.moves == elastic_pool_engine::MoveMode::Live,
        );
        self.settle_at(key, user, at);
        let Ok(Placement {
            verdict,
            worker: target,
            warning,
            because,
        }) = placed
        else {
            return Some(false);
        };
        self.metrics.decision(verdict.code(), because.code);
        if warning {
            tracing::warn!(pool = %key, %because, "a login found nobody with room");
        }
        let passes = verdict == Verdict::Pass && target != at && live && !session_users;
        if passes {
            let operation = Operation::new(key.clone(), user.clone(), at, target, Kind::Move);
            self.operations
                .await_answer(operation, None, self.now + LOGIN_ANSWER_LIMIT);
        }
        Some(passes)
    }

    /// Grants a user to the worker he is on and tells its agent.
    pub(super) fn settle_at(&mut self, key: &ObjectKey, user: &UserId, at: Birth) -> Epoch {
        let epoch = self.next_epoch();
        if let Some(pool) = self.pools.get_mut(key) {
            pool.surface.settle(user, at, epoch);
        }
        self.assign(key, user);
        self.refresh(at);
        epoch
    }

    /// Tells the owner's agent what it owns.
    pub(super) fn assign(&self, key: &ObjectKey, user: &UserId) {
        let Ownership {
            user: name,
            birth,
            epoch,
            ticket,
            clients,
        } = self.owner_of(key, user);
        if birth != 0 {
            let assign = Assign {
                user: name,
                epoch,
                ticket,
                clients,
            };
            self.tell_agent(Birth(birth), agent_command::Command::Assign(assign));
        }
    }

    pub(super) fn owner_of(&self, key: &ObjectKey, user: &UserId) -> Ownership {
        self.pools
            .get(key)
            .map_or_else(|| pool::nobody(user), |pool| self.ownership(pool, user))
    }

    /// P5: a resident logged in from another browser; his slice there is joined to him once the answer is out.
    /// Answers false where the slice cannot be joined: the browser simply is his.
    fn expect_join(
        &mut self,
        key: &ObjectKey,
        user: &UserId,
        client: ClientId,
        at: Birth,
        owner: Birth,
    ) -> bool {
        let live = |birth: Birth| self.workers.get(&birth).is_some_and(|worker| !worker.dead);
        if !live(at) || !live(owner) || !self.exchange(at, owner) {
            return false;
        }
        let operation = Operation::new(key.clone(), user.clone(), at, owner, Kind::Join { client });
        self.operations
            .await_answer(operation, Some(client), self.now + LOGIN_ANSWER_LIMIT);
        true
    }

    /// L3: the login's answer is out: what waited for that starts.
    pub(super) fn quiet(&mut self, key: &ObjectKey, quiet: &proto::Quiet) {
        let (Ok(user), Some(client)) = (UserId::new(&quiet.user), ClientId::parse(&quiet.client)) else {
            return;
        };
        self.operations.answered(key, &user, client);
        self.start_ready(key, &user);
    }

    /// L6, V8: a gateway does not know, or was refused.
    pub(super) fn look_up(&mut self, key: &ObjectKey, connection: ConnectionId, question: &proto::LookUp) {
        let Ok(user) = UserId::new(&question.user) else {
            return;
        };
        let Some(pool) = self.pools.get(key) else { return };
        let refused = Epoch(question.epoch);
        let known = Known {
            resident: pool.surface.get(&user).map(|resident| resident.epoch),
            live: pool.live,
            born: self.operations.is_born(key, &user),
            busy: self.operations.is_busy(key, &user) || self.recovery.is_open(key, &user),
        };
        let verdict = match ownership::answer(known, refused) {
            Answer::Wait => found::Verdict::Wait,
            Answer::Provisional => found::Verdict::Provisional,
            Answer::Gone => found::Verdict::Gone,
            Answer::Owned { tell_agent } => {
                if tell_agent {
                    self.assign(key, &user);
                }
                found::Verdict::Owned
            }
        };
        let found = Found {
            request: question.request,
            verdict: verdict.into(),
            user: Some(self.owner_of(key, &user)),
        };
        self.tell_gateway(key, connection, gateway_command::Command::Found(found));
    }

    /// L1, P6, P7: an agent bound a client id to a user.
    pub(super) fn user_born(&mut self, at: Birth, born: &proto::UserBorn) {
        let (Ok(user), Some(client)) = (UserId::new(&born.user), ClientId::parse(&born.client)) else {
            return;
        };
        let Some(key) = self.pool_of_worker(at) else {
            return;
        };
        let session_users = self
            .workers
            .get(&at)
            .and_then(|worker| self.groups.get(&worker.group));
        let session_users = session_users.is_some_and(|group| group.spec.session_users);
        let owner = self
            .pools
            .get(&key)
            .and_then(|pool| pool.surface.get(&user))
            .map(|resident| resident.owner);
        match owner {
            Some(owner) if owner == at => {
                if let Some(pool) = self.pools.get_mut(&key) {
                    pool.surface.bind(client, &user);
                }
                self.assign(&key, &user);
            }
            None if session_users && self.pools.get(&key).is_some_and(|pool| pool.live) => {
                self.settle_at(&key, &user, at);
                if let Some(pool) = self.pools.get_mut(&key) {
                    pool.surface.bind(client, &user);
                }
            }
            _ => self.operations.born(key, user, client, at, self.now + BORN_LIMIT),
        }
    }

    /// P6: those whose gateway never asked are granted where they are, or joined to where they live.
    pub(super) fn adopt_born(&mut self) {
        let now = self.now;
        for (key, user, client, at) in self.operations.overdue_born(now) {
            if !self.pools.get(&key).is_some_and(|pool| pool.live) || self.recovery.is_open(&key, &user) {
                self.operations.born(key, user, client, at, now + BORN_LIMIT);
                continue;
            }
            let owner = self
                .pools
                .get(&key)
                .and_then(|pool| pool.surface.get(&user))
                .map(|resident| resident.owner);
            match owner {
                Some(owner) if owner != at => {
                    let bound =
                        self.pools.get(&key).and_then(|pool| pool.surface.user_of(client)) == Some(&user);
                    let alive = self.workers.get(&at).is_some_and(|worker| !worker.dead);
                    if !bound && alive && !self.operations.expects(&key, &user, client) {
                        let operation =
                            Operation::new(key.clone(), user.clone(), at, owner, Kind::Join { client });
                        self.operations.enqueue(operation);
                        self.start_ready(&key, &user);
                    }
                    continue;
                }
                Some(_) => {}
                None => {
                    if self.workers.get(&at).is_none_or(|worker| worker.dead) {
                        continue;
                    }
                    self.metrics.decision("keep", "provisional");
                    self.settle_at(&key, &user, at);
                }
            }
            if let Some(pool) = self.pools.get_mut(&key) {
                pool.surface.bind(client, &user);
            }
        }
    }

    pub(super) fn tell_gateway(
        &self,
        key: &ObjectKey,
        connection: ConnectionId,
        command: gateway_command::Command,
    ) {
        if let Some(gateway) = self
            .pools
            .get(key)
            .and_then(|pool| pool.gateways.get(&connection))
        {
            gateway.tell(command);
        }
    }
}
