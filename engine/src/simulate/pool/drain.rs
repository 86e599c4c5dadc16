//! Emptying a worker in the simulation: as the commander does it, by the engine's order and targets (C4, C6); it chooses no victim.

use std::collections::{BTreeMap, BTreeSet};

use super::{Event, Pool};
use crate::compaction::{Survivors, move_order};
use crate::group::{Drain, DrainKind, DrainProgress, WorkerState, WorkerView};
use crate::ids::Birth;
use crate::ledger::Transit;
use crate::share::Share;
use crate::thresholds::MoveMode;

/// A drain's arithmetic (C6).
#[derive(Clone, Debug)]
pub(super) struct Leaving {
    added: BTreeMap<Birth, Share>,
    share: Share,
    pub(super) moving: BTreeSet<usize>,
}

impl Pool<'_> {
    pub(super) fn drain(&mut self, birth: Birth) -> bool {
        let Some(share) = self.group.get(birth).map(WorkerView::share_per_user) else {
            return false;
        };
        let state = WorkerState::Draining(Drain {
            kind: DrainKind::Compaction,
            since: self.now,
            progress: DrainProgress::Running,
        });
        self.group.update(birth, |view| view.state = state);
        if let Some(worker) = self.workers.get_mut(&birth) {
            worker.drain = Some(Leaving {
                added: BTreeMap::new(),
                share,
                moving: BTreeSet::new(),
            });
        }
        self.fill(birth);
        true
    }

    pub(super) fn cancel_drain(&mut self, birth: Birth) -> bool {
        if let Some(worker) = self.workers.get_mut(&birth) {
            worker.drain = None;
        }
        self.group
            .update(birth, |view| view.state = WorkerState::Routable)
    }

    /// Starts moves of a draining worker up to the parallelism, the idle first (C6).
    fn fill(&mut self, birth: Birth) {
        let Some(worker) = self.workers.get(&birth) else {
            return;
        };
        let Some(drain) = worker
            .drain
            .as_ref()
            .filter(|_| self.policy.moves == MoveMode::Live)
        else {
            return;
        };
        let room = self.settings.parallelism.saturating_sub(drain.moving.len());
        let waiting = worker.users.iter().filter(|user| !drain.moving.contains(user));
        let busy = |user: &usize| usize::from(self.residents[*user].load > Share::ZERO);
        let next = move_order(waiting.map(|user| (*user, busy(user))));
        for user in next.into_iter().take(room) {
            self.start_move(user, birth);
        }
    }

    fn start_move(&mut self, user: usize, from: Birth) {
        let Some(drain) = self
            .workers
            .get_mut(&from)
            .and_then(|worker| worker.drain.as_mut())
        else {
            return;
        };
        let share = drain.share;
        let Some(to) = Survivors::without(&self.group, self.policy, from, &drain.added).take(share) else {
            return;
        };
        *drain.added.entry(to).or_default() += share;
        drain.moving.insert(user);
        if let Some(target) = self.workers.get_mut(&to) {
            target.arriving += 1;
        }
        self.agenda.add(
            self.now + self.settings.move_time,
            Event::Moved {
                user,
                from,
                to,
                share,
            },
        );
    }

    /// V5, unless he left meanwhile; C4 counts his part at the target until its readings show it.
    pub(super) fn moved(&mut self, user: usize, from: Birth, to: Birth, share: Share) {
        let resident = self.residents[user];
        let stays = resident.home == Some(from);
        if let Some(source) = self.workers.get_mut(&from) {
            if let Some(drain) = &mut source.drain
                && drain.moving.remove(&user)
                && !stays
            {
                *drain.added.entry(to).or_default() -= share;
            }
            if stays {
                source.users.remove(&user);
                source.meter.leave(resident.load, self.now);
            }
        }
        if let Some(target) = self.workers.get_mut(&to) {
            target.arriving -= 1;
            if stays {
                target.transit.push(Transit {
                    target: to,
                    moved: share,
                    rows: 0,
                });
            }
        }
        if stays {
            self.put(user, to);
            self.served.moves += 1;
            self.count_move();
        }
        self.refresh(from);
        self.refresh(to);
        self.fill(from);
    }
}
