//! Carries out the engine's moves: its effects become commands, agents' and gateways' answers its events (V1-V11).

use std::collections::VecDeque;

use elastic_pool_engine::WorkerState;
use elastic_pool_engine::ids::{Birth, Epoch, GatewayId, UserId};
use elastic_pool_engine::ledger::Transit;
use elastic_pool_engine::moves::{
    self, Cause, Effect, Event, Kind, Move, Nack, Order, Outcome, Package, Timeouts,
};

use super::Commander;
use super::operation::{Active, Operation, Subject, Told};
use super::worker::Worker;
use crate::channel::proto::{self, Route, gateway_command, nack};
use crate::channel::server::ConnectionId;
use crate::net::{Protection, lacks};
use crate::vehicle::ObjectKey;

impl Commander {
    /// Starts a user's next operation, when he has none under way.
    pub(super) fn start_ready(&mut self, pool: &ObjectKey, user: &UserId) {
        let subject = (pool.clone(), user.clone());
        if self.resting || self.deposits.is_told(&subject) {
            return;
        }
        while let Some(operation) = self.operations.next(&subject) {
            if let Some(operation) = self.still_wanted(operation) {
                self.start(&subject, operation);
                return;
            }
        }
    }

    /// An operation is looked at again before it starts: the world went on while it waited (V11).
    fn still_wanted(&mut self, mut operation: Operation) -> Option<Operation> {
        let owner = self
            .pools
            .get(&operation.pool)?
            .surface
            .get(&operation.user)
            .map(|resident| resident.owner)?;
        let connected = |birth: Birth| self.workers.get(&birth).is_some_and(Worker::is_connected);
        match operation.kind {
            Kind::Move => {
                let open = self.view_of(operation.target) == Some(WorkerState::Routable);
                let wanted = owner == operation.source && open && connected(operation.source);
                (wanted && connected(operation.target)).then_some(operation)
            }
            Kind::Join { client } => {
                operation.target = owner;
                if owner == operation.source {
                    // The owner came to where the slice is: the browser is simply his.
                    if let Some(pool) = self.pools.get_mut(&operation.pool) {
                        pool.surface.bind(client, &operation.user);
                    }
                    let ownership = self.owner_of(&operation.pool, &operation.user);
                    let route = Route {
                        r#move: 0,
                        user: Some(ownership),
                    };
                    self.broadcast(&operation.pool, &gateway_command::Command::Route(route));
                    return None;
                }
                connected(operation.source).then_some(operation)
            }
        }
    }

    fn start(&mut self, subject: &Subject, operation: Operation) {
        let id = self.next_epoch();
        let back = self.next_epoch();
        let timeouts = self.timeouts(operation.source);
        let gateways: Vec<GatewayId> = self
            .pools
            .get(&operation.pool)
            .map(|pool| pool.gateways.values().map(|gateway| gateway.id).collect())
            .unwrap_or_default();
        let order = Order {
            user: operation.user.clone(),
            id,
            back,
            source: operation.source,
            target: operation.target,
            kind: operation.kind,
        };
        let (state, effects) = Move::start(order, gateways, timeouts, self.now);
        self.operations.active.insert(
            subject.clone(),
            Active {
                operation,
                state,
                since: self.now,
                step_since: self.now,
            },
        );
        self.perform(subject, effects);
    }

    fn timeouts(&self, source: Birth) -> Timeouts {
        let spec = self
            .workers
            .get(&source)
            .and_then(|worker| self.groups.get(&worker.group))
            .map(|group| &group.spec);
        let defaults = Timeouts::default();
        spec.map_or(defaults, |spec| Timeouts {
            snapshot: spec.quiesce_timeout + defaults.activate,
            whole: spec.hold_timeout.mul_f64(0.9),
            ..defaults
        })
    }

    /// One event of an open operation; what follows is done at once.
    pub(super) fn advance(&mut self, subject: &Subject, event: Event) {
        let Some(active) = self.operations.active.get_mut(subject) else {
            return;
        };
        let (state, effects) = moves::step(active.state.clone(), event, self.now);
        let before = std::mem::replace(&mut active.state, state).step_name();
        if active.state.step_name() != before {
            let took = self
                .now
                .saturating_sub(std::mem::replace(&mut active.step_since, self.now));
            self.metrics.move_step(before, took.as_secs_f64());
        }
        self.perform(subject, effects);
    }

    /// Carries out effects in their order; an effect may raise an event of its own.
    fn perform(&mut self, subject: &Subject, effects: Vec<Effect>) {
        let mut queue: VecDeque<Effect> = effects.into();
        while let Some(effect) = queue.pop_front() {
            let Some(active) = self.operations.active.get(subject) else {
                return;
            };
            let (state, operation) = (active.state.clone(), active.operation.clone());
            match effect {
                Effect::Hold(gateway) => {
                    if !self.hold(subject, &operation, state.id, gateway) {
                        let (next, more) = moves::step(state, Event::GatewayGone(gateway), self.now);
                        if let Some(active) = self.operations.active.get_mut(subject) {
                            active.state = next;
                        }
                        queue.extend(more);
                    }
                }
                Effect::Route => self.route(subject, &operation, &state),
                Effect::Cancel(back) => self.cancel(&operation, &state, back),
                Effect::Finish(outcome) => self.finish(subject, outcome),
                command => {
                    if command == Effect::Activate && lacks(Protection::Commit) {
                        self.route(subject, &operation, &state);
                    }
                    self.command(subject, &operation, &state, command);
                }
            }
        }
    }

    fn finish(&mut self, subject: &Subject, outcome: Outcome) {
        let Some(Active { operation, state, .. }) = self.operations.active.remove(subject) else {
            return;
        };
        self.operations.commands.retain(|_, (of, _)| of != subject);
        match outcome {
            Outcome::Moved => {
                self.metrics.moved(if operation.kind == Kind::Move {
                    "moved"
                } else {
                    "joined"
                });
                self.operations.clear_pause(subject);
                self.carry_load(&operation);
            }
            Outcome::Aborted(cause) => {
                self.metrics.moved(cause.code());
                tracing::info!(pool = %subject.0, source = %state.source, target = %state.target, cause = cause.code(),
                    "a move did not happen");
                self.take_back_share(&operation);
                self.operations.pause(subject, cause.code(), self.now);
            }
            Outcome::Lost(cause) => self.lost(subject, &operation, &state, cause),
        }
        self.refresh(operation.source);
        self.refresh(operation.target);
        self.start_ready(&subject.0, &subject.1);
        self.forward_deposit(subject);
        self.fill_drains();
    }

    fn lost(&mut self, (key, user): &Subject, operation: &Operation, state: &Move, cause: Cause) {
        self.metrics.moved(cause.code());
        if operation.kind != Kind::Move {
            return;
        }
        let still_there = |pool: &super::pool::PoolState| {
            pool.surface
                .get(user)
                .is_some_and(|resident| resident.owner == state.source)
        };
        if let Some(pool) = self.pools.get_mut(key).filter(|pool| still_there(pool)) {
            tracing::warn!(%user, worker = %state.source, "user lost in a move");
            pool.surface.remove(user);
            self.operations.clear_pause(&(key.clone(), user.clone()));
            self.metrics.users_lost("move", 1);
        }
    }

    /// C4: what a drain moved is not in the target's smoothed reading yet.
    fn carry_load(&mut self, operation: &Operation) {
        if let (Some(moved), Some(target)) = (operation.share, self.workers.get_mut(&operation.target)) {
            target.transit.push(Transit {
                target: operation.target,
                moved,
                rows: 0,
            });
        }
    }

    /// A gateway flagged the user of this move.
    pub(super) fn held(&mut self, key: &ObjectKey, connection: ConnectionId, held: proto::Held) {
        let Some(id) = self
            .pools
            .get(key)
            .and_then(|pool| pool.gateways.get(&connection))
            .map(|gateway| gateway.id)
        else {
            return;
        };
        if let Some(subject) = self.operations.by_move(key, Epoch(held.r#move)) {
            self.advance(&subject, Event::Held(id));
        }
    }

    pub(super) fn gateway_joined(&mut self, key: &ObjectKey, id: GatewayId) {
        self.each_operation_of(key, &Event::GatewayJoined(id));
    }

    pub(super) fn gateway_left(&mut self, key: &ObjectKey, id: GatewayId) {
        self.each_operation_of(key, &Event::GatewayGone(id));
        self.metrics.forget_gateway(id.0);
    }

    fn each_operation_of(&mut self, key: &ObjectKey, event: &Event) {
        let subjects: Vec<Subject> = self
            .operations
            .active
            .keys()
            .filter(|(pool, _)| pool == key)
            .cloned()
            .collect();
        for subject in subjects {
            self.advance(&subject, event.clone());
        }
    }

    /// An agent did what it was told.
    pub(super) fn acknowledged(&mut self, birth: Birth, ack: &proto::Ack) {
        let Some((subject, told)) = self.operations.commands.remove(&ack.id) else {
            self.deposit_taken(ack.id);
            return;
        };
        let mut weight = None;
        let event = match told {
            Told::Snapshot => {
                let package = ack.package.clone().unwrap_or_default();
                weight = Some(package.bytes);
                Event::Snapshotted(Package {
                    bytes: package.bytes,
                    sha256: package.sha256,
                    format: package.format,
                })
            }
            Told::Fetch => Event::Fetched,
            Told::Activate => Event::Activated,
            Told::Assign => Event::Assigned,
            Told::Forget => Event::Forgotten,
            Told::Discard => Event::Discarded,
            Told::Thaw => Event::Thawed,
        };
        self.advance(&subject, event);
        if let Some(bytes) = weight {
            self.learn_size(birth, bytes);
            self.fill_drains();
        }
    }

    /// An agent did not do what it was told.
    pub(super) fn refused(&mut self, birth: Birth, refusal: &proto::Nack) {
        let Some((subject, told)) = self.operations.commands.remove(&refusal.id) else {
            self.deposit_refused(refusal.id, refusal.reason());
            return;
        };
        let reason = match refusal.reason() {
            nack::Reason::Busy => Nack::Busy,
            nack::Reason::Stream => Nack::Stream,
            nack::Reason::NotHere => Nack::NotHere,
            nack::Reason::Unsupported => Nack::Unsupported,
            nack::Reason::TooLarge => Nack::TooLarge,
            nack::Reason::Corrupt => Nack::Corrupt,
            nack::Reason::Unreachable => Nack::Unreachable,
            nack::Reason::Refused => Nack::Refused,
            nack::Reason::Unknown | nack::Reason::Timeout => Nack::Other,
        };
        tracing::debug!(worker = %birth, ?told, ?reason, message = %refusal.message, "an agent refused a command");
        // The agent has no record of him: he left while his move waited, and L7 was told. Nothing is left to thaw.
        if (told, reason) == (Told::Thaw, Nack::NotHere) {
            self.advance(&subject, Event::Thawed);
            self.left(&subject, birth);
            return;
        }
        // What is not there any more needs no dropping.
        let event = match (told, reason) {
            (Told::Forget, Nack::NotHere) => Event::Forgotten,
            (Told::Discard, Nack::NotHere) => Event::Discarded,
            _ => Event::Failed(reason),
        };
        self.advance(&subject, event);
    }

    /// Timeouts of open moves, late logins, provisional users.
    pub(super) fn tick_operations(&mut self) {
        let now = self.now;
        let due = |active: &Active| active.state.deadline().is_some_and(|at| at <= now);
        let subjects: Vec<Subject> = self
            .operations
            .active
            .iter()
            .filter(|(_, active)| due(active))
            .map(|(subject, _)| subject.clone())
            .collect();
        for subject in subjects {
            self.advance(&subject, Event::Tick);
        }
        for operation in self.operations.overdue_answers(now) {
            let subject = (operation.pool.clone(), operation.user.clone());
            if operation.kind == Kind::Move {
                self.operations.pause(&subject, "late_answer", now);
            } else {
                self.operations.enqueue(operation);
                self.start_ready(&subject.0, &subject.1);
            }
        }
        self.adopt_born();
    }

    /// D1, V7: a worker died; what can be saved of its moves is saved.
    pub(super) fn operations_lose_worker(&mut self, birth: Birth) {
        self.operations.forget_worker(birth);
        let ends: Vec<(Subject, Event)> = self
            .operations
            .active
            .iter()
            .filter_map(|(subject, active)| {
                if active.state.source == birth {
                    Some((subject.clone(), Event::SourceDied))
                } else {
                    (active.state.target == birth).then(|| (subject.clone(), Event::TargetDied))
                }
            })
            .collect();
        for (subject, event) in ends {
            self.advance(&subject, event);
        }
    }

    /// Tells every gateway of a pool. One that does not take it is cut: it dials anew and gets the whole table.
    pub(super) fn broadcast(&mut self, key: &ObjectKey, command: &gateway_command::Command) {
        let deaf = self
            .pools
            .get(key)
            .map(|pool| pool.broadcast(command))
            .unwrap_or_default();
        for connection in deaf {
            self.gateways.remove(&connection);
            self.gateway_down(key, connection);
        }
    }
}
