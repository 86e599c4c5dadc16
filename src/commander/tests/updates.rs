//! A changed template: workers of the new one come up first, users move, the reception goes last with its guests (G2, D2, V9).

use std::time::Duration;

use elastic_pool_engine::UpdateType;
use elastic_pool_engine::ids::{Birth, Term};

use super::manifest::{group, spec};
use super::world::World;
use crate::channel::proto::Report;
use crate::vehicle::{Fact, GroupSpec, Mode, SpawnFailure, WorkerFact};

const MINUTE: Duration = Duration::from_mins(1);

fn change_template(world: &mut World, to: &str) {
    world.change(|spec| spec.template_hash = to.into());
}

/// `count` idle workers with a user on each; guests have asked for nothing for long.
fn group_of(count: usize, spec: GroupSpec) -> (World, Vec<Birth>) {
    let min = u32::try_from(count).unwrap();
    let mut world = World::with_workers(GroupSpec { min, ..spec }, &vec![0.2; count]);
    let births = world.births();
    for (birth, client) in births.iter().zip(1..) {
        world.login(&format!("user-{client}"), client, *birth);
    }
    report(&mut world, MINUTE * 60);
    (world, births)
}

/// One report of everybody whose guests have been idle for `guests`.
fn report(world: &mut World, guests: Duration) {
    world.pass(Duration::from_secs(5));
    let births: Vec<Birth> = world.agents.keys().copied().collect();
    for birth in births {
        let report = Report {
            cpu: Some(0.2),
            guest_idle_ms: Some(u64::try_from(guests.as_millis()).unwrap()),
            ..Report::default()
        };
        world.report(birth, report);
    }
}

/// The pods of those that were told to go are gone.
fn bury(world: &mut World) {
    for birth in world.retired() {
        world.agents.remove(&birth);
        world.fact(Fact::WorkerGone(birth));
    }
}

/// Reports, and does what is wanted of the vehicle, until nobody of an older template is left; how many lived at most.
fn run(world: &mut World) -> usize {
    let mut most = 0;
    for _ in 0..60 {
        if world.births().iter().all(|birth| !world.view(*birth).outdated) {
            return most;
        }
        world.make_wanted();
        most = most.max(world.births().len());
        report(world, MINUTE * 60);
        bury(world);
    }
    panic!("the update does not end: {:?}", world.condition("Progressing"));
}

fn stuck(birth: Birth, template: &str, failure: SpawnFailure) -> WorkerFact {
    WorkerFact {
        ready: false,
        address: String::new(),
        failure: Some(failure),
        template_hash: template.into(),
        ..World::fact_of(birth)
    }
}

fn message(world: &World, kind: &str) -> String {
    let conditions = &world.orders.views[&group()].conditions;
    let found = conditions.iter().find(|condition| condition.kind == kind);
    found.expect("the condition").message.clone()
}

#[test]
fn users_move_to_workers_of_the_new_template_and_nobody_is_lost() {
    for (min, max) in [(1, None), (3, Some(3))] {
        let (mut world, old) = group_of(3, spec());
        world.change(|spec| (spec.min, spec.max) = (min, max));
        change_template(&mut world, "t2");
        let most = run(&mut world);
        assert!(most <= 4, "one above three, {most} lived");
        for client in 1..=3 {
            let (owner, _) = world.owner(&format!("user-{client}")).unwrap();
            assert!(!old.contains(&owner), "user-{client} is on {owner}");
        }
        assert_eq!(world.orders.views[&group()].outdated_workers, 0);
        assert_eq!(world.condition("Progressing"), (Some(false), "Settled".into()));
    }
}

#[test]
fn nobody_moves_before_a_worker_of_the_new_template_is_routable() {
    let (mut world, old) = group_of(2, spec());
    change_template(&mut world, "t2");
    assert_eq!(world.wanted(&group()).len(), 1);
    assert_eq!(world.orders.views[&group()].outdated_workers, 2);
    assert_eq!(world.condition("Progressing"), (Some(true), "Updating".into()));
    for _ in 0..10 {
        report(&mut world, MINUTE);
        assert_eq!(world.drained(), []);
    }
    world.make_wanted();
    assert_eq!(world.drained(), [old[1]], "the reception is last");
    assert_eq!(world.told("ReplacementStarted"), 1);
}

#[test]
fn a_template_that_cannot_start_moves_nobody_and_says_why_until_it_is_mended() {
    let (mut world, old) = group_of(2, spec());
    change_template(&mut world, "t2");
    let spawn = world.wanted(&group())[0];
    let text = "container app: ErrImagePull: no such image";
    world.fact(Fact::Worker(Box::new(stuck(
        spawn,
        "t2",
        SpawnFailure::Mistake(text.into()),
    ))));
    for _ in 0..60 {
        report(&mut world, MINUTE);
        bury(&mut world);
        assert_eq!(
            world.condition("Progressing"),
            (Some(false), "UpdateStopped".into())
        );
        assert!(
            message(&world, "Progressing").contains(text) || message(&world, "Progressing").contains("G4")
        );
    }
    assert!(old.iter().all(|birth| !world.agents[birth].closed));
    assert_eq!(world.owner("user-2").unwrap().0, old[1]);
    change_template(&mut world, "t3");
    assert_eq!(
        world.wanted(&group()).len(),
        1,
        "no pause: it is another template"
    );
    run(&mut world);
    assert!(world.births().iter().all(|birth| !old.contains(birth)));
}

#[test]
fn a_cluster_without_room_makes_the_update_wait_and_is_nobody_s_mistake() {
    let (mut world, old) = group_of(1, spec());
    change_template(&mut world, "t2");
    let spawn = world.wanted(&group())[0];
    let full = SpawnFailure::NoCapacity("0/3 nodes are available".into());
    world.fact(Fact::Worker(Box::new(stuck(spawn, "t2", full.clone()))));
    assert_eq!(world.condition("CapacityPending").0, Some(true));
    assert_eq!(
        world.condition("Progressing"),
        (Some(false), "UpdateWaitsForCapacity".into())
    );
    for _ in 0..25 {
        report(&mut world, MINUTE);
    }
    bury(&mut world);
    report(&mut world, MINUTE);
    assert_eq!(
        world.condition("CapacityPending").0,
        Some(true),
        "in the pause as well"
    );
    assert_eq!((world.births(), world.drained()), (old, vec![]));
}

#[test]
fn a_spawn_of_the_template_before_is_given_up_at_once() {
    let (mut world, old) = group_of(1, spec());
    change_template(&mut world, "t2");
    let spawn = world.wanted(&group())[0];
    let late = WorkerFact {
        ready: false,
        template_hash: "t2".into(),
        ..World::fact_of(spawn)
    };
    world.fact(Fact::Worker(Box::new(late.clone())));
    change_template(&mut world, "t3");
    assert_eq!(world.retired(), [spawn]);
    assert_eq!(world.wanted(&group()).len(), 1, "one of the third template");
    // A pod that was made just before the manifest changed comes to light after it.
    let other = world.wanted(&group())[0];
    let made = WorkerFact {
        birth: other,
        pod_uid: format!("uid-{}", other.0),
        ..late
    };
    world.fact(Fact::Worker(Box::new(made)));
    assert_eq!(world.retired(), [spawn, other]);
    assert_eq!(world.owner("user-1").unwrap().0, old[0]);
}

#[test]
fn a_template_changed_back_in_the_middle_puts_the_closed_worker_back() {
    let (mut world, old) = group_of(2, spec());
    change_template(&mut world, "t2");
    world.agents.get_mut(&old[1]).unwrap().nack_snapshots = true;
    world.make_wanted();
    assert_eq!(world.drained(), [old[1]]);
    change_template(&mut world, "t1");
    assert!(!world.agents[&old[1]].closed);
    assert!(!world.drained().contains(&old[1]));
    run(&mut world);
    assert!(old.iter().all(|birth| world.births().contains(birth)));
}

#[test]
fn the_reception_waits_for_its_guests_until_they_are_idle_or_the_time_is_up() {
    let (mut world, old) = group_of(1, spec());
    change_template(&mut world, "t2");
    report(&mut world, Duration::ZERO);
    let new = world.make_wanted()[0];
    assert_eq!(world.drained(), [old[0]]);
    assert_eq!(world.owner("user-1").unwrap().0, new, "users move at once");
    let row = world.commander.group_row(&group()).unwrap();
    assert_eq!(row.reception, new.0, "new guests go to the new one");
    for _ in 0..118 {
        report(&mut world, Duration::ZERO);
        assert_eq!(world.retired(), []);
    }
    assert!(message(&world, "Progressing").contains("guests"));
    for _ in 0..3 {
        report(&mut world, Duration::ZERO);
    }
    assert_eq!(world.retired(), [old[0]], "ten minutes are over");

    let (mut world, old) = group_of(1, spec());
    change_template(&mut world, "t2");
    report(&mut world, MINUTE * 9);
    world.make_wanted();
    report(&mut world, MINUTE * 9);
    assert_eq!(world.retired(), []);
    world.pass(MINUTE);
    assert_eq!(world.retired(), [old[0]], "they left ten minutes ago");
}

#[test]
fn newcomers_go_past_a_reception_that_is_to_be_replaced() {
    let (mut world, old) = group_of(2, spec());
    change_template(&mut world, "t2");
    world.agents.get_mut(&old[1]).unwrap().nack_snapshots = true;
    let new = world.make_wanted()[0];
    let placed = world.login("late", 9, old[0]);
    assert!(placed.move_follows);
    assert_eq!(world.owner("late").unwrap().0, new);
}

#[test]
fn another_agent_counts_only_where_the_manifest_says_so() {
    let (mut world, old) = group_of(1, spec());
    world.change(|spec| spec.agent_hash = "a1".into());
    assert!(world.wanted(&group()).is_empty());
    world.change(|spec| spec.agent_hash = "a2".into());
    assert_eq!(world.wanted(&group()).len(), 1, "agentUpdate Move");
    world.change(|spec| spec.agent_hash = String::new());
    assert_eq!(world.orders.views[&group()].outdated_workers, 0, "WithTemplate");
    assert_eq!(world.births()[0], old[0]);
}

#[test]
fn a_quiet_mode_and_on_delete_replace_nobody() {
    let on_delete = GroupSpec {
        update: UpdateType::OnDelete,
        ..spec()
    };
    let in_mode = |mode| GroupSpec { mode, ..spec() };
    for (spec, reason) in [
        (on_delete, "OnDelete"),
        (in_mode(Mode::Frozen), "UpdateWithheld"),
        (in_mode(Mode::Recommend), "UpdateWithheld"),
    ] {
        let (mut world, old) = group_of(2, spec);
        change_template(&mut world, "t2");
        for _ in 0..10 {
            report(&mut world, MINUTE);
        }
        assert_eq!(
            (world.births(), world.drained()),
            (old.clone(), vec![]),
            "{reason}"
        );
        assert_eq!(world.condition("Progressing"), (Some(false), reason.into()));
        assert_eq!(world.orders.views[&group()].outdated_workers, 2);
        // Deleted by a person, it is drained, and its replacement is of the new template.
        let leaving = WorkerFact {
            terminating: true,
            ..World::fact_of(old[1])
        };
        world.fact(Fact::Worker(Box::new(leaving)));
        assert_eq!(world.make_wanted().len(), 1, "{reason}: G5");
        assert_eq!(world.orders.views[&group()].outdated_workers, 2);
    }
}

#[test]
fn under_drain_users_stay_until_they_leave() {
    for spec in [
        GroupSpec {
            update: UpdateType::Drain,
            ..spec()
        },
        GroupSpec {
            live_moves: false,
            ..spec()
        },
    ] {
        let (mut world, old) = group_of(2, spec);
        change_template(&mut world, "t2");
        world.make_wanted();
        for _ in 0..20 {
            report(&mut world, MINUTE * 60);
            world.make_wanted();
        }
        assert_eq!(
            world.drained(),
            old,
            "both are closed, each with somebody in its stead"
        );
        assert_eq!(world.owner("user-2").unwrap().0, old[1]);
        assert_eq!(world.births().len(), 4);
    }
}

#[test]
fn frozen_in_the_middle_an_update_stops() {
    let (mut world, old) = group_of(2, spec());
    change_template(&mut world, "t2");
    world.agents.get_mut(&old[1]).unwrap().nack_snapshots = true;
    world.make_wanted();
    assert_eq!(world.drained(), [old[1]]);
    world.change(|spec| spec.mode = Mode::Frozen);
    assert_eq!(world.drained(), []);
    assert!(!world.agents[&old[1]].closed);
}

#[test]
fn a_worker_of_an_older_template_that_must_go_is_drained_as_ever() {
    let (mut world, old) = group_of(2, spec());
    change_template(&mut world, "t2");
    world.agents.get_mut(&old[1]).unwrap().nack_snapshots = true;
    world.make_wanted();
    let leaving = WorkerFact {
        terminating: true,
        ..World::fact_of(old[1])
    };
    world.fact(Fact::Worker(Box::new(leaving)));
    assert_eq!(world.told("DrainStarted"), 1, "D2 takes over");
    world.agents.get_mut(&old[1]).unwrap().nack_snapshots = false;
    for _ in 0..20 {
        report(&mut world, MINUTE * 60);
        world.make_wanted();
        bury(&mut world);
    }
    assert!(world.births().iter().all(|birth| !old.contains(birth)));
}

#[test]
fn a_new_leader_goes_on_with_an_update_once_it_knows_the_load() {
    let spec = GroupSpec {
        template_hash: "t2".into(),
        ..spec()
    };
    let mut world = World::new(7, spec);
    let births = [1, 2, 3].map(|n| Birth(Term(3).number(n)));
    for (birth, template) in births.into_iter().zip(["t1", "t1", "t2"]) {
        let fact = WorkerFact {
            template_hash: template.into(),
            ..World::fact_of(birth)
        };
        world.fact(Fact::Worker(Box::new(fact)));
    }
    world.fact(Fact::Synced);
    world.gateway();
    for birth in births {
        let users = if birth == births[1] {
            vec![world.owned("alice", birth, Term(3).number(9))]
        } else {
            Vec::new()
        };
        world.hello(birth, users);
    }
    report(&mut world, MINUTE * 60);
    assert_eq!(world.drained(), [], "E5");
    report(&mut world, MINUTE * 60);
    assert_eq!(world.owner("alice").unwrap().0, births[2]);
    run(&mut world);
    assert_eq!(world.owner("alice").unwrap().0, births[2], "moved once");
}
