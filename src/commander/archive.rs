//! Reports into windows, windows into what the engine sees of a worker (M, E); it decides nothing.

use std::time::Duration;

use elastic_pool_engine::ids::Birth;
use elastic_pool_engine::occupancy::{self, Reading};
use elastic_pool_engine::report::Report;
use elastic_pool_engine::window::Row;
use elastic_pool_engine::{WorkerState, WorkerView};

use super::Commander;
use crate::channel::proto;
use crate::vehicle::ObjectKey;

impl Commander {
    /// Takes one report (M2, M3, M4) and has its group decided anew (G1, C2).
    pub(super) fn report(&mut self, birth: Birth, incarnation: &str, message: &proto::Report) {
        let now = self.now;
        let Some(worker) = self.workers.get_mut(&birth) else {
            return;
        };
        let Some(group) = self.groups.get(&worker.group) else {
            return;
        };
        let (report, rejected) = Report::from(message).sanitised();
        for field in &rejected {
            self.metrics.report_rejected(field);
        }
        let row = Row {
            at: now,
            report,
            forward: worker.forwards.total(),
        };
        if let Err(dropped) = worker.window.accept(incarnation, message.sequence, row) {
            self.metrics.report_dropped(dropped.code());
            return;
        }
        self.metrics.report_accepted();
        worker.heard = now;
        if worker.rejected != rejected {
            worker.rejected = rejected;
            self.outlet.mark(&worker.group);
        }
        worker.rows += 1;
        worker.open_requests = message.open_requests;
        worker.unconfirmed = message.unconfirmed;
        worker.open_streams = message.open_streams;
        worker.guests_idle = message
            .guest_idle_ms
            .map(|idle| (now, Duration::from_millis(idle)));
        worker.empty = message.empty && message.unconfirmed == 0;
        for moved in &mut worker.transit {
            moved.rows += 1;
        }
        let rows = group.policy.smoothing_rows;
        worker.transit.retain(|moved| moved.rows < rows);
        worker.reading = Reading::of(&worker.window, rows, &group.policy.limits);
        if message.terminating {
            self.told_to_stop(birth);
        }
        self.refresh(birth);
    }

    /// Writes what is known of a worker into its group's index.
    pub(super) fn refresh(&mut self, birth: Birth) {
        let Some(worker) = self.workers.get_mut(&birth) else {
            return;
        };
        let Some(group) = self.groups.get_mut(&worker.group) else {
            return;
        };
        let users = self
            .pools
            .get(&group.spec.pool)
            .map_or(0, |pool| pool.surface.count(birth));
        if users > 0
            && !std::mem::replace(&mut worker.inhabited, true)
            && let Some(asked) = worker.asked_at
        {
            self.metrics
                .grew("first_user", self.now.saturating_sub(asked).as_secs_f64());
        }
        let rows = group.policy.smoothing_rows;
        let last = worker.window.last_at();
        let stale_from = occupancy::stale_from(last, group.policy.interval);
        let silent = stale_from.is_some_and(|at| at <= self.now);
        // Start-up load is a newborn's: one that an earlier leader knew counts with what it measures (G1, E5).
        let born_here = worker.birth.term() == self.term;
        let room_until = worker
            .routable_since
            .map(|since| since + group.policy.smoothing_window())
            .filter(|_| born_here && worker.rows < rows);
        let warm = born_here || worker.rows >= rows;
        // One that an earlier leader knew and this one has not heard yet has reported before (E5).
        let unheard = !born_here && !worker.announced;
        let stale = silent || unheard || worker.reading.is_unmeasured(users > 0);
        let outdated = worker.fact.as_ref().is_some_and(|fact| group.spec.outdates(fact));
        let name = worker.name();
        let seen =
            |view: &WorkerView| view.stale == stale && view.outdated == outdated && *view.name == *name;
        if !group.engine.get(birth).is_some_and(seen) {
            self.outlet.mark(&worker.group);
        }
        group.engine.update(birth, |view| {
            if *view.name != *name {
                view.name = name.as_str().into();
            }
            view.occupancy = worker.reading.occupancy;
            view.stale = stale;
            view.stale_from = stale_from;
            view.warm = warm;
            view.room_until = room_until;
            view.users = users;
            view.transit = worker.transit_left(rows);
            view.outdated = outdated;
        });
        let key = &worker.group;
        if !self.dirty_groups.contains(key) {
            self.dirty_groups.insert(key.clone());
        }
    }

    /// E5: silence is seen without a report.
    pub(super) fn expire_reports(&mut self) {
        let now = self.now;
        for (key, group) in &mut self.groups {
            if !group.engine.expire(now).is_empty() {
                self.dirty_groups.insert(key.clone());
                self.outlet.mark(key);
            }
        }
    }

    /// Reads every window of a group anew: what is full, or how many rows count, has changed (E1, E2).
    pub(super) fn reread(&mut self, key: &ObjectKey) {
        let Some(group) = self.groups.get(key) else { return };
        let (rows, limits) = (group.policy.smoothing_rows, group.policy.limits);
        let births: Vec<Birth> = group.engine.workers().map(|view| view.birth).collect();
        for birth in births {
            if let Some(worker) = self.workers.get_mut(&birth) {
                worker.reading = Reading::of(&worker.window, rows, &limits);
                worker.transit.retain(|moved| moved.rows < rows);
            }
            self.refresh(birth);
        }
    }

    /// The worker's state in its group.
    pub(super) fn view_of(&self, birth: Birth) -> Option<WorkerState> {
        let worker = self.workers.get(&birth)?;
        self.groups
            .get(&worker.group)?
            .engine
            .get(birth)
            .map(|view| view.state)
    }
}
