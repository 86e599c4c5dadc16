//! Reports into windows, windows into what the engine sees of a worker (M, E); it decides nothing.

use elastic_pool_engine::WorkerState;
use elastic_pool_engine::ids::Birth;
use elastic_pool_engine::occupancy::{self, Reading};
use elastic_pool_engine::report::Report;
use elastic_pool_engine::window::Row;

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
        worker.rejected = rejected;
        worker.rows += 1;
        worker.open_requests = message.open_requests;
        worker.unconfirmed = message.unconfirmed;
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

    /// Applies changed limits and thresholds to the rows that are there (E1, E2): they do not wait for the next report.
    pub(super) fn read_again(&mut self, key: &ObjectKey) {
        let Some(group) = self.groups.get(key) else {
            return;
        };
        let (rows, limits) = (group.policy.smoothing_rows, group.policy.limits);
        let births: Vec<Birth> = group.engine.workers().map(|view| view.birth).collect();
        for birth in births {
            if let Some(worker) = self.workers.get_mut(&birth) {
                worker.reading = Reading::of(&worker.window, rows, &limits);
            }
            self.refresh(birth);
        }
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
        let room_until = worker
            .routable_since
            .map(|since| since + group.policy.smoothing_window())
            .filter(|_| worker.rows < rows);
        let warm = worker.birth.term() == self.term || worker.rows >= rows;
        group.engine.update(birth, |view| {
            view.name = worker.name().into();
            view.occupancy = worker.reading.occupancy;
            view.stale = silent || worker.reading.is_unmeasured(users > 0);
            view.stale_from = stale_from;
            view.warm = warm;
            view.room_until = room_until;
            view.users = users;
            view.transit = worker.transit_left(rows);
        });
        self.dirty_groups.insert(worker.group.clone());
    }

    /// E5: silence is seen without a report.
    pub(super) fn expire_reports(&mut self) {
        let now = self.now;
        for (key, group) in &mut self.groups {
            if !group.engine.expire(now).is_empty() {
                self.dirty_groups.insert(key.clone());
            }
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
