//! What the engine costs: prints lines `figure NAME VALUE UNIT`, medians over interleaved rounds, one thread.
//!
//! | figure | meaning |
//! |---|---|
//! | `report_cost_us_N` | one report in a group of N workers: window, reading, index, silence, ledger, the whole plan; the dearest of the states below |
//! | `report_cost_us_N_STATE` | the same in one state |
//! | `placement_cost_us_10000` | one login among 10,000 workers, the dearest of: kept, passed to the least occupied, nobody has room |
//! | `plan_cost_ms_1000x10` | plans of 1,000 groups of 10 workers, one after the other |
//! | `window_kib_per_worker` | resident memory of a worker with a full window and all that the group's index holds of it |
//!
//! States: `steady` within the margin; `draining` above the margin while a compaction drain runs; `refused` above the margin, and without the
//! victim the group would grow again (C2); `full` more workers than `max`, and no survivor could take more (C8); `cold` above the
//! margin while workers of an earlier term warm up (E5); `passed` above the margin, and nobody can be emptied for now (C7). In all of them
//! occupancies move with every report.

#![allow(clippy::unwrap_used, reason = "a measurement may panic")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use elastic_pool_engine::capacity::SpawnHistory;
use elastic_pool_engine::forward::Forwards;
use elastic_pool_engine::group::{Drain, DrainKind, DrainProgress};
use elastic_pool_engine::occupancy::{Reading, stale_from};
use elastic_pool_engine::placement::place;
use elastic_pool_engine::report::{Executor, Report};
use elastic_pool_engine::window::{Row, Window};
use elastic_pool_engine::{Birth, Group, Policy, Share, Snapshot, WorkerState, WorkerView, plan};

const ROUNDS: usize = 9;
const REPORTS: usize = 20_000;
const START: Duration = Duration::from_secs(100_000);

fn main() {
    println!("figure window_kib_per_worker {:.2} KiB", window_kib());
    for workers in [100, 1_000, 10_000] {
        let mut pools: Vec<Pool> = STATES
            .into_iter()
            .map(|state| Pool::new(state, workers))
            .collect();
        let mut worst = 0.0_f64;
        let mut costs = vec![Vec::new(); pools.len()];
        for _ in 0..ROUNDS {
            for (pool, costs) in pools.iter_mut().zip(&mut costs) {
                costs.push(per_item(REPORTS, || pool.report()));
            }
        }
        for (state, costs) in STATES.iter().zip(costs) {
            let cost = median(costs);
            worst = worst.max(cost);
            println!("figure report_cost_us_{workers}_{} {cost:.3} us", state.name());
        }
        println!("figure report_cost_us_{workers} {worst:.3} us");
    }
    println!("figure placement_cost_us_10000 {:.3} us", placement_us());
    println!("figure plan_cost_ms_1000x10 {:.3} ms", plans_ms());
}

/// Microseconds per call.
fn per_item(items: usize, mut work: impl FnMut()) -> f64 {
    #[expect(clippy::disallowed_methods, reason = "it measures time")]
    let began = Instant::now();
    (0..items).for_each(|_| work());
    began.elapsed().as_secs_f64() * 1e6 / items as f64
}

fn median(mut costs: Vec<f64>) -> f64 {
    costs.sort_by(f64::total_cmp);
    costs[costs.len() / 2]
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    Steady,
    Draining,
    Refused,
    Full,
    Cold,
    Passed,
}

const STATES: [State; 6] = [
    State::Steady,
    State::Draining,
    State::Refused,
    State::Full,
    State::Cold,
    State::Passed,
];

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Draining => "draining",
            Self::Refused => "refused",
            Self::Full => "full",
            Self::Cold => "cold",
            Self::Passed => "passed",
        }
    }

    /// The code of the last reason in this state: what is measured is what is meant.
    fn code(self) -> &'static str {
        match self {
            Self::Steady => "within_margin",
            Self::Draining => "drain_running",
            Self::Refused => "would_grow_again",
            Self::Full => "above_max_full",
            Self::Cold => "warming_up",
            Self::Passed => "no_victim",
        }
    }

    /// Busy cores of a worker around which its load swings, and how far.
    fn load(self, worker: usize, workers: usize) -> (f64, f64) {
        match (self, worker) {
            (Self::Steady | Self::Refused, 0) => (0.0, 0.0),
            (Self::Refused, w) if w == workers / 2 => (0.05, 0.0),
            (Self::Refused, _) => (0.800_001, 1e-6),
            (Self::Steady, w) if w % 2 == 0 => (0.75, 0.04),
            (Self::Steady, _) => (0.85, 0.04),
            (Self::Full, _) => (0.9995, 2e-4),
            (Self::Draining | Self::Cold | Self::Passed, _) => (0.4, 0.2),
        }
    }

    fn policy(self, workers: usize) -> Policy {
        let policy = Policy::default();
        match self {
            Self::Full => Policy {
                max: Some(workers - 1),
                ..policy
            },
            _ => policy,
        }
    }
}

/// A group whose workers report one after the other, each once an interval.
struct Pool {
    policy: Policy,
    group: Group,
    windows: Vec<Window>,
    loads: Vec<(f64, f64)>,
    spawns: SpawnHistory,
    sent: u64,
}

impl Pool {
    fn new(state: State, workers: usize) -> Self {
        let view = |w: usize| WorkerView {
            users: 20,
            warm: state != State::Cold || !w.is_multiple_of(100),
            passed_over_until: (state == State::Passed).then_some(Duration::MAX),
            ..WorkerView::new(Birth(w as u64 + 1), &format!("shop-blue-{w:05}"))
        };
        let mut pool = Self {
            policy: state.policy(workers),
            group: (0..workers).map(view).collect(),
            windows: vec![Window::new(Window::ROWS, "a"); workers],
            loads: (0..workers).map(|w| state.load(w, workers)).collect(),
            spawns: SpawnHistory::default(),
            sent: 0,
        };
        if state == State::Draining {
            let drain = Drain {
                kind: DrainKind::Compaction,
                since: START,
                progress: DrainProgress::Running,
            };
            let state = WorkerState::Draining(drain);
            pool.group
                .update(Birth(workers as u64), |worker| worker.state = state);
        }
        // Windows are filled and every worker has reported before anything is measured.
        (0..workers * Window::ROWS).for_each(|_| pool.arrive());
        let plan = pool.plan();
        assert_eq!(plan.reasons().last().map(|why| why.code), Some(state.code()));
        pool
    }

    fn now(&self) -> Duration {
        START
            + self
                .policy
                .interval
                .mul_f64(self.sent as f64 / self.windows.len() as f64)
    }

    /// One report, and all that follows from it.
    fn report(&mut self) {
        self.arrive();
        black_box(self.plan());
    }

    fn arrive(&mut self) {
        let now = self.now();
        // In order of arrival, not of birth: neighbours in memory do not report one after the other.
        let workers = self.windows.len();
        let worker = (usize::try_from(self.sent).unwrap() * 7919) % workers;
        let tick = self.sent / workers as u64;
        self.sent += 1;
        let (load, swing) = self.loads[worker];
        // Six rows up and six down, so that smoothed occupancies move too; half of the workers each way.
        let up = (tick / 6 + worker as u64 / 2).is_multiple_of(2);
        let cpu = if up { load + swing } else { load - swing };
        let (report, _) = busy_report(cpu, tick).sanitised();
        let row = Row {
            at: now,
            report,
            forward: Forwards {
                requests: tick * 1234,
                errors: tick / 7,
                seconds: tick as f64 * 1.375,
            },
        };
        let window = &mut self.windows[worker];
        window.accept("a", tick + 1, row).unwrap();
        let reading = Reading::of(window, self.policy.smoothing_rows, &self.policy.limits);
        let from = stale_from(Some(now), self.policy.interval);
        self.group.update(Birth(worker as u64 + 1), |view| {
            view.occupancy = reading.occupancy;
            view.stale = reading.is_unmeasured(view.users > 0);
            view.stale_from = from;
        });
        black_box(self.group.expire(now));
    }

    fn plan(&self) -> elastic_pool_engine::Plan {
        plan(
            &Snapshot {
                group: &self.group,
                policy: &self.policy,
                spawns: &self.spawns,
            },
            self.now(),
        )
    }
}

/// Every field is there, as a busy worker's are.
fn busy_report(cpu: f64, tick: u64) -> Report {
    let tick = tick as f64;
    Report {
        users: Some(200.0 + tick % 50.0),
        pages: Some(450.0 + tick % 90.0),
        connections: Some(380.0 + tick % 70.0),
        active_users: Some(60.0 + tick % 40.0),
        executor: Executor {
            busy: Some(0.0),
            total: Some(32.0),
            queue_depth: Some(tick % 3.0),
        },
        cpu: Some(cpu),
        rss: Some(412_345_678.0 + tick * 4096.0),
        backlog_pending: Some(tick % 5.0),
        backlog_outbox: Some(tick % 4.0),
        load: Some(1.37 + tick / 128.0),
    }
}

fn placement_us() -> f64 {
    let pool = |loads: fn(u64) -> u32| -> Group {
        let view = |birth| WorkerView {
            occupancy: Share::from_percent(loads(birth)),
            ..WorkerView::new(Birth(birth), "shop-blue")
        };
        (1..=10_000).map(view).collect()
    };
    let kept = pool(|_| 40);
    let passed = pool(|birth| 60 + (birth % 30) as u32);
    let full = pool(|birth| 80 + (birth % 20) as u32);
    let policy = Policy::default();
    let cost = |group: &Group| {
        let round = |_| per_item(REPORTS, || drop(black_box(place(group, &policy, None))));
        median((0..ROUNDS).map(round).collect())
    };
    [kept, passed, full].iter().map(cost).fold(0.0, f64::max)
}

fn plans_ms() -> f64 {
    let pools: Vec<Pool> = (0..1_000)
        .map(|i| Pool::new(STATES[i % STATES.len()], 10))
        .collect();
    let round = |_| {
        let mut turn = pools.iter();
        per_item(pools.len(), || drop(black_box(turn.next().unwrap().plan())))
    };
    // Microseconds per plan are milliseconds per thousand of them.
    median((0..ROUNDS).map(round).collect())
}

/// Resident bytes before and after, as the kernel counts them: allocator and rounding included.
fn window_kib() -> f64 {
    const WORKERS: usize = 20_000;
    let before = resident_kib();
    let pool = Pool::new(State::Steady, WORKERS);
    let after = resident_kib();
    black_box(&pool.windows);
    (after - before) / WORKERS as f64
}

fn resident_kib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}
