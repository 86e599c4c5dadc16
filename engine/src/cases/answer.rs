//! Puts a case's question to the engine; how each kind is answered stands in `measured`, `placed` and `sized`.

use serde_json::{Map, Value, json};

use super::input::{Actor, Scene};
use super::question::{Login, Question};
use super::{measured, placed, sized};
use crate::compaction;
use crate::group::Group;
use crate::ids::Birth;
use crate::placement::place;

/// The fields of an answer.
pub(super) type Answer = Map<String, Value>;

/// Answers `question` about `scene`, `because` included.
pub(super) fn answer(question: &Question, scene: &Scene) -> Answer {
    let mut answer = match question {
        Question::Evaluator => of_first(scene, |worker| measured::evaluator(scene, worker)),
        Question::History => of_first(scene, |worker| measured::history_of(scene, worker)),
        Question::Rates => of_first(scene, measured::rates),
        Question::Window => of_first(scene, |worker| measured::window(scene, worker)),
        Question::Login(login) => placed::login(scene, login),
        Question::LoginThenCheck(login) => login_then_check(scene, login),
        Question::Request(request) => placed::request(scene, request),
        Question::CheckCapacity => sized::check_capacity(scene),
        Question::Report => sized::report(scene),
        Question::Update => sized::update(scene),
        Question::UntilStable => sized::until_stable(scene),
        Question::Drain { worker } => scene
            .cast
            .named(worker)
            .map_or_else(nobody, |worker| placed::drain(scene, worker)),
        Question::Fixture => fixture(scene),
    };
    tell_what_was_left_out(scene, &mut answer);
    answer
}

/// Readings that M2 made absent, and fields that this build does not know.
fn tell_what_was_left_out(scene: &Scene, answer: &mut Answer) {
    let refused = scene
        .cast
        .workers
        .iter()
        .filter(|worker| !worker.rejected.is_empty());
    let refused: Answer = refused
        .map(|worker| (worker.name.clone(), json!(worker.rejected)))
        .collect();
    if !refused.is_empty() {
        answer.insert("rejected_readings".to_owned(), refused.into());
    }
    if !scene.ignored.is_empty() {
        answer.insert("ignored_fields".to_owned(), json!(scene.ignored));
    }
}

pub(super) fn object(value: Value) -> Answer {
    match value {
        Value::Object(object) => object,
        _ => Answer::new(),
    }
}

pub(super) fn name(group: &Group, birth: Birth) -> Value {
    group.name(birth).into()
}

fn nobody() -> Answer {
    object(json!({"error": "no_worker", "because": "the case has no worker to answer about"}))
}

fn of_first(scene: &Scene, ask: impl FnOnce(&Actor) -> Answer) -> Answer {
    scene.cast.workers.first().map_or_else(nobody, ask)
}

fn login_then_check(scene: &Scene, login: &Login) -> Answer {
    let mut answer = placed::login(scene, login);
    let growth = sized::growth(scene, &scene.cast);
    let first = answer.get("because").and_then(Value::as_str).unwrap_or_default();
    let because = format!("{first}; only then is growth asked (G3), {}", growth.because);
    answer.insert("because".to_owned(), because.into());
    answer.append(&mut sized::grown(&growth));
    answer.insert("order".to_owned(), json!(["place", "check_capacity"]));
    answer
}

fn fixture(scene: &Scene) -> Answer {
    let group = &scene.cast.group;
    let living = scene
        .cast
        .workers
        .iter()
        .filter(|worker| group.get(worker.birth).is_some());
    let occupancy: Answer = living
        .map(|worker| (worker.name.clone(), json!(worker.occupancy.as_f64())))
        .collect();
    let placement = place(group, &scene.policy, None);
    let growth = sized::growth(scene, &scene.cast);
    let compaction = compaction::compaction(group, &scene.policy, super::input::NOW);
    let because = format!(
        "{}; {}; {}",
        placed::because(&placement),
        growth.because,
        compaction.because
    );
    object(json!({
        "occupancy": occupancy,
        "placement_of_next_login": placed::placed(group, placement.as_ref()),
        "scale_up": sized::grown(&growth),
        "ledger": sized::figures(&compaction.ledger),
        "retire": sized::retired(group, compaction.step),
        "because": because,
    }))
}
