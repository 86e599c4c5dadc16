//! Workers of an older template: who is replaced when, and what stops that (G2, D2).

use elastic_pool_engine::capacity::SpawnHistory;
use elastic_pool_engine::compaction::target;
use elastic_pool_engine::group::{DrainKind, DrainProgress, SpawnFault};
use elastic_pool_engine::placement::{Verdict, place};
use elastic_pool_engine::plan::Condition;
use elastic_pool_engine::{Action, Birth, Group, Mode, MoveMode, Policy, UpdateType, WorkerView};
use rstest::rstest;
use std::collections::BTreeMap;

use crate::scene::{
    NOW, SPAWN, actions, acts, ago, cancel_drain, cancel_spawn, codes, decided, drain, drained, percent,
    planned, planned_after, seconds, spawned, with_max, with_min, worker,
};

use DrainKind::{Compaction, MustGo, Update};
use DrainProgress::{Empty, Running, Stuck};

fn old(view: WorkerView) -> WorkerView {
    WorkerView {
        outdated: true,
        ..view
    }
}

/// Routable, of the new template, and nobody lives there yet.
fn fresh(birth: u64) -> WorkerView {
    WorkerView {
        users: 0,
        ..worker(birth, 0)
    }
}

fn replace(birth: u64) -> Action {
    Action::Replace { birth: Birth(birth) }
}

fn retire(birth: u64) -> Action {
    Action::Retire { birth: Birth(birth) }
}

fn of(update: UpdateType) -> Policy {
    Policy {
        update,
        ..Policy::default()
    }
}

#[test]
fn one_of_the_new_template_is_ready_before_anybody_goes() {
    let group = [old(worker(1, 30)), old(worker(2, 40))];
    assert_eq!(acts(group.clone()), [SPAWN]);
    let coming = group.iter().cloned().chain([spawned(3, 1)]);
    let plan = planned(coming, &Policy::default());
    assert_eq!(
        (actions(&plan), codes(&plan)),
        (vec![], vec!["room", "update_spawn_in_flight"])
    );
    let ready = group.into_iter().chain([fresh(3)]);
    assert_eq!(
        acts(ready),
        [replace(2)],
        "the least occupied beside the reception"
    );
}

#[test]
fn one_goes_at_a_time_and_the_reception_last() {
    let emptied = old(drained(2, 40, Update, Running));
    let plan = planned(
        [old(worker(1, 30)), emptied, old(worker(3, 40)), fresh(4)],
        &Policy::default(),
    );
    assert_eq!(
        (actions(&plan), codes(&plan)),
        (vec![], vec!["room", "update_running"])
    );
    assert_eq!(
        acts([old(worker(1, 0)), old(worker(2, 40)), fresh(3)]),
        [replace(2)]
    );
    assert_eq!(acts([old(worker(1, 60)), worker(2, 40), fresh(3)]), [replace(1)]);
}

#[test]
fn a_group_of_one_is_replaced_above_its_max_and_never_without_a_worker() {
    let policy = with_max(1);
    let alone = [old(worker(1, 30))];
    assert_eq!(actions(&planned(alone.clone(), &policy)), [SPAWN]);
    let ready = alone.into_iter().chain([fresh(2)]);
    let plan = planned(ready, &policy);
    assert_eq!((actions(&plan), plan.conditions), (vec![replace(1)], vec![]));
    let gone = [old(drained(1, 0, Update, Empty)), fresh(2)];
    assert_eq!(actions(&planned(gone, &policy)), [retire(1)]);
}

#[test]
fn who_fits_on_workers_of_the_new_template_needs_no_other() {
    let left = |load| [old(worker(1, 30)), old(worker(2, load)), worker(3, 60)];
    assert_eq!(acts(left(20)), [replace(2)], "0.6 + 0.2 is 0.8");
    assert_eq!(acts(left(21)), [SPAWN]);
    // Idle users weigh nothing.
    assert_eq!(acts(left(0)), [replace(2)]);
}

#[test]
fn min_workers_stay_whatever_would_fit() {
    let few = [old(worker(1, 10)), old(worker(2, 10)), worker(3, 0)];
    assert_eq!(actions(&planned(few.clone(), &with_min(3))), [SPAWN]);
    assert_eq!(actions(&planned(few, &with_min(2))), [replace(2)]);
}

#[test]
fn at_max_each_replacement_waits_until_the_one_before_is_gone() {
    let policy = with_max(2);
    let leaving = [old(worker(1, 30)), drained(2, 0, Update, Empty), worker(3, 50)];
    let leaving = leaving.map(|view| WorkerView {
        outdated: view.birth != Birth(3),
        ..view
    });
    assert_eq!(actions(&planned(leaving, &policy)), [retire(2)]);
    let gone = [old(worker(1, 60)), worker(3, 50)];
    assert_eq!(actions(&planned(gone, &policy)), [SPAWN]);
}

#[test]
fn without_surge_an_update_at_max_says_what_it_waits_for() {
    let policy = Policy {
        max_surge: 0,
        ..with_max(2)
    };
    let full = [old(worker(1, 40)), old(worker(2, 70))];
    let plan = planned(full, &policy);
    assert_eq!((actions(&plan), codes(&plan)[1]), (vec![], "update_max_workers"));
    let why = plan.update.unwrap().because.text();
    assert_eq!(
        why,
        "G2: w2 is of an older template and waits: 2 live, max is 2, and maxSurge allows no more"
    );
}

#[test]
fn a_lowered_max_comes_before_the_update() {
    let policy = with_max(2);
    let many = (1..4).map(|birth| old(worker(birth, 40)));
    assert_eq!(
        actions(&planned(many, &policy)),
        [drain(2)],
        "C8, H is within the margin"
    );
    let spawning = [
        old(worker(1, 40)),
        old(worker(2, 40)),
        old(worker(3, 40)),
        spawned(4, 1),
    ];
    assert_eq!(actions(&planned(spawning, &policy)), [cancel_spawn(4)]);
}

#[test]
fn growth_takes_no_drain_back_that_the_lowered_max_asks_for() {
    let full = [old(worker(1, 60)), old(drained(2, 10, Compaction, Running))];
    assert_eq!(actions(&planned(full, &with_max(1))), []);
}

#[test]
fn at_max_a_full_group_is_not_pushed_over_the_edge() {
    let policy = with_max(2);
    let full = |load| [worker(1, 60), old(worker(2, 90)), old(worker(3, load))];
    let plan = planned(full(90), &policy);
    assert_eq!((actions(&plan), codes(&plan)[1]), (vec![], "update_max_full"));
    assert_eq!(actions(&planned(full(30), &policy)), [replace(3)]);
}

#[rstest]
#[case(SpawnFault::Mistake, "the last by a mistake in the template")]
#[case(SpawnFault::NoCapacity, "the last for want of capacity")]
fn a_template_that_does_not_come_up_stops_the_update(#[case] fault: SpawnFault, #[case] words: &str) {
    let mut spawns = SpawnHistory::default();
    spawns.fail(ago(5), fault);
    let group = [old(worker(1, 30)), old(worker(2, 40))];
    let plan = planned_after(group, &Policy::default(), &spawns);
    assert_eq!((actions(&plan), codes(&plan)[1]), (vec![], "update_backing_off"));
    let update = plan.update.unwrap();
    assert!(
        update.is_blocked() && update.because.text().contains(words),
        "{update:?}"
    );
}

#[rstest]
#[case::the_template_is_changed_back([drained(1, 30, Update, Running), worker(2, 0)], "up_to_date")]
#[case::though_it_is_empty([drained(1, 0, Update, Empty), worker(2, 0)], "up_to_date")]
#[case::nobody_new_is_left([old(drained(1, 30, Update, Running)), old(worker(2, 0))], "nobody_new")]
#[case::nobody_at_all([old(drained(1, 0, Update, Empty)), old(spawned(2, 1))], "nobody_new")]
fn a_worker_whose_replacement_is_off_takes_newcomers_again(
    #[case] workers: [WorkerView; 2],
    #[case] code: &str,
) {
    let plan = planned(workers, &Policy::default());
    assert_eq!(plan.decisions[0].action, Some(cancel_drain(1)));
    assert_eq!(plan.decisions[0].because.code, code);
    assert!(!actions(&plan).contains(&retire(1)));
}

#[test]
fn nothing_cancels_an_update_for_growth_but_a_spawn_is_made() {
    let full = [worker(1, 60), worker(2, 90), old(drained(3, 10, Update, Running))];
    assert_eq!(acts(full), [SPAWN]);
}

#[test]
fn a_worker_that_cannot_be_emptied_stays_closed_and_holds_up_nobody() {
    let stuck = old(drained(2, 40, Update, Stuck));
    let group = [old(worker(1, 30)), stuck, old(worker(3, 30)), worker(4, 40)];
    assert_eq!(acts(group.clone()), [SPAWN], "it is stood in for by w4");
    let another = group.into_iter().chain([fresh(5)]);
    assert_eq!(acts(another), [replace(3)]);
}

#[test]
fn under_drain_each_closed_worker_is_stood_in_for_and_waits_alone() {
    let drains = [
        of(UpdateType::Drain),
        Policy {
            moves: MoveMode::Drain,
            ..Policy::default()
        },
    ];
    for policy in drains {
        let waiting = [
            old(worker(1, 30)),
            old(drained(2, 40, Update, Running)),
            old(worker(3, 70)),
            worker(4, 0),
        ];
        assert_eq!(actions(&planned(waiting.clone(), &policy)), [SPAWN]);
        let ready = waiting.into_iter().chain([fresh(5)]);
        assert_eq!(actions(&planned(ready, &policy)), [replace(3)]);
    }
}

#[test]
fn on_delete_replaces_nobody_and_places_as_ever() {
    let policy = of(UpdateType::OnDelete);
    let group = [old(worker(1, 30)), old(worker(2, 70)), worker(3, 60)];
    let plan = planned(group.clone(), &policy);
    assert_eq!((actions(&plan), plan.update), (vec![], None));
    let placed = place(&group.into_iter().collect(), &policy, None).unwrap();
    assert_eq!((placed.verdict, placed.worker), (Verdict::Keep, Birth(1)));
    let idle = [old(worker(1, 0)), worker(2, 0), old(worker(3, 10))];
    assert_eq!(actions(&planned(idle, &policy)), [drain(2)], "compaction goes on");
    let max = Policy {
        max: Some(2),
        ..policy
    };
    let full = [old(worker(1, 60)), old(worker(2, 90))];
    assert_eq!(
        actions(&planned(full, &max)),
        [],
        "nobody is about to be replaced"
    );
}

#[rstest]
#[case(Mode::Recommend, 1)]
#[case(Mode::Frozen, 0)]
fn a_quiet_mode_updates_nobody(#[case] mode: Mode, #[case] advised: usize) {
    let policy = Policy {
        mode,
        ..Policy::default()
    };
    for (group, action) in [
        (vec![old(worker(1, 30))], SPAWN),
        (vec![old(worker(1, 30)), fresh(2)], replace(1)),
    ] {
        let plan = planned(group, &policy);
        assert_eq!(actions(&plan), [], "{mode:?}");
        let advice: Vec<Action> = plan
            .advice
            .iter()
            .filter_map(|decision| decision.action)
            .collect();
        assert_eq!(advice, vec![action; advised], "{mode:?}");
    }
}

#[test]
fn the_ledger_takes_no_worker_of_the_new_template_while_older_ones_are_left() {
    // The spare room is the replacement's: C2 would send it away, and the update would make another.
    let roomy = [old(worker(1, 10)), old(worker(2, 30)), fresh(3)];
    assert_eq!(acts(roomy), [replace(2)]);
    let passed_over = WorkerView {
        passed_over_until: Some(NOW + seconds(60)),
        ..old(worker(2, 30))
    };
    let plan = planned(
        [old(worker(1, 10)), passed_over, worker(3, 0)],
        &Policy::default(),
    );
    assert_eq!(
        (actions(&plan), codes(&plan)[1..].to_vec()),
        (vec![], vec!["update_no_victim", "no_victim"])
    );
    let mut spawns = SpawnHistory::default();
    spawns.fail(ago(5), SpawnFault::Mistake);
    let stopped = [old(worker(1, 10)), old(worker(2, 0)), old(worker(3, 0))];
    let plan = planned_after(stopped, &Policy::default(), &spawns);
    assert_eq!(
        actions(&plan),
        [drain(2)],
        "an idle group shrinks though its update is stopped"
    );
}

#[test]
fn who_must_go_and_who_is_compacted_is_not_replaced_as_well() {
    let must_go = [old(worker(1, 30)), old(drained(2, 30, MustGo, Running)), fresh(3)];
    assert_eq!(acts(must_go), [replace(1)], "D2 goes on beside it");
    let compacted = [
        old(worker(1, 30)),
        old(drained(2, 30, Compaction, Running)),
        fresh(3),
    ];
    assert_eq!(acts(compacted), []);
}

#[test]
fn a_new_leader_replaces_nobody_before_it_knows_the_load() {
    let cold = WorkerView {
        warm: false,
        ..fresh(2)
    };
    let plan = planned([old(worker(1, 30)), cold], &Policy::default());
    assert_eq!((actions(&plan), codes(&plan)[1]), (vec![], "update_warming_up"));
}

#[test]
fn a_worker_of_which_nothing_is_known_is_replaced_after_the_others() {
    let unknown = WorkerView {
        stale: true,
        ..old(worker(2, 0))
    };
    let ready = [worker(4, 0), fresh(5)];
    let group = [old(worker(1, 30)), unknown.clone(), old(worker(3, 40))];
    assert_eq!(acts(group.into_iter().chain(ready.clone())), [replace(3)]);
    let last = [old(worker(1, 30)), unknown];
    assert_eq!(acts(last.into_iter().chain(ready)), [replace(2)]);
}

#[test]
fn a_replacement_counts_as_above_max_only_beside_whom_it_replaces() {
    let policy = with_max(2);
    let both = [old(worker(1, 30)), worker(2, 30), fresh(3)];
    assert_eq!(planned(both, &policy).conditions, []);
    let too_many = [worker(1, 30), worker(2, 30), fresh(3)];
    assert_eq!(planned(too_many, &policy).conditions, [Condition::AboveMax]);
    let leaving = [old(drained(1, 30, Update, Running)), worker(2, 60), worker(3, 90)];
    let plan = planned(leaving, &policy);
    assert_eq!(
        codes(&plan)[0],
        "max_workers",
        "three live, and one of them still leaves"
    );
}

#[test]
fn newcomers_and_moved_users_go_past_an_older_template() {
    let group: Group = [old(worker(1, 10)), old(worker(2, 20)), worker(3, 70)]
        .into_iter()
        .collect();
    let policy = Policy::default();
    let placed = |at| place(&group, &policy, at).unwrap();
    for at in [None, Some(Birth(1)), Some(Birth(2))] {
        let placed = placed(at);
        assert_eq!(
            (placed.verdict, placed.worker, placed.because.code),
            (Verdict::Pass, Birth(3), "new_template")
        );
    }
    assert_eq!(placed(Some(Birth(3))).verdict, Verdict::Keep);
    let to = |group: &Group| target(group, &policy, Birth(9), &BTreeMap::new());
    assert_eq!(to(&group), Some(Birth(3)));
    let full: Group = [old(worker(1, 10)), old(worker(2, 20)), worker(3, 80)]
        .into_iter()
        .collect();
    assert_eq!(
        to(&full),
        Some(Birth(1)),
        "nobody of the new template is below its threshold"
    );
    assert_eq!(place(&full, &policy, None).unwrap().verdict, Verdict::Keep);
}

#[test]
fn an_update_under_way_is_planned_again_when_a_pause_or_a_spawn_ends() {
    let group: Group = [old(worker(1, 30)), spawned(2, 20)].into_iter().collect();
    let plan = decided(&group, &Policy::default(), &SpawnHistory::default(), NOW);
    assert!(plan.wake_at.is_some_and(|at| at <= NOW + seconds(101)));
    assert_eq!(percent(30), group.get(Birth(1)).unwrap().occupancy);
}
