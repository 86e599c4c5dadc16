//! One user's move or join as a state machine (V1-V8, P5); sends nothing itself and reads no clock.
//!
//! The order is Hold, all gateways Held, Snapshot, Fetch and Activate, Route, Assign, Forget. The first Route is the
//! commit: before it every failure takes the user back to the source, after it the move only goes forward.

mod messages;

use std::collections::BTreeSet;
use std::time::Duration;

use crate::ids::{Birth, Epoch, GatewayId, UserId};

pub use messages::{Back, Cause, Effect, Event, Kind, Nack, Order, Outcome, Package, Timeouts};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Phase {
    Holding(BTreeSet<GatewayId>),
    Snapshotting,
    Fetching,
    Activating,
    Assigning,
    Forgetting,
    Aborting(Abort),
    Finished,
}

/// What an abort still waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Abort {
    cause: Cause,
    /// The source has to take the user back, or to drop the slice of a join.
    source: bool,
    /// The target has to drop its copy.
    target: bool,
}

/// A move under way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Move {
    /// Who.
    pub user: UserId,
    /// The move's id: the epoch that it grants.
    pub id: Epoch,
    /// The epoch of an abort: greater than `id`, granted to nobody else.
    pub back: Epoch,
    /// Where he lives, or where the slice is.
    pub source: Birth,
    /// Where he goes, or where he lives.
    pub target: Birth,
    /// Move or join.
    pub kind: Kind,
    timeouts: Timeouts,
    phase: Phase,
    until: Duration,
    deadline: Duration,
    /// The target has the complete package and did not refuse it.
    staged: bool,
    source_dead: bool,
    target_dead: bool,
}

impl Move {
    /// Starts a move: holds at every connected gateway; without any the snapshot is asked for at once.
    pub fn start(
        order: Order,
        gateways: impl IntoIterator<Item = GatewayId>,
        timeouts: Timeouts,
        now: Duration,
    ) -> (Self, Vec<Effect>) {
        let Order {
            user,
            id,
            back,
            source,
            target,
            kind,
        } = order;
        let waiting: BTreeSet<GatewayId> = gateways.into_iter().collect();
        let mut effects: Vec<Effect> = waiting.iter().copied().map(Effect::Hold).collect();
        let mut moving = Self {
            user,
            id,
            back,
            source,
            target,
            kind,
            timeouts,
            phase: Phase::Holding(waiting),
            until: now.saturating_add(timeouts.whole),
            deadline: now.saturating_add(timeouts.held),
            staged: false,
            source_dead: false,
            target_dead: false,
        };
        moving.held(now, &mut effects);
        (moving, effects)
    }

    /// When [`Event::Tick`] is due; `None` when the move is over.
    pub fn deadline(&self) -> Option<Duration> {
        (self.phase != Phase::Finished).then_some(self.deadline)
    }

    /// Whether the Route went out: the surface names the target from then on.
    pub fn is_committed(&self) -> bool {
        matches!(self.phase, Phase::Assigning | Phase::Forgetting)
    }

    /// Whether it is over.
    pub fn is_finished(&self) -> bool {
        self.phase == Phase::Finished
    }

    /// Whether a gateway that connects now has to hold the user.
    pub fn is_open(&self) -> bool {
        use Phase::{Activating, Fetching, Holding, Snapshotting};
        matches!(self.phase, Holding(_) | Snapshotting | Fetching | Activating)
    }

    /// The step it is in, for people and logs.
    pub fn step_name(&self) -> &'static str {
        match self.phase {
            Phase::Holding(_) => "holding",
            Phase::Snapshotting => "snapshotting",
            Phase::Fetching => "fetching",
            Phase::Activating => "activating",
            Phase::Assigning => "assigning",
            Phase::Forgetting => "forgetting",
            Phase::Aborting(_) => "aborting",
            Phase::Finished => "finished",
        }
    }

    fn held(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        if matches!(&self.phase, Phase::Holding(waiting) if waiting.is_empty()) {
            effects.push(Effect::Snapshot);
            self.enter(Phase::Snapshotting, self.timeouts.snapshot, now);
        }
    }

    fn enter(&mut self, phase: Phase, timeout: Duration, now: Duration) {
        self.phase = phase;
        let at = now.saturating_add(timeout);
        self.deadline = if self.is_open() && !self.source_dead {
            at.min(self.until)
        } else {
            at
        };
    }

    fn finish(&mut self, outcome: Outcome, effects: &mut Vec<Effect>) {
        self.phase = Phase::Finished;
        effects.push(Effect::Finish(outcome));
    }

    /// Takes the user back (V6): the source first, and only then the target drops its copy, which is all there is
    /// of him should the source die meanwhile.
    fn abort(&mut self, cause: Cause, now: Duration, effects: &mut Vec<Effect>) {
        let target = matches!(self.phase, Phase::Fetching | Phase::Activating) && !self.target_dead;
        let source = !self.source_dead;
        match (self.kind, &self.phase) {
            _ if self.source_dead => release(Back::Nobody, target, effects),
            (Kind::Move, Phase::Holding(_)) => {
                effects.push(Effect::Cancel(Back::Unchanged));
                return self.finish(Outcome::Aborted(cause), effects);
            }
            (Kind::Move, _) => effects.push(Effect::Thaw(self.back)),
            (Kind::Join { .. }, _) => effects.push(Effect::Forget),
        }
        self.enter(
            Phase::Aborting(Abort {
                cause,
                source,
                target,
            }),
            self.timeouts.resend,
            now,
        );
        self.end_abort(effects);
    }

    fn end_abort(&mut self, effects: &mut Vec<Effect>) {
        if let Phase::Aborting(Abort {
            cause,
            source: false,
            target: false,
        }) = self.phase
        {
            let lost = self.source_dead || matches!(self.kind, Kind::Join { .. });
            self.finish(
                if lost {
                    Outcome::Lost(cause)
                } else {
                    Outcome::Aborted(cause)
                },
                effects,
            );
        }
    }

    fn assigned(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        if self.source_dead {
            self.finish(Outcome::Moved, effects);
        } else {
            effects.push(Effect::Forget);
            self.enter(Phase::Forgetting, self.timeouts.resend, now);
        }
    }

    fn gateway(&mut self, event: &Event, now: Duration, effects: &mut Vec<Effect>) {
        // An abort is not over before the source has answered: should it die instead, the move goes on (V7).
        let open = self.is_open() || matches!(self.phase, Phase::Aborting(Abort { source: true, .. }));
        match (event, &mut self.phase) {
            (Event::GatewayJoined(gateway), Phase::Holding(waiting)) => {
                waiting.insert(*gateway);
                effects.push(Effect::Hold(*gateway));
            }
            // Whatever it forwards meanwhile, the fence refuses: it is not waited for.
            (Event::GatewayJoined(gateway), _) if open => effects.push(Effect::Hold(*gateway)),
            (Event::Held(gateway) | Event::GatewayGone(gateway), Phase::Holding(waiting)) => {
                waiting.remove(gateway);
                self.held(now, effects);
            }
            _ => {}
        }
    }

    fn source_died(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        self.source_dead = true;
        match self.phase {
            Phase::Holding(_) | Phase::Snapshotting | Phase::Fetching => {
                self.abort(Cause::SourceDead, now, effects);
            }
            // V7: the complete package is staged, so the switch goes through.
            Phase::Activating => self.enter(Phase::Activating, self.timeouts.activate, now),
            // Nobody was told that the source serves again: the staged copy, if complete, is all there is.
            Phase::Aborting(Abort {
                source: true,
                target: true,
                ..
            }) if self.staged && self.kind == Kind::Move => {
                effects.push(Effect::Activate);
                self.enter(Phase::Activating, self.timeouts.activate, now);
            }
            Phase::Aborting(Abort { source: true, .. }) => self.source_done(Back::Nobody, effects),
            Phase::Forgetting => self.finish(Outcome::Moved, effects),
            Phase::Aborting(_) | Phase::Assigning | Phase::Finished => {}
        }
    }

    fn target_died(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        self.target_dead = true;
        match self.phase {
            Phase::Holding(_) | Phase::Snapshotting | Phase::Fetching | Phase::Activating => {
                self.abort(Cause::TargetDead, now, effects);
            }
            // Committed: the user died with it (D1); the source's copy is stale and goes.
            Phase::Assigning => self.assigned(now, effects),
            Phase::Aborting(abort) => {
                self.phase = Phase::Aborting(Abort {
                    target: false,
                    ..abort
                });
                self.end_abort(effects);
            }
            Phase::Forgetting | Phase::Finished => {}
        }
    }

    fn tick(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        let resend = self.timeouts.resend;
        match self.phase {
            _ if now < self.deadline => {}
            Phase::Holding(_) => self.abort(Cause::HeldTimeout, now, effects),
            Phase::Snapshotting => self.abort(Cause::SnapshotTimeout, now, effects),
            Phase::Fetching => self.abort(Cause::FetchTimeout, now, effects),
            // All that is left of the user is at the target: it is asked again until it answers or dies.
            Phase::Activating if self.source_dead => {
                effects.push(Effect::Activate);
                self.enter(Phase::Activating, self.timeouts.activate, now);
            }
            Phase::Activating => self.abort(Cause::ActivateTimeout, now, effects),
            Phase::Assigning => {
                effects.push(Effect::Assign);
                self.enter(Phase::Assigning, resend, now);
            }
            Phase::Forgetting => {
                effects.push(Effect::Forget);
                self.enter(Phase::Forgetting, resend, now);
            }
            Phase::Aborting(abort) => {
                effects.push(match (abort.source, self.kind) {
                    (false, _) => Effect::Discard,
                    (true, Kind::Move) => Effect::Thaw(self.back),
                    (true, Kind::Join { .. }) => Effect::Forget,
                });
                self.enter(Phase::Aborting(abort), resend, now);
            }
            Phase::Finished => {}
        }
    }

    /// The source has taken the user back, dropped the slice of a join, or is dead.
    fn source_done(&mut self, back: Back, effects: &mut Vec<Effect>) {
        if let Phase::Aborting(
            abort @ Abort {
                source: true, target, ..
            },
        ) = self.phase
        {
            self.phase = Phase::Aborting(Abort {
                source: false,
                ..abort
            });
            release(back, target, effects);
            self.end_abort(effects);
        }
    }

    fn failed(&mut self, nack: Nack, now: Duration, effects: &mut Vec<Effect>) {
        match self.phase {
            // With the source gone only a refusal for good ends it: what may pass is asked again.
            Phase::Activating if self.source_dead && matches!(nack, Nack::Unreachable | Nack::Other) => {}
            Phase::Snapshotting | Phase::Fetching | Phase::Activating => {
                self.staged = false;
                self.abort(Cause::Nack(nack), now, effects);
            }
            // Commands that must succeed are sent again at the deadline.
            _ => {}
        }
    }

    fn apply(&mut self, event: Event, now: Duration, out: &mut Vec<Effect>) {
        match (event, &self.phase) {
            (event @ (Event::Held(_) | Event::GatewayJoined(_) | Event::GatewayGone(_)), _) => {
                self.gateway(&event, now, out);
            }
            (Event::Snapshotted(package), Phase::Snapshotting) => {
                // Both at once: the target turns on what it has staged without another word, and nothing else.
                out.extend([Effect::Fetch(package), Effect::Activate]);
                self.enter(Phase::Fetching, self.timeouts.fetch, now);
            }
            (Event::Fetched, Phase::Fetching) => {
                self.staged = true;
                self.enter(Phase::Activating, self.timeouts.activate, now);
            }
            // Only what was staged can be turned on.
            (Event::Activated, Phase::Fetching | Phase::Activating) => {
                self.staged = true;
                out.extend([Effect::Route, Effect::Assign]);
                self.enter(Phase::Assigning, self.timeouts.resend, now);
            }
            (Event::Assigned, Phase::Assigning) => self.assigned(now, out),
            (Event::Forgotten, Phase::Forgetting) => self.finish(Outcome::Moved, out),
            (Event::Forgotten, _) if self.kind != Kind::Move => self.source_done(Back::Nobody, out),
            (Event::Thawed, _) if self.kind == Kind::Move => self.source_done(Back::Source(self.back), out),
            (Event::Discarded, Phase::Aborting(abort @ Abort { source: false, .. })) => {
                self.phase = Phase::Aborting(Abort {
                    target: false,
                    ..*abort
                });
                self.end_abort(out);
            }
            (Event::Failed(nack), _) => self.failed(nack, now, out),
            (Event::SourceDied, _) if !self.source_dead => self.source_died(now, out),
            (Event::TargetDied, _) if !self.target_dead => self.target_died(now, out),
            // With the source gone the staged copy is all there is of him.
            (Event::Withdrawn, _) if self.is_open() && !self.source_dead => {
                self.abort(Cause::Withdrawn, now, out);
            }
            (Event::Tick, _) => self.tick(now, out),
            _ => {}
        }
    }
}

/// The held requests go; the target's copy is not needed any more.
fn release(back: Back, staged: bool, effects: &mut Vec<Effect>) {
    effects.push(Effect::Cancel(back));
    if staged {
        effects.push(Effect::Discard);
    }
}

/// One event later: the new state and what is to be done. Total; late and repeated events change nothing.
pub fn step(mut state: Move, event: Event, now: Duration) -> (Move, Vec<Effect>) {
    let mut effects = Vec::new();
    state.apply(event, now, &mut effects);
    (state, effects)
}
