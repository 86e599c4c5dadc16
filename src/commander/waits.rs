//! What a worker that is being emptied waits for (C7, D2), told to people: who, and how many; it empties nobody.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use elastic_pool_engine::group::{Drain, DrainKind, DrainProgress};
use elastic_pool_engine::ids::Birth;
use elastic_pool_engine::plan::Action;
use elastic_pool_engine::{MoveMode, WorkerState, WorkerView};
use serde::Serialize;

use super::Commander;
use super::group::GroupState;
use crate::api::conditions::DRAIN_WAITING;
use crate::vehicle::{ConditionView, ObjectKey};

/// A worker that is being emptied, on the monitor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DrainView {
    /// `compaction` (C2, Evacuate), `update`, or `must_go` (D2).
    pub kind: &'static str,
    /// Since so many seconds.
    pub for_seconds: u64,
    /// Users that live there.
    pub users: usize,
    /// Clients seen once, of whom a second request may come (P7).
    pub unconfirmed: u64,
    /// Forwards in flight, as its agent said last.
    pub open_requests: u64,
    /// Open WebSockets and event streams, as its agent said last.
    pub open_streams: u64,
    /// Users whose last move failed and who are left alone for a while (V6), by what it failed of.
    pub paused: BTreeMap<&'static str, usize>,
}

impl DrainView {
    /// What it waits for, by kind: a word for conditions, and how many.
    fn kinds(&self) -> Vec<(&'static str, u64)> {
        let count = |n: usize| n as u64;
        let paused = self
            .paused
            .iter()
            .map(|(cause, users)| (words(cause), count(*users)));
        let moving: usize = self.users - self.paused.values().sum::<usize>().min(self.users);
        [
            ("users to leave", count(moving)),
            ("clients seen once", self.unconfirmed),
            ("open requests", self.open_requests),
            ("open streams", self.open_streams),
        ]
        .into_iter()
        .chain(paused)
        .filter(|(_, many)| *many > 0)
        .collect()
    }
}

/// What a user's last move failed of, for people.
fn words(cause: &str) -> &'static str {
    match cause {
        "stream" => "users pinned by a stream",
        "busy" => "users with a request that outlives quiesceTimeout",
        "too_large" => "users with a package over maxPackage",
        _ => "users whose move failed",
    }
}

impl Commander {
    /// The drain of a worker; `None` while it is not emptied.
    pub(super) fn drain_view(&self, group: &GroupState, view: &WorkerView) -> Option<DrainView> {
        let WorkerState::Draining(Drain { kind, since, .. }) = view.state else {
            return None;
        };
        let worker = self.workers.get(&view.birth)?;
        let kind = match kind {
            DrainKind::Compaction => "compaction",
            DrainKind::Update => "update",
            DrainKind::MustGo => "must_go",
        };
        Some(DrainView {
            kind,
            for_seconds: self.now.saturating_sub(since).as_secs(),
            users: self.users_on(group, view.birth),
            unconfirmed: worker.unconfirmed,
            open_requests: worker.open_requests,
            open_streams: worker.open_streams,
            paused: self.paused(group, view.birth),
        })
    }

    /// Users of a worker who are left alone for now, by what their last move failed of.
    fn paused(&self, group: &GroupState, birth: Birth) -> BTreeMap<&'static str, usize> {
        let mut paused = BTreeMap::new();
        let pool = &group.spec.pool;
        let surface = self.pools.get(pool).map(|pool| &pool.surface);
        for user in surface.into_iter().flat_map(|surface| surface.of_worker(birth)) {
            let subject = (pool.clone(), user.clone());
            if let Some((_, cause)) = self.operations.paused_until(&subject, self.now) {
                *paused.entry(cause).or_default() += 1;
            }
        }
        paused
    }

    /// Drains that nothing but somebody's leaving, or the end of a pause, takes further.
    fn waiting<'a>(&'a self, group: &'a GroupState) -> impl Iterator<Item = (&'a WorkerView, DrainView)> {
        let by_waiting = group.policy.moves == MoveMode::Drain;
        let waits = move |drain: &Drain| {
            by_waiting && drain.progress == DrainProgress::Running || drain.progress == DrainProgress::Stuck
        };
        let drains = group.engine.drains().filter(move |(_, drain)| waits(drain));
        drains.filter_map(|(view, _)| Some((view, self.drain_view(group, view)?)))
    }

    /// Who waits for what: names and kinds without figures, which change all the time.
    pub(super) fn drain_waiting(&self, group: &GroupState) -> ConditionView {
        let rows: Vec<String> = self
            .waiting(group)
            .filter_map(|(view, drain)| {
                let kinds: Vec<&str> = drain.kinds().into_iter().map(|(kind, _)| kind).collect();
                (!kinds.is_empty()).then(|| format!("{} waits for {}", view.name, kinds.join(", ")))
            })
            .collect();
        let names: Vec<&str> = rows.iter().map(String::as_str).collect();
        let (reason, message) = match names.as_slice() {
            [] => ("NobodyWaits", "no worker waits for its users to leave".to_owned()),
            names => ("UsersStay", super::view::first_few(names)),
        };
        ConditionView {
            kind: DRAIN_WAITING.to_owned(),
            status: Some(!names.is_empty()),
            reason: reason.to_owned(),
            message,
        }
    }

    /// Says who waits for what with figures, once per drain and kind.
    pub(super) fn tell_waits(&mut self, key: &ObjectKey) {
        let Some(group) = self.groups.get(key) else { return };
        if group.engine.drains().next().is_none() {
            return;
        }
        let mut news = Vec::new();
        for (view, drain) in self.waiting(group) {
            let told = self.workers.get(&view.birth).map(|worker| &worker.told_waits);
            let kinds = drain.kinds();
            if kinds
                .iter()
                .any(|(kind, _)| told.is_none_or(|told| !told.contains(kind)))
            {
                news.push((view.birth, sentence(view, &drain), kinds));
            }
        }
        for (birth, text, kinds) in news {
            if let Some(worker) = self.workers.get_mut(&birth) {
                worker.told_waits.extend(kinds.into_iter().map(|(kind, _)| kind));
            }
            self.note(key, "DrainWaits", text, false);
        }
    }

    /// Why a worker that goes back to service could not be emptied, behind the engine's sentence; empty for anything else.
    pub(super) fn left_behind(&self, key: &ObjectKey, action: Action) -> String {
        let Action::CancelDrain { birth } = action else {
            return String::new();
        };
        let paused = self.groups.get(key).map(|group| self.paused(group, birth));
        let mut text = String::new();
        for (cause, users) in paused.into_iter().flatten() {
            let _ = write!(text, "; {users} {}", words(cause));
        }
        text
    }
}

fn sentence(view: &WorkerView, drain: &DrainView) -> String {
    let rule = if drain.kind == "must_go" { "D2" } else { "C7" };
    let kinds: Vec<String> = drain
        .kinds()
        .into_iter()
        .map(|(kind, many)| format!("{many} {kind}"))
        .collect();
    format!("{rule}: {} waits for {}", view.name, kinds.join(", "))
}
