//! Answers about how many workers a group has: growth, the ledger and compaction (G, C).

use serde_json::{Value, json};

use super::answer::{Answer, name, object};
use super::input::{Cast, NOW, Scene};
use crate::capacity::{self, Growth, Reason, SpawnHistory};
use crate::compaction::{self, Step};
use crate::group::Group;
use crate::ids::Birth;
use crate::ledger::Ledger;
use crate::update;

pub(super) fn growth(scene: &Scene, cast: &Cast) -> Growth {
    capacity::growth(&cast.group, &scene.policy, &SpawnHistory::default(), NOW)
}

/// The fields that growth is told by.
pub(super) fn grown(growth: &Growth) -> Answer {
    object(json!({"spawn": growth.spawn, "reason": reason(growth)}))
}

/// The closed list of reasons that cases know; the sentence tells the others apart.
fn reason(growth: &Growth) -> &'static str {
    match growth.reason {
        Reason::DrainCancelled => Reason::Room.code(),
        Reason::BelowMin => Reason::CannotPlace.code(),
        reason => reason.code(),
    }
}

pub(super) fn check_capacity(scene: &Scene) -> Answer {
    let growth = growth(scene, &scene.cast);
    let mut answer = grown(&growth);
    if !growth.cancel.is_empty() {
        let names = |birth: &Birth| name(&scene.cast.group, *birth);
        let names: Vec<Value> = growth.cancel.iter().map(names).collect();
        answer.insert("cancel_drain".to_owned(), names.into());
    }
    answer.insert("because".to_owned(), growth.because.to_string().into());
    answer
}

/// The figures of the ledger, by their letters.
pub(super) fn figures(ledger: &Ledger) -> Value {
    json!({
        "C": ledger.capacity.as_f64(),
        "O": ledger.occupied.as_f64(),
        "H": ledger.headroom.as_f64(),
        "margin": ledger.margin.as_f64(),
    })
}

/// The name of who goes, or null.
pub(super) fn retired(group: &Group, step: Step) -> Value {
    match step {
        Step::Drain(birth) => name(group, birth),
        Step::None | Step::CancelSpawn(_) => Value::Null,
    }
}

/// Who of an older template is replaced, or made for that; growth and C8 aside.
pub(super) fn update(scene: &Scene) -> Answer {
    let group = &scene.cast.group;
    let Some(update) = update::update(group, &scene.policy, &SpawnHistory::default(), NOW) else {
        let because = "D2: nobody of an older template is to be replaced";
        return object(json!({"spawn": 0, "replace": null, "reason": "nothing", "because": because}));
    };
    let (spawn, replace) = match update.step {
        update::Step::None => (0, Value::Null),
        update::Step::Spawn => (1, Value::Null),
        update::Step::Replace(birth) => (0, name(group, birth)),
    };
    object(json!({
        "spawn": spawn,
        "replace": replace,
        "reason": update.because.code,
        "because": update.because.to_string(),
    }))
}

pub(super) fn report(scene: &Scene) -> Answer {
    let group = &scene.cast.group;
    let compaction = compaction::compaction(group, &scene.policy, NOW);
    let mut answer = object(json!({
        "ledger": figures(&compaction.ledger),
        "retire": retired(group, compaction.step),
        "because": compaction.because.to_string(),
    }));
    if let Step::CancelSpawn(birth) = compaction.step {
        answer.insert("cancel_spawn".to_owned(), name(group, birth));
    }
    if let Some(after) = &scene.after {
        answer.insert("after".to_owned(), after_moves(scene, after));
    }
    answer
}

fn after_moves(scene: &Scene, cast: &Cast) -> Value {
    let compaction = compaction::compaction(&cast.group, &scene.policy, NOW);
    json!({
        "H": compaction.ledger.headroom.as_f64(),
        "H_over": (scene.policy.margin - scene.policy.admission).as_f64(),
        "spawn": growth(scene, cast).spawn,
        "retire": retired(&cast.group, compaction.step),
    })
}

pub(super) fn until_stable(scene: &Scene) -> Answer {
    let mut group = scene.cast.group.clone();
    let mut order = Vec::new();
    let mut reasons = Vec::new();
    loop {
        let compaction = compaction::compaction(&group, &scene.policy, NOW);
        reasons.push(compaction.because.to_string());
        let birth = match compaction.step {
            Step::Drain(birth) => {
                order.push(name(&group, birth));
                birth
            }
            Step::CancelSpawn(birth) => birth,
            Step::None => {
                let (ledger, because) = (figures(&compaction.ledger), reasons.join("; then "));
                return object(json!({"retire_order": order, "final_ledger": ledger, "because": because}));
            }
        };
        group.remove(birth);
    }
}
