//! What is measured and how full that is (M2-M4, E1-E5).

use std::time::Duration;

use elastic_pool_engine::forward::Forwards;
use elastic_pool_engine::occupancy::{Components, Limits, Rates, Reading, history, stale_from};
use elastic_pool_engine::report::{Executor, Report};
use elastic_pool_engine::window::{Row, Window};
use elastic_pool_engine::{Birth, Group, Policy, Share, WorkerView};
use proptest::prelude::*;

use crate::world::{NOW, config, planned};

/// Readings: usual ones, edges, and any bit pattern.
fn reading() -> impl Strategy<Value = Option<f64>> {
    let edge = prop::sample::select(vec![
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        -0.0,
        -1e-300,
        f64::MIN_POSITIVE,
        f64::MAX,
        9_007_199_254_740_992.0,
        9_007_199_254_740_994.0,
    ]);
    prop_oneof![
        1 => Just(None),
        4 => (0.0..2.0).prop_map(Some),
        1 => (0.0..1e9).prop_map(Some),
        1 => edge.prop_map(Some),
        1 => any::<f64>().prop_map(Some),
    ]
}

fn report() -> impl Strategy<Value = Report> {
    prop::array::uniform12(reading()).prop_map(|[a, b, c, d, e, f, g, h, i, j, k, l]| Report {
        users: a,
        pages: b,
        connections: c,
        active_users: d,
        executor: Executor {
            busy: e,
            total: f,
            queue_depth: g,
        },
        cpu: h,
        rss: i,
        backlog_pending: j,
        backlog_outbox: k,
        load: l,
    })
}

/// A report of usual figures, quick to make.
fn usual_report() -> impl Strategy<Value = Report> {
    let some = |most: u32| prop::option::weighted(0.8, (0..most).prop_map(f64::from));
    (some(150), some(700), some(12), some(10)).prop_map(|(cpu, megabytes, busy, total)| Report {
        cpu: cpu.map(|percent| percent / 100.0),
        rss: megabytes.map(|megabytes| megabytes * 1e6),
        executor: Executor {
            busy,
            total,
            queue_depth: None,
        },
        ..Report::default()
    })
}

fn limits() -> impl Strategy<Value = Limits> {
    let memory = prop_oneof![
        Just(None),
        Just(Some(0)),
        any::<u64>().prop_map(Some),
        Just(Some(1 << 29))
    ];
    let cores = prop_oneof![Just(1.0), 0.05..4.0, Just(0.0), any::<f64>()];
    (memory, cores).prop_map(|(memory_bytes, cpu_cores)| Limits {
        memory_bytes,
        cpu_cores,
    })
}

fn window(reports: &[Report]) -> Window {
    let mut window = Window::new(60, "a");
    for (report, second) in reports.iter().zip(0u32..) {
        window.push(Row {
            at: Duration::from_secs(5) * second,
            report: *report,
            forward: Forwards::default(),
        });
    }
    window
}

fn is_possible(value: f64) -> bool {
    value >= 0.0 && value <= 2f64.powi(53)
}

fn values(report: &Report) -> [Option<f64>; 12] {
    let Executor {
        busy,
        total,
        queue_depth,
    } = report.executor;
    let (pending, outbox) = (report.backlog_pending, report.backlog_outbox);
    [
        report.users,
        report.pages,
        report.connections,
        report.active_users,
        busy,
        total,
        queue_depth,
        report.cpu,
        report.rss,
        pending,
        outbox,
        report.load,
    ]
}

/// E1 in floats: part of the whole, cut to 0..1; nothing where one of them says nothing.
fn ratio(part: Option<f64>, whole: Option<f64>) -> Option<f64> {
    let (part, whole) = (
        part.filter(|part| *part >= 0.0)?,
        whole.filter(|whole| *whole > 0.0)?,
    );
    Some((part / whole).min(1.0))
}

fn mean(of: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let present: Vec<f64> = of.flatten().collect();
    (!present.is_empty()).then(|| present.iter().sum::<f64>() / present.len() as f64)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn m2_an_impossible_reading_becomes_absent_and_is_named(report in report()) {
        let (clean, rejected) = report.sanitised();
        let impossible = values(&report).iter().flatten().filter(|value| !is_possible(**value)).count();
        prop_assert_eq!(rejected.len(), impossible);
        prop_assert!(values(&clean).iter().flatten().all(|value| is_possible(*value)));
        let executor_spoilt = rejected.iter().any(|name| matches!(*name, "executor.busy" | "executor.total"));
        for (place, (before, after)) in values(&report).into_iter().zip(values(&clean)).enumerate() {
            let spoilt = executor_spoilt && (place == 4 || place == 5);
            let expected = before.filter(|value| is_possible(*value) && !spoilt);
            prop_assert_eq!(after, expected);
        }
        prop_assert_eq!(clean.sanitised(), (clean, vec![]));
    }

    #[test]
    fn m2_garbage_changes_no_decision(
        reports in prop::collection::vec(prop::collection::vec(report(), 0..8), 1..5),
        limits in limits(),
        users in 0usize..3,
    ) {
        let absent = |report: &Report| {
            let possible = |value: Option<f64>| value.filter(|value| is_possible(*value));
            let executor = report.executor;
            let spoilt = [executor.busy, executor.total].into_iter().flatten().any(|value| !is_possible(value));
            Report {
                cpu: possible(report.cpu),
                rss: possible(report.rss),
                executor: if spoilt { Executor::default() } else { executor },
                ..Report::default()
            }
        };
        let plan = |clean: &dyn Fn(&Report) -> Report| {
            let view = |(reports, birth): (&Vec<Report>, u64)| {
                let reports: Vec<Report> = reports.iter().map(clean).collect();
                let reading = Reading::of(&window(&reports), 6, &limits);
                WorkerView {
                    occupancy: reading.occupancy,
                    stale: reading.is_unmeasured(users > 0),
                    users,
                    ..WorkerView::new(Birth(birth), "w")
                }
            };
            let group: Group = reports.iter().zip(1..).map(view).collect();
            planned(&group, &Policy::default())
        };
        prop_assert_eq!(plan(&|report| report.sanitised().0), plan(&absent));
    }

    #[test]
    fn e1_a_component_is_a_share_of_one_whatever_is_reported(report in report(), limits in limits()) {
        // Without the sanitising too: nothing else may lean on it.
        for report in [report, report.sanitised().0] {
            let found = Components::of(&report, &limits);
            for (name, share) in found.present() {
                prop_assert!(share >= Share::ZERO && share <= Share::ONE, "{} {}", name, share);
            }
            let memory = ratio(report.rss, limits.memory_bytes.map(|bytes| bytes as f64));
            prop_assert_eq!(found.memory, memory.and_then(Share::from_f64));
            // One core is an interpreter lock's wall.
            let cpu = ratio(report.cpu, Some(limits.cpu_cores.min(1.0)));
            prop_assert_eq!(found.cpu, cpu.and_then(Share::from_f64));
            let executor = ratio(report.executor.busy.or(Some(0.0)), report.executor.total);
            prop_assert_eq!(found.executor, executor.and_then(Share::from_f64));
        }
    }

    #[test]
    fn e2_occupancy_is_the_largest_of_the_means_over_the_smoothing_rows(
        reports in prop::collection::vec(report().prop_map(|report| report.sanitised().0), 0..12),
        smoothing in 1usize..10,
        limits in limits(),
    ) {
        let reading = Reading::of(&window(&reports), smoothing, &limits);
        let last = &reports[reports.len().saturating_sub(smoothing)..];
        let memory = mean(last.iter().map(|r| ratio(r.rss, limits.memory_bytes.map(|bytes| bytes as f64))));
        let cpu = mean(last.iter().map(|r| ratio(r.cpu, Some(limits.cpu_cores.min(1.0)))));
        let executor = mean(last.iter().map(|r| ratio(r.executor.busy.or(Some(0.0)), r.executor.total)));
        let near = |found: Option<Share>, expected: Option<f64>| match (found, expected) {
            (Some(found), Some(expected)) => (found.as_f64() - expected).abs() < 1e-9,
            (found, expected) => found.is_none() && expected.is_none(),
        };
        let found = reading.components;
        prop_assert!(near(found.memory, memory), "{:?} {:?}", found, memory);
        prop_assert!(near(found.cpu, cpu), "{:?} {:?}", found, cpu);
        prop_assert!(near(found.executor, executor), "{:?} {:?}", found, executor);
        let largest = [memory, cpu, executor].into_iter().flatten().fold(0.0, f64::max);
        prop_assert!(near(Some(reading.occupancy), Some(largest)), "{:?} {}", reading, largest);
        prop_assert_eq!(reading.rows, last.len());
        // E3, and E5's second half.
        prop_assert!(!reading.is_unmeasured(false));
        let unmeasured = !last.is_empty() && memory.or(cpu).or(executor).is_none();
        prop_assert_eq!(reading.is_unmeasured(true), unmeasured);
    }

    #[test]
    fn e4_history_and_rates_cover_the_whole_window(
        rows in prop::collection::vec((usual_report(), 0u32..900, 0u64..9), 0..70),
    ) {
        let reports: Vec<Report> = rows.iter().map(|row| row.0).collect();
        let seconds: Vec<f64> = rows.iter().map(|row| f64::from(row.1) / 100.0).collect();
        let requests: Vec<u64> = rows.iter().map(|row| row.2).collect();
        let limits = Limits { memory_bytes: Some(1 << 29), cpu_cores: 1.0 };
        let mut window = Window::new(60, "a");
        let mut forward = Forwards::default();
        for (place, report) in reports.iter().enumerate() {
            forward.add(Forwards { requests: requests[place], errors: 0, seconds: seconds[place] });
            let at = Duration::from_secs(5 * (place as u64 / 2));
            window.push(Row { at, report: *report, forward });
        }
        let kept = &reports[reports.len().saturating_sub(60)..];
        let fullest = |report: &Report| {
            let Components { memory, cpu, executor } = Components::of(report, &limits);
            [memory, cpu, executor].into_iter().flatten().max().unwrap_or(Share::ZERO)
        };
        prop_assert_eq!(history(&window, &limits), kept.iter().map(fullest).collect::<Vec<_>>());
        let rates = Rates::of(&window);
        let rows: Vec<Row> = window.rows().collect();
        let elapsed = rows.last().map_or(0.0, |last| last.at.saturating_sub(rows[0].at).as_secs_f64());
        if elapsed > 0.0 {
            let skipped = reports.len() - kept.len() + 1;
            let done: u64 = requests[skipped..reports.len()].iter().sum();
            let took: f64 = seconds[skipped..reports.len()].iter().sum();
            prop_assert_eq!(rates.rps, Some(done as f64 / elapsed));
            let latency = rates.latency_ms;
            prop_assert_eq!(latency.is_some(), done > 0);
            prop_assert!(latency.is_none_or(|ms| (ms - took / done as f64 * 1000.0).abs() < 1e-6));
        } else {
            prop_assert_eq!(rates, Rates::default());
        }
    }

    #[test]
    fn e5_silence_of_three_intervals_makes_unknown(last in 0u64..=u64::MAX, interval in 0u64..=u64::MAX, after in 0u64..100) {
        let (last, interval) = (Duration::from_secs(last), Duration::from_nanos(interval));
        let from = stale_from(Some(last), interval).unwrap();
        prop_assert_eq!(from, last.saturating_add(interval * 3));
        let mut group = Group::from_iter([WorkerView { stale_from: Some(from), ..WorkerView::new(Birth(1), "w") }]);
        let just_before = from.saturating_sub(Duration::from_nanos(1));
        prop_assert!(just_before == from || group.expire(just_before).is_empty());
        prop_assert_eq!(group.expire(from.saturating_add(Duration::from_secs(after))), [Birth(1)]);
        prop_assert_eq!(stale_from(None, interval), None);
    }

    #[test]
    fn m3_a_repeated_older_or_foreign_report_is_dropped(
        arrivals in prop::collection::vec((0u64..12, 0u8..2, any::<bool>()), 0..40),
        keep in 0usize..20,
    ) {
        let names = ["a", "b"];
        let mut window = Window::new(keep, "a");
        let (mut incarnation, mut last, mut kept) = ("a", None, Vec::new());
        for ((sequence, from, announces), second) in arrivals.into_iter().zip(0u64..) {
            let from = names[usize::from(from)];
            if announces {
                window.announce(from);
                if from != incarnation {
                    (incarnation, last) = (from, None);
                }
            }
            let at = NOW + Duration::from_secs(second);
            let row = Row { at, report: Report::default(), forward: Forwards::default() };
            let fits = from == incarnation && last.is_none_or(|last| sequence > last);
            prop_assert_eq!(window.accept(from, sequence, row).is_ok(), fits);
            if fits {
                last = Some(sequence);
                kept.push(at);
            }
        }
        let kept = &kept[kept.len().saturating_sub(keep.max(1))..];
        prop_assert_eq!(window.rows().map(|row| row.at).collect::<Vec<_>>(), kept);
        prop_assert_eq!(window.last_at(), kept.last().copied());
        let since = NOW + Duration::from_secs(20);
        prop_assert_eq!(window.rows_since(since), kept.iter().filter(|at| **at >= since).count());
    }

    #[test]
    fn m4_a_window_gives_back_the_rows_that_it_took(
        reports in prop::collection::vec((report().prop_map(|report| report.sanitised().0), any::<(u64, u64)>()), 0..12),
        keep in 1usize..9,
        seconds in any::<f64>(),
    ) {
        let seconds = if seconds.is_nan() { 0.0 } else { seconds };
        let row = |(report, (at, requests)): &(Report, (u64, u64))| Row {
            at: Duration::from_nanos(*at),
            report: *report,
            forward: Forwards { requests: *requests, errors: requests / 2, seconds },
        };
        let rows: Vec<Row> = reports.iter().map(row).collect();
        let mut window = Window::new(keep, "a");
        for row in &rows {
            window.push(*row);
        }
        let kept = &rows[rows.len().saturating_sub(keep)..];
        prop_assert_eq!(window.rows().collect::<Vec<_>>(), kept);
        let last = &kept[kept.len().saturating_sub(3)..];
        prop_assert_eq!(window.last(3).collect::<Vec<_>>(), last);
    }

    #[test]
    fn m4_no_total_ever_falls(steps in prop::collection::vec((0u64..3, 0u8..2, 0u64..100, any::<f64>()), 0..30)) {
        let mut sum = elastic_pool_engine::forward::ForwardSum::default();
        let mut before = sum.total();
        for (gateway, incarnation, requests, seconds) in steps {
            let totals = Forwards { requests, errors: requests / 3, seconds };
            sum.observe(elastic_pool_engine::GatewayId(gateway), ["a", "b"][usize::from(incarnation)], totals);
            let after = sum.total();
            prop_assert!(after.requests >= before.requests && after.errors >= before.errors);
            prop_assert!(after.seconds >= before.seconds, "{:?} {:?}", before, after);
            before = after;
        }
    }
}
