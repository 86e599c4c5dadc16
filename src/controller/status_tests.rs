use super::*;
use crate::vehicle::DecisionNote;

const AT: &str = "2026-01-02T03:04:05Z";

fn view() -> GroupView {
    GroupView {
        workers: 3,
        ready_workers: 2,
        desired_workers: 3,
        users: 40,
        reception: "blue-aaaaa".to_owned(),
        capacity_points: 210,
        occupied_points: 100,
        headroom_points: 110,
        conditions: vec![
            condition("Ready", Some(true), "Serving", "2 of 3 workers serve"),
            condition("Progressing", Some(true), "Spawning", "one worker starts"),
        ],
        ..GroupView::default()
    }
}

fn condition(kind: &str, status: Option<bool>, reason: &str, message: &str) -> ConditionView {
    ConditionView {
        kind: kind.to_owned(),
        status,
        reason: reason.to_owned(),
        message: message.to_owned(),
    }
}

fn status_of(view: &GroupView) -> PoolGroupStatus {
    group_status(&PoolGroupStatus::default(), Some(1), Some(view), &[], AT)
}

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

#[test]
fn nothing_is_due_when_nothing_changed_whatever_the_order() {
    let published = status_of(&view());
    let mut shuffled = view();
    shuffled.conditions.reverse();
    let next = group_status(&published, Some(1), Some(&shuffled), &[], "2027-01-01T00:00:00Z");
    assert_eq!(next, published);
    assert_eq!(
        due(&published, Some(seconds(0)), &next, seconds(1000)),
        Due::Never
    );
}

#[test]
fn figures_wait_for_thirty_seconds_and_for_five_points() {
    let published = status_of(&view());
    let noise = status_of(&GroupView {
        occupied_points: 104,
        headroom_points: 106,
        ..view()
    });
    assert_eq!(
        due(&published, Some(seconds(100)), &noise, seconds(1000)),
        Due::Never
    );
    let moved = status_of(&GroupView {
        occupied_points: 105,
        headroom_points: 105,
        ..view()
    });
    assert_eq!(
        due(&published, Some(seconds(100)), &moved, seconds(110)),
        Due::At(seconds(130))
    );
    assert_eq!(
        due(&published, Some(seconds(100)), &moved, seconds(130)),
        Due::Now
    );
    let users = status_of(&GroupView { users: 41, ..view() });
    assert_eq!(
        due(&published, Some(seconds(100)), &users, seconds(129)),
        Due::At(seconds(130))
    );
    assert_eq!(due(&published, None, &users, seconds(0)), Due::Now);
}

#[test]
fn a_condition_is_written_at_once_and_its_message_s_figures_are_not() {
    let published = status_of(&view());
    let mut changed = view();
    changed.conditions[1] = condition("Progressing", Some(false), "Settled", "nothing starts");
    assert_eq!(
        due(&published, Some(seconds(100)), &status_of(&changed), seconds(100)),
        Due::Now
    );
    let mut figures = view();
    figures.conditions[0].message = "12 of 13 workers serve".to_owned();
    assert_eq!(
        due(&published, Some(seconds(0)), &status_of(&figures), seconds(1000)),
        Due::Never
    );
    figures.conditions[0].message = "workers serve again".to_owned();
    assert_eq!(
        due(&published, Some(seconds(0)), &status_of(&figures), seconds(1000)),
        Due::Now
    );
}

#[test]
fn a_condition_keeps_its_time_until_its_status_changes() {
    let published = status_of(&view());
    let mut changed = view();
    changed.conditions[0].reason = "StillServing".to_owned();
    changed.conditions[1].status = Some(false);
    let next = group_status(&published, Some(2), Some(&changed), &[], "2027-01-01T00:00:00Z");
    let times: Vec<(&str, &str)> = next
        .conditions
        .iter()
        .map(|c| (c.kind.as_str(), c.last_transition_time.as_str()))
        .collect();
    assert_eq!(
        times,
        vec![("Progressing", "2027-01-01T00:00:00Z"), ("Ready", AT)]
    );
}

#[test]
fn the_controller_s_condition_wins_over_the_commander_s() {
    let own = [condition(
        "Ready",
        Some(false),
        "TemplateInvalid",
        "spec.containers[0].image",
    )];
    let next = group_status(&PoolGroupStatus::default(), Some(1), Some(&view()), &own, AT);
    let ready = next
        .conditions
        .iter()
        .find(|condition| condition.kind == "Ready")
        .unwrap();
    assert_eq!(
        (ready.status, ready.reason.as_str()),
        (ConditionStatus::False, "TemplateInvalid")
    );
    assert_eq!(next.conditions.len(), 2);
}

#[test]
fn without_word_of_the_commander_the_old_status_stays() {
    let published = status_of(&view());
    let next = group_status(&published, Some(1), None, &[], "2027-01-01T00:00:00Z");
    assert_eq!(next, published);
}

#[test]
fn a_new_leader_keeps_its_predecessor_s_decisions_behind_its_own() {
    let note = |at: u64, action: &str| DecisionNote {
        at,
        action: action.to_owned(),
        because: "G1".to_owned(),
        warning: false,
    };
    let old = GroupView {
        decisions: (0..10).map(|at| note(at, "Spawned")).collect(),
        ..view()
    };
    let published = status_of(&old);
    let new = GroupView {
        decisions: vec![note(99, "WorkerRetired")],
        ..view()
    };
    let next = group_status(&published, Some(1), Some(&new), &[], AT);
    assert_eq!(next.last_decisions.len(), MAX_DECISIONS);
    assert_eq!(next.last_decisions[0].action, "WorkerRetired");
    assert_eq!(next.last_decisions[1..], published.last_decisions[..9]);
}

#[test]
fn hostile_texts_are_made_harmless() {
    let mut bad = view();
    bad.conditions = vec![condition("Ready", None, "no camel\ncase", &"x\u{7}".repeat(9999))];
    let next = status_of(&bad);
    assert_eq!(next.conditions[0].reason, "nocamelcase");
    assert_eq!(next.conditions[0].message.len(), LONGEST_SENTENCE);
}
