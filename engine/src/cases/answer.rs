//! The questions of a case and what the engine says to them; never reads JSON fields of workers.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::input::{Actor, Cast, NOW, Scene};
use crate::capacity::{self, Growth, Reason, SpawnHistory};
use crate::compaction::{self, Step, Survivors};
use crate::field::{Field, FieldError};
use crate::group::Group;
use crate::ids::Birth;
use crate::ledger::Ledger;
use crate::occupancy::{Rates, Reading, history};
use crate::placement::{PlaceError, Placement, place};
use crate::share::Share;

/// What a case asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Question {
    Evaluator,
    History,
    Rates,
    Window,
    Login(Login),
    LoginThenCheck(Login),
    Request {
        user: String,
        taken_in_by: Option<String>,
    },
    CheckCapacity,
    Report,
    UntilStable,
    Drain {
        worker: String,
    },
    Fixture,
}

/// Somebody logs in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Login {
    user: String,
    currently_on: Option<String>,
    arriving_on: Option<String>,
}

type Answer = Map<String, Value>;

const EVENTS: &str = "login, request, check_capacity, login_then_check, occupancy_report, \
                      occupancy_reports_until_stable or drain";
const CATEGORIES: &str = "evaluator, history, rates, window, fixture, placement, scale_up, compaction or \
                          compaction_sequence, or the case needs an input.event";

impl Question {
    pub(super) fn read(case: &Field<'_>) -> Result<Self, FieldError> {
        let event = case.get("input").get("event");
        match event.optional() {
            Some(event) => Self::of_event(event, &case.get("input").get("workers")),
            None => Self::of_category(&case.get("category")),
        }
    }

    fn of_category(category: &Field<'_>) -> Result<Self, FieldError> {
        Ok(match category.text()? {
            "evaluator" => Self::Evaluator,
            "history" => Self::History,
            "rates" => Self::Rates,
            "window" => Self::Window,
            "fixture" => Self::Fixture,
            "placement" => Self::Login(Login::default()),
            "scale_up" => Self::CheckCapacity,
            "compaction" => Self::Report,
            "compaction_sequence" => Self::UntilStable,
            _ => return category.wrong(CATEGORIES),
        })
    }

    fn of_event(event: &Field<'_>, workers: &Field<'_>) -> Result<Self, FieldError> {
        event.object()?;
        let kind = event.get("type");
        Ok(match kind.text()? {
            "login" => Self::Login(Login::read(event, workers)?),
            "login_then_check" => Self::LoginThenCheck(Login::read(event, workers)?),
            "request" => Self::Request {
                user: user(event)?,
                taken_in_by: worker_name(&event.get("currently_on"), workers)?,
            },
            "check_capacity" => Self::CheckCapacity,
            "occupancy_report" => Self::Report,
            "occupancy_reports_until_stable" => Self::UntilStable,
            "drain" => match worker_name(&event.get("worker"), workers)? {
                Some(worker) => Self::Drain { worker },
                None => return event.get("worker").wrong("the name of a worker"),
            },
            _ => return kind.wrong(EVENTS),
        })
    }
}

impl Login {
    fn read(event: &Field<'_>, workers: &Field<'_>) -> Result<Self, FieldError> {
        Ok(Self {
            user: user(event)?,
            currently_on: worker_name(&event.get("currently_on"), workers)?,
            arriving_on: worker_name(&event.get("arriving_on"), workers)?,
        })
    }
}

fn user(event: &Field<'_>) -> Result<String, FieldError> {
    Ok(event.get("user").optional_text()?.unwrap_or_default().to_owned())
}

fn worker_name(field: &Field<'_>, workers: &Field<'_>) -> Result<Option<String>, FieldError> {
    let Some(name) = field.optional_text()? else {
        return Ok(None);
    };
    let known = workers
        .items()?
        .iter()
        .any(|worker| worker.get("name").text() == Ok(name));
    if known {
        Ok(Some(name.to_owned()))
    } else {
        field.wrong("the name of a worker, or null")
    }
}

/// Answers `question` about `scene`, `because` included.
pub(super) fn answer(question: &Question, scene: &Scene) -> Answer {
    let mut answer = match question {
        Question::Evaluator => evaluator(scene),
        Question::History => one(scene, |actor| {
            let shares = history(&actor.window, &scene.policy.limits);
            let history: Vec<f64> = shares.into_iter().map(Share::as_f64).collect();
            object(json!({"history": history, "because": "E4: per row the fullest component"}))
        }),
        Question::Rates => one(scene, |actor| {
            let Rates { rps, latency_ms } = Rates::of(&actor.window);
            let because = "E4: between the first and the last row of the window";
            object(json!({"rps": rps, "latency_ms": latency_ms, "because": because}))
        }),
        Question::Window => one(scene, window),
        Question::Login(login) => self::login(scene, login),
        Question::LoginThenCheck(login) => login_then_check(scene, login),
        Question::Request { user, taken_in_by } => request(scene, user, taken_in_by.as_deref()),
        Question::CheckCapacity => check_capacity(scene),
        Question::Report => report(scene),
        Question::UntilStable => until_stable(scene),
        Question::Drain { worker } => drain(scene, worker),
        Question::Fixture => fixture(scene),
    };
    let rejected = scene
        .cast
        .workers
        .iter()
        .filter(|actor| !actor.rejected.is_empty());
    let rejected: Answer = rejected
        .map(|actor| (actor.name.clone(), json!(actor.rejected)))
        .collect();
    if !rejected.is_empty() {
        answer.insert("rejected_readings".to_owned(), rejected.into());
    }
    answer
}

fn object(value: Value) -> Answer {
    match value {
        Value::Object(object) => object,
        _ => Answer::new(),
    }
}

fn one(scene: &Scene, ask: impl FnOnce(&Actor) -> Answer) -> Answer {
    let nobody = || object(json!({"error": "no_worker", "because": "the case has no worker"}));
    scene.cast.workers.first().map_or_else(nobody, ask)
}

fn evaluator(scene: &Scene) -> Answer {
    one(scene, |actor| {
        let policy = &scene.policy;
        let reading = Reading::of(&actor.window, policy.smoothing_rows, &policy.limits);
        let components: Answer = reading
            .components
            .present()
            .map(|(name, share)| (name.to_owned(), json!(share.as_f64())))
            .collect();
        let because = match reading.components.present().max_by_key(|(_, share)| *share) {
            Some((name, share)) => format!("E2: over {} rows {name} is the fullest at {share}", reading.rows),
            None => format!("E3: nothing measurable in {} rows", reading.rows),
        };
        let occupancy = actor.occupancy.as_f64();
        object(json!({"components": components, "occupancy": occupancy, "because": because}))
    })
}

fn window(actor: &Actor) -> Answer {
    let users: Vec<_> = actor.window.rows().map(|row| row.report.users).collect();
    object(json!({
        "rows_kept": users.len(),
        "first_users": users.first().copied().flatten(),
        "last_users": users.last().copied().flatten(),
        "because": format!("M4: the last {} rows are kept", users.len()),
    }))
}

fn name(group: &Group, birth: Birth) -> Value {
    group.name(birth).into()
}

fn placed(group: &Group, placement: Result<&Placement, &PlaceError>) -> Answer {
    match placement {
        Ok(placement) => object(json!({
            "decision": placement.verdict.code(),
            "worker": name(group, placement.worker),
            "warning": placement.warning,
        })),
        Err(PlaceError::NoRoutableWorker) => object(json!({"error": "no_routable_worker"})),
    }
}

fn because(placement: &Result<Placement, PlaceError>) -> String {
    placement.as_ref().map_or_else(
        |error| format!("P3: {error}"),
        |placement| placement.because.text.clone(),
    )
}

fn login(scene: &Scene, login: &Login) -> Answer {
    let cast = &scene.cast;
    let named = login.currently_on.as_deref().and_then(|name| cast.named(name));
    if let Some(home) = named
        .filter(|actor| cast.lives(actor))
        .or_else(|| cast.home_of(&login.user))
    {
        return object(json!({
            "worker": home.name,
            "placement_evaluated": false,
            "because": format!("P1: he lives on {}, whatever its load of {}", home.name, home.occupancy),
        }));
    }
    let at = login
        .arriving_on
        .as_deref()
        .and_then(|name| cast.named(name))
        .map(|actor| actor.birth);
    let placement = place(&cast.group, &scene.policy, at);
    let mut answer = placed(&cast.group, placement.as_ref());
    answer.insert("placement_evaluated".to_owned(), true.into());
    answer.insert("because".to_owned(), because(&placement).into());
    answer
}

fn login_then_check(scene: &Scene, login: &Login) -> Answer {
    let mut answer = self::login(scene, login);
    let growth = growth(scene, &scene.cast);
    let first = answer.get("because").and_then(Value::as_str).unwrap_or_default();
    let because = format!("{first}; then {} (G3)", growth.because);
    answer.insert("because".to_owned(), because.into());
    answer.append(&mut grown(&growth));
    answer.insert("order".to_owned(), json!(["place", "check_capacity"]));
    answer
}

fn request(scene: &Scene, user: &str, taken_in_by: Option<&str>) -> Answer {
    let cast = &scene.cast;
    let taken_in = taken_in_by
        .and_then(|name| cast.named(name))
        .filter(|actor| cast.lives(actor));
    let (worker, because) = if let Some(home) = cast.home_of(user) {
        (
            &*home.name,
            format!("P1: he lives on {}, whatever its load", home.name),
        )
    } else if let Some(home) = taken_in {
        (&*home.name, format!("P1: {} took him in and lives", home.name))
    } else if let Some(home) = cast.group.guest_home() {
        (
            &*home.name,
            format!("P1: a guest goes to the reception, {}", home.name),
        )
    } else {
        let because = "P1: nobody is routable";
        return object(json!({"error": "no_routable_worker", "because": because}));
    };
    object(json!({"worker": worker, "because": because}))
}

fn growth(scene: &Scene, cast: &Cast) -> Growth {
    capacity::growth(&cast.group, &scene.policy, &SpawnHistory::default(), NOW)
}

/// The closed list of reasons that cases know; the sentence tells the others apart.
fn reason(growth: &Growth) -> &'static str {
    match growth.reason {
        Reason::DrainCancelled => Reason::Room.code(),
        Reason::BelowMin => Reason::CannotPlace.code(),
        reason => reason.code(),
    }
}

fn grown(growth: &Growth) -> Answer {
    object(json!({"spawn": growth.spawn, "reason": reason(growth)}))
}

fn check_capacity(scene: &Scene) -> Answer {
    let growth = growth(scene, &scene.cast);
    let mut answer = grown(&growth);
    if !growth.cancel.is_empty() {
        let names: Vec<Value> = growth
            .cancel
            .iter()
            .map(|birth| name(&scene.cast.group, *birth))
            .collect();
        answer.insert("cancel_drain".to_owned(), names.into());
    }
    answer.insert("because".to_owned(), growth.because.text.into());
    answer
}

fn figures(ledger: &Ledger) -> Value {
    json!({
        "C": ledger.capacity.as_f64(),
        "O": ledger.occupied.as_f64(),
        "H": ledger.headroom.as_f64(),
        "margin": ledger.margin.as_f64(),
    })
}

fn retired(group: &Group, step: Step) -> Value {
    match step {
        Step::Drain(birth) => name(group, birth),
        Step::None | Step::CancelSpawn(_) => Value::Null,
    }
}

fn report(scene: &Scene) -> Answer {
    let group = &scene.cast.group;
    let compaction = compaction::compaction(group, &scene.policy, NOW);
    let mut answer = object(json!({
        "ledger": figures(&compaction.ledger),
        "retire": retired(group, compaction.step),
        "because": compaction.because.text,
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

fn until_stable(scene: &Scene) -> Answer {
    let mut group = scene.cast.group.clone();
    let mut order = Vec::new();
    let mut reasons = Vec::new();
    loop {
        let compaction = compaction::compaction(&group, &scene.policy, NOW);
        reasons.push(compaction.because.text);
        let birth = match compaction.step {
            Step::Drain(birth) => {
                order.push(name(&group, birth));
                birth
            }
            Step::CancelSpawn(birth) => birth,
            Step::None => {
                let (ledger, because) = (figures(&compaction.ledger), reasons.join("; "));
                return object(json!({"retire_order": order, "final_ledger": ledger, "because": because}));
            }
        };
        group.remove(birth);
    }
}

fn drain(scene: &Scene, worker: &str) -> Answer {
    let Some(drained) = scene.cast.named(worker) else {
        return Answer::new();
    };
    let open = |user: &str| -> usize {
        drained
            .busy
            .iter()
            .filter(|(name, _)| name == user)
            .map(|(_, open)| *open)
            .sum()
    };
    let order = compaction::move_order(drained.users.iter().map(|user| (user, open(user))));
    let mut survivors = Survivors::without(&scene.cast.group, &scene.policy, drained.birth, &BTreeMap::new());
    let share = drained.occupancy.divided(drained.users.len());
    let mut target = Answer::new();
    for user in &order {
        if let Some(birth) = survivors.take(share) {
            target.insert((*user).clone(), name(&scene.cast.group, birth));
        }
    }
    let because = format!("C6: idle before busy, each stands for {share}, to the least projected occupancy");
    let mut answer = object(json!({"move_order": order, "target": target, "because": because}));
    if target_missing(&answer, order.len()) {
        answer.insert("error".to_owned(), "no_routable_worker".into());
    }
    answer
}

fn target_missing(answer: &Answer, users: usize) -> bool {
    answer
        .get("target")
        .and_then(Value::as_object)
        .is_some_and(|target| target.len() < users)
}

fn fixture(scene: &Scene) -> Answer {
    let group = &scene.cast.group;
    let living = scene
        .cast
        .workers
        .iter()
        .filter(|actor| group.get(actor.birth).is_some());
    let occupancy: Answer = living
        .map(|actor| (actor.name.clone(), json!(actor.occupancy.as_f64())))
        .collect();
    let placement = place(group, &scene.policy, None);
    let growth = growth(scene, &scene.cast);
    let compaction = compaction::compaction(group, &scene.policy, NOW);
    let because = format!(
        "{}; {}; {}",
        because(&placement),
        growth.because,
        compaction.because
    );
    object(json!({
        "occupancy": occupancy,
        "placement_of_next_login": placed(group, placement.as_ref()),
        "scale_up": grown(&growth),
        "ledger": figures(&compaction.ledger),
        "retire": retired(group, compaction.step),
        "because": because,
    }))
}
