//! Who is emptied and where his users go (C2, C5-C8); never moves anybody and never takes the reception.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use crate::Because;
use crate::capacity;
use crate::group::{Group, WorkerView};
use crate::ids::Birth;
use crate::ledger::Ledger;
use crate::share::Share;
use crate::thresholds::{MoveMode, Policy};

/// What the ledger asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    None,
    /// Cancel this spawn: it is not needed any more (C2).
    CancelSpawn(Birth),
    /// Empty this worker, then retire it.
    Drain(Birth),
}

/// One decision on one report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compaction {
    /// What to do.
    pub step: Step,
    /// The figures it stands on.
    pub ledger: Ledger,
    /// Why, in a sentence.
    pub because: Because,
}

/// Reads the ledger once (C2, C8).
pub fn compaction(group: &Group, policy: &Policy, now: Duration) -> Compaction {
    let ledger = Ledger::of(group, policy);
    let (step, because) = match decide(group, policy, &ledger, now) {
        Ok((step, code, text)) => (step, Because::new(code, text)),
        Err((code, text)) => (Step::None, Because::new(code, text)),
    };
    Compaction {
        step,
        ledger,
        because,
    }
}

type Refusal = (&'static str, String);

fn decide(
    group: &Group,
    policy: &Policy,
    ledger: &Ledger,
    now: Duration,
) -> Result<(Step, &'static str, String), Refusal> {
    let spawns = group.in_flight(policy.spawn_timeout, now).count();
    let staying = ledger.workers + spawns;
    let above_max = policy.max.is_some_and(|max| staying > max);
    if !above_max && !ledger.is_above_margin() {
        return Err(("within_margin", format!("C2: {ledger}: nobody goes")));
    }
    known(group)?;
    if let Some(spawn) = group.in_flight(policy.spawn_timeout, now).next_back() {
        let unneeded = above_max || (staying > policy.min && capacity::has_room(group, policy, now).is_ok());
        return if unneeded {
            let text = format!("C2: {ledger}: the spawn of {} is not needed any more", spawn.name);
            Ok((Step::CancelSpawn(spawn.birth), "spawn_cancelled", text))
        } else {
            Err(("spawn_in_flight", format!("C2: {} is on its way", spawn.name)))
        };
    }
    if ledger.workers <= policy.min {
        return Err((
            "min_workers",
            format!("C2: {} workers, min is {}", ledger.workers, policy.min),
        ));
    }
    if let Some((drained, _)) = group
        .drains()
        .find(|_| policy.moves == MoveMode::Live || above_max)
    {
        return Err(("drain_running", format!("C2: {} is being drained", drained.name)));
    }
    let victim = victim(group, now).ok_or_else(|| {
        (
            "no_victim",
            "C7: nobody but the reception can be emptied now".to_owned(),
        )
    })?;
    let text = if above_max {
        projected_below_one(group, policy, victim)?;
        format!(
            "C8: {staying} workers are more than max; {} at {} goes",
            victim.name, victim.occupancy
        )
    } else {
        places_well_without(group, policy, victim)?;
        format!(
            "C2: {ledger}: {} at {} is the least occupied",
            victim.name, victim.occupancy
        )
    };
    Ok((
        Step::Drain(victim.birth),
        if above_max { "above_max" } else { "above_margin" },
        text,
    ))
}

/// E5: nothing of a group is compacted on unknown figures.
fn known(group: &Group) -> Result<(), Refusal> {
    if let Some(stale) = group.stale().next() {
        return Err((
            "stale",
            format!("E5: {} is stale: nobody goes", group.name(stale)),
        ));
    }
    match group.cold_count() {
        0 => Ok(()),
        n => Err((
            "warming_up",
            format!("E5: {n} workers have not filled a smoothing window: nobody goes"),
        )),
    }
}

/// The least occupied that is not the reception and not passed over; ties go to the oldest (C2, C7).
pub(crate) fn victim(group: &Group, now: Duration) -> Option<&WorkerView> {
    let reception = group.reception()?.birth;
    let free = |worker: &&WorkerView| {
        worker.birth != reception && worker.passed_over_until.is_none_or(|until| until <= now)
    };
    group.fresh().find(free)
}

/// The clause in bold of C2: with the victim's load placed as in C6, G1 would not ask for a worker.
fn places_well_without(group: &Group, policy: &Policy, victim: &WorkerView) -> Result<(), Refusal> {
    let refusal = || {
        let text = format!(
            "C2: without {} at {} the group could not place well",
            victim.name, victim.occupancy
        );
        ("would_grow_again", text)
    };
    // Loads only rise by the projection: where nobody has room already, it is spared.
    if group.placeable_count() > 2 {
        let reception = group.reception().map(|worker| worker.birth);
        let other = |worker: &&WorkerView| worker.birth != victim.birth && Some(worker.birth) != reception;
        group
            .fresh()
            .find(other)
            .filter(|worker| worker.occupancy < policy.admission)
            .ok_or_else(refusal)?;
    }
    let mut survivors = Survivors::without(group, policy, victim.birth, &in_transit(group));
    survivors.take_all(victim);
    survivors.place_well().then_some(()).ok_or_else(refusal)
}

/// C8's bound: not while a survivor's projection would exceed 1.0.
fn projected_below_one(group: &Group, policy: &Policy, victim: &WorkerView) -> Result<(), Refusal> {
    let mut survivors = Survivors::without(group, policy, victim.birth, &in_transit(group));
    survivors.take_all(victim);
    let highest = survivors.highest();
    if highest.exceeds(Share::ONE) {
        let text = format!("C8: without {} a worker would be at {highest}", victim.name);
        return Err(("above_max_full", text));
    }
    Ok(())
}

/// Load of an earlier drain that the readings do not show yet (C4) counts in a projection.
fn in_transit(group: &Group) -> BTreeMap<Birth, Share> {
    if group.load().1 == Share::ZERO {
        return BTreeMap::new();
    }
    let moved = group.placeable().filter(|worker| worker.transit > Share::ZERO);
    moved.map(|worker| (worker.birth, worker.transit)).collect()
}

/// The workers that take over, with their projected occupancies (C6).
#[derive(Clone, Debug)]
pub struct Survivors {
    below: BinaryHeap<Reverse<(Share, Birth)>>,
    full: BinaryHeap<Reverse<(Share, Birth)>>,
    reception: Option<Birth>,
    reception_threshold: Share,
    admission_threshold: Share,
}

impl Survivors {
    /// The placeable workers but `drained`, the known ones if there are any, each with what was `added` to it so far.
    pub fn without(group: &Group, policy: &Policy, drained: Birth, added: &BTreeMap<Birth, Share>) -> Self {
        let others = || group.placeable().filter(|worker| worker.birth != drained);
        let mut survivors = Self {
            below: BinaryHeap::new(),
            full: BinaryHeap::new(),
            reception: others().next().map(|worker| worker.birth),
            reception_threshold: policy.reception,
            admission_threshold: policy.admission,
        };
        let any_known = others().any(|worker| !worker.stale);
        for worker in others().filter(|worker| !(any_known && worker.stale)) {
            let more = added.get(&worker.birth).copied().unwrap_or_default();
            survivors.put(worker.occupancy + more, worker.birth);
        }
        survivors
    }

    fn put(&mut self, load: Share, birth: Birth) {
        let is_reception = self.reception == Some(birth);
        let threshold = if is_reception {
            self.reception_threshold
        } else {
            self.admission_threshold
        };
        let heap = if load < threshold {
            &mut self.below
        } else {
            &mut self.full
        };
        heap.push(Reverse((load, birth)));
    }

    /// Takes one user who stands for `share`: the lowest below its own threshold, else the lowest; ties to the oldest.
    pub fn take(&mut self, share: Share) -> Option<Birth> {
        let Reverse((load, birth)) = self.below.pop().or_else(|| self.full.pop())?;
        self.put(load + share, birth);
        Some(birth)
    }

    /// Takes all users of `drained` one by one; its load in one piece when it names none.
    fn take_all(&mut self, drained: &WorkerView) {
        if drained.occupancy == Share::ZERO {
            return;
        }
        let share = drained.share_per_user();
        for _ in 0..drained.users.max(1) {
            self.take(share);
        }
    }

    /// G1 on the projected figures, start-up grace aside.
    fn place_well(&self) -> bool {
        let alone = self.below.len() + self.full.len() == 1;
        self.below
            .iter()
            .any(|Reverse((_, birth))| alone || self.reception != Some(*birth))
    }

    fn highest(&self) -> Share {
        self.below
            .iter()
            .chain(&self.full)
            .map(|Reverse((load, _))| *load)
            .max()
            .unwrap_or_default()
    }
}

/// The order in which users leave: the idle first, then the busy, each in the order given (C6).
pub fn move_order<U>(users: impl IntoIterator<Item = (U, usize)>) -> Vec<U> {
    let (idle, busy): (Vec<_>, Vec<_>) = users
        .into_iter()
        .partition(|(_, open_requests)| *open_requests == 0);
    idle.into_iter().chain(busy).map(|(user, _)| user).collect()
}
