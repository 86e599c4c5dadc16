//! The form: exact in every field, whatever the order of workers, and closed to what it does not know.

use std::time::Duration;

use elastic_pool_engine::capacity::SpawnHistory;
use elastic_pool_engine::group::{Drain, DrainKind, DrainProgress, SpawnFault};
use elastic_pool_engine::ids::UserId;
use elastic_pool_engine::occupancy::Limits;
use elastic_pool_engine::snapshot::{MAX_USERS, Saved, SavedUser, Stays};
use elastic_pool_engine::{
    Birth, Group, Mode, MoveMode, Policy, Share, Snapshot, UpdateType, WorkerState, WorkerView,
};
use proptest::prelude::*;
use rstest::rstest;
use serde_json::{Value, json};

use super::{KEPT, four_workers};

fn share() -> impl Strategy<Value = Share> {
    prop_oneof![
        (-2_000_000_000_000i64..4_000_000_000_000).prop_map(Share::from_picos),
        Just(Share::from_picos(i64::MAX)),
        Just(Share::from_picos(i64::MIN)),
        Just(Share::ZERO),
    ]
}

fn occupancy() -> impl Strategy<Value = Share> {
    prop_oneof![
        (0i64..=1_000_000_000_000).prop_map(Share::from_picos),
        (0u32..=100).prop_map(Share::from_percent),
    ]
}

fn time() -> impl Strategy<Value = Duration> {
    prop_oneof![
        (0u64..400).prop_map(Duration::from_secs),
        any::<(u64, u32)>().prop_map(|(s, n)| Duration::new(s, n % 1_000_000_000)),
        Just(Duration::MAX),
        Just(Duration::ZERO),
    ]
}

fn state() -> impl Strategy<Value = WorkerState> {
    let progress = prop_oneof![
        Just(DrainProgress::Running),
        Just(DrainProgress::Empty),
        Just(DrainProgress::Stuck)
    ];
    let kind = prop_oneof![
        Just(DrainKind::Compaction),
        Just(DrainKind::MustGo),
        Just(DrainKind::Update)
    ];
    prop_oneof![
        4 => Just(WorkerState::Routable),
        1 => time().prop_map(|since| WorkerState::Nascent { since }),
        1 => (kind, time(), progress).prop_map(|(kind, since, progress)| WorkerState::Draining(Drain { kind, since, progress })),
        1 => any::<bool>().prop_map(|must_go| WorkerState::Retiring { must_go }),
    ]
}

fn worker() -> impl Strategy<Value = WorkerView> {
    let maybe = || prop::option::weighted(0.3, time());
    let birth = prop_oneof![1u64..9, any::<u64>()];
    let name = "[a-z\"\\\\é ]{1,9}";
    let flags = (prop::bool::weighted(0.2), prop::bool::weighted(0.8));
    let users = prop_oneof![0usize..5, Just(usize::try_from(MAX_USERS).unwrap())];
    let loads = (
        occupancy(),
        prop_oneof![3 => Just(Share::ZERO), 1 => (0i64..=100_000_000_000_000).prop_map(Share::from_picos)],
    );
    (
        birth,
        name,
        state(),
        loads,
        flags,
        (maybe(), maybe(), maybe()),
        users,
    )
        .prop_map(
            |(
                birth,
                name,
                state,
                (occupancy, transit),
                (stale, warm),
                (stale_from, room_until, passed),
                users,
            )| {
                WorkerView {
                    state,
                    occupancy,
                    stale,
                    stale_from,
                    warm,
                    room_until,
                    users,
                    transit,
                    passed_over_until: passed,
                    outdated: warm && stale,
                    hindered: stale.then_some(SpawnFault::Mistake),
                    guests_until: passed.filter(|_| warm),
                    ..WorkerView::new(Birth(birth), &name)
                }
            },
        )
}

fn policy() -> impl Strategy<Value = Policy> {
    let count = || prop_oneof![0usize..9, Just(1_000_000_000)];
    let mode = prop_oneof![
        Just(Mode::Active),
        Just(Mode::Recommend),
        Just(Mode::Frozen),
        Just(Mode::Evacuate)
    ];
    let moves = prop_oneof![Just(MoveMode::Live), Just(MoveMode::Drain)];
    let update = prop_oneof![
        Just(UpdateType::Move),
        Just(UpdateType::Drain),
        Just(UpdateType::OnDelete)
    ];
    let limits = (prop::option::of(any::<u64>()), -1.0f64..1.0);
    let times = (time(), time(), time());
    let shares = (share(), share(), share());
    let counts = (count(), count(), count(), prop::option::of(count()), count());
    (shares, counts, times, limits, moves, (mode, update)).prop_map(
        |(
            (reception, admission, margin),
            counts,
            times,
            (memory_bytes, cpu_cores),
            moves,
            (mode, update),
        )| Policy {
            reception,
            admission,
            margin,
            smoothing_rows: counts.0,
            window_rows: counts.1,
            interval: times.0,
            min: counts.2,
            max: counts.3,
            max_surge: counts.4,
            spawn_timeout: times.1,
            drain_timeout: times.2,
            limits: Limits {
                memory_bytes,
                cpu_cores,
            },
            moves,
            mode,
            outlet: mode == Mode::Evacuate && moves == MoveMode::Live,
            update,
        },
    )
}

fn user(workers: Vec<Birth>) -> impl Strategy<Value = SavedUser> {
    let stays = prop_oneof![
        3 => Just(None),
        1 => Just(Some(Stays::PinnedStream)),
        1 => Just(Some(Stays::PackageTooLarge)),
        1 => time().prop_map(|until| Some(Stays::BackingOff { until })),
    ];
    (prop::sample::select(workers), "[a-z\"é]{1,6}", 0usize..3, stays).prop_map(
        |(worker, user, open_requests, stays)| SavedUser {
            worker,
            user: UserId::new(&user).unwrap(),
            open_requests,
            stays,
        },
    )
}

fn users(group: &Group) -> impl Strategy<Value = Vec<SavedUser>> + use<> {
    let mut births: Vec<Birth> = group.workers().map(|worker| worker.birth).collect();
    births.push(Birth(77));
    prop::collection::vec(user(births), 0..8).prop_map(|mut users| {
        users.sort_by(|a, b| (a.worker, a.user.as_str()).cmp(&(b.worker, b.user.as_str())));
        users.dedup_by(|a, b| (a.worker, &a.user) == (b.worker, &b.user));
        users
    })
}

fn saved() -> impl Strategy<Value = Saved> {
    let group =
        prop::collection::vec(worker(), 0..7).prop_map(|workers| workers.into_iter().collect::<Group>());
    let with_users = group.prop_flat_map(|group| (users(&group), Just(group)));
    let spawns = (any::<u32>(), prop::option::of(time())).prop_map(|(failures, last_failure)| SpawnHistory {
        failures,
        last_failure,
        fault: last_failure.map(|_| SpawnFault::NoCapacity),
    });
    (with_users, policy(), spawns, time()).prop_map(|((users, group), policy, spawns, now)| {
        let snapshot = Snapshot {
            group: &group,
            policy: &policy,
            spawns: &spawns,
        };
        Saved::of("shop/shop-blue", &snapshot, now, users)
    })
}

proptest! {
    #[test]
    fn what_is_read_is_what_was_written_and_answers_the_same(saved in saved()) {
        let line = saved.to_json();
        let again = Saved::parse(&line).unwrap();
        prop_assert_eq!(&again, &saved);
        prop_assert_eq!(again.to_json(), line);
        prop_assert_eq!(again.answer().to_json(), saved.answer().to_json());
    }

    #[test]
    fn the_order_of_workers_in_the_file_changes_nothing(saved in saved(), turn in 0usize..7) {
        let mut value: Value = serde_json::from_str(&saved.to_json()).unwrap();
        let workers = value["workers"].as_array_mut().unwrap();
        let turn = turn.min(workers.len());
        workers.rotate_left(turn);
        workers.reverse();
        let turned = Saved::parse(&value.to_string()).unwrap();
        prop_assert_eq!(turned.to_json(), saved.to_json());
        prop_assert_eq!(turned.answer().to_json(), saved.answer().to_json());
    }

    #[test]
    fn the_answer_given_then_is_kept_byte_by_byte(saved in saved()) {
        let answered = saved.answered();
        let again = Saved::parse(&answered.to_json()).unwrap();
        prop_assert_eq!(again.given(), Some(&*again.answer().to_json()));
        prop_assert_eq!(again, answered);
    }

    #[test]
    fn no_line_makes_the_reader_panic(mut line in saved().prop_map(|saved| saved.to_json()), at in any::<prop::sample::Index>(), with in any::<char>()) {
        let starts: Vec<usize> = line.char_indices().map(|(start, _)| start).collect();
        let start = *at.get(&starts);
        let end = start + line[start..].chars().next().unwrap().len_utf8();
        line.replace_range(start..end, &with.to_string());
        if let Ok(saved) = Saved::parse(&line) {
            let _ = saved.answer().to_json();
        }
    }
}

#[rstest]
#[case("/snapshot", json!(2), "snapshot is 2, must be 1, the version of the form that this build reads")]
#[case("/group", json!("a\nb"), "group is \"a\\nb\", must be 1 to 512 bytes without control characters")]
#[case("/taken_at_s", json!(-1), "taken_at_s is -1, must be seconds, from 0 to 18446744073709551615")]
#[case("/taken_at_s", Value::Null, "taken_at_s is missing, must be given")]
#[case("/policy/admission", json!("NaN"), "policy.admission is \"NaN\", must be a decimal of at most 12 places, such as \"0.25\"")]
#[case("/policy/min", json!(1.5), "policy.min is 1.5, must be a whole number from 0 to 1000000000")]
#[case("/policy/cpu_cores", json!("inf"), "policy.cpu_cores is \"inf\", must be a number of cores in a string, such as \"0.5\"")]
#[case("/policy/mode", json!("Idle"), "policy.mode is \"Idle\", must be Active or Recommend or Frozen or Evacuate")]
#[case("/workers/0/occupancy", json!("1.01"), "workers[0].occupancy is \"1.01\", must be a decimal from 0 to 1")]
#[case("/workers/1/birth", json!("1"), "workers[1].birth is \"1\", must be a birth number that no other worker has")]
#[case("/workers/1/birth", json!(2), "workers[1].birth is 2, must be a string")]
#[case("/workers/0/users", json!(1_000_001), "workers[0].users is 1000001, must be a whole number from 0 to 1000000")]
#[case("/workers/0/state", json!("asleep"), "workers[0].state is \"asleep\", must be routable, nascent, draining or retiring")]
#[case("/workers/0/state", json!("nascent"), "workers[0].since_s is missing, must be given")]
#[case("/workers/0/since_s", json!("3"), "workers[0].since_s is \"3\", must be left out in this state")]
#[case("/workers/0/reception", json!(true), "workers[0].reception is true, which is not known here, must be left out; known are birth, name,")]
#[case("/workers/3/residents/1/user", json!("ann"), "workers[3].residents[1].user is \"ann\", must be a user that is not named twice on one worker")]
#[case("/workers/3/residents/1/user", json!(""), "workers[3].residents[1].user is \"\", must be a user id of 1 to 256 bytes without control characters")]
#[case("/workers/3/residents/1/stays", json!("gone"), "workers[3].residents[1].stays is \"gone\", must be pinned_stream or package_too_large, or backing_off with until_s")]
#[case(
    "/workers",
    Value::Null,
    "workers is missing, must be an array of workers, [] for none"
)]
#[case("/answer", json!([]), "answer is [], must be an object")]
fn what_is_not_known_or_possible_is_refused_by_name(
    #[case] at: &str,
    #[case] value: Value,
    #[case] expected: &str,
) {
    let mut line: Value = serde_json::from_str(&four_workers().to_json()).unwrap();
    let (parent, field) = at.rsplit_once('/').unwrap();
    line.pointer_mut(parent).unwrap()[field] = value;
    let error = Saved::parse(&line.to_string()).unwrap_err().to_string();
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn a_replay_names_what_differs_from_the_answer_given_then() {
    let answered = four_workers().answered();
    assert_eq!(answered.replayed(), Some(Ok(())));
    assert_eq!(four_workers().replayed(), None);
    let changed = answered.to_json().replace("\"spawn\":0", "\"spawn\":2");
    let differs = Saved::parse(&changed).unwrap().replayed().unwrap().unwrap_err();
    assert_eq!(differs.len(), 1);
    assert_eq!(differs[0].to_string(), "growth.spawn: expected 2, found 0");
}

#[test]
fn a_snapshot_that_somebody_kept_is_still_read_and_written_alike() {
    let saved = Saved::parse(KEPT).unwrap();
    assert_eq!(saved.to_json(), KEPT);
    assert_eq!(saved.group().living(), 4);
    assert_eq!(saved.users(Birth(1_099_511_627_777)).len(), 2);
}
