//! What the processes of one world share beside the network: history, cluster, chance, and what was set off.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use elastic_pool::net::sim::{Process, Random};
use parking_lot::Mutex;

use crate::cluster::Cluster;
use crate::faults::{Act, Armed};
use crate::history::{Event, History, Standing};
use crate::steps::Step;
use crate::world::Role;

/// What all processes of one world share beside the network.
pub(crate) struct Shared {
    pub(crate) history: Mutex<History>,
    pub(crate) cluster: Mutex<Cluster>,
    pub(crate) random: Mutex<Random>,
    now: AtomicU64,
    pressure: AtomicU64,
    corrupt: AtomicBool,
    stopped: AtomicBool,
    over: AtomicBool,
    requests: AtomicU64,
    lives: AtomicU64,
    roles: Mutex<BTreeMap<Process, Role>>,
    pub(crate) armed: Mutex<Vec<Armed>>,
    /// Acts that a message has set off: when, and what.
    pub(crate) due: Mutex<Vec<(u64, Act)>>,
    served: Mutex<BTreeSet<String>>,
    copies: Mutex<BTreeMap<(String, String), (u64, Standing)>>,
    /// Lives that were served.
    counted: Mutex<BTreeSet<u64>>,
}

impl Shared {
    pub(crate) fn new(random: Random, min: u32) -> Self {
        Self {
            history: Mutex::default(),
            cluster: Mutex::new(Cluster::new(min)),
            random: Mutex::new(random),
            now: AtomicU64::new(0),
            pressure: AtomicU64::new(5),
            corrupt: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            over: AtomicBool::new(false),
            requests: AtomicU64::new(0),
            lives: AtomicU64::new(0),
            roles: Mutex::default(),
            armed: Mutex::default(),
            due: Mutex::default(),
            served: Mutex::default(),
            copies: Mutex::default(),
            counted: Mutex::default(),
        }
    }

    /// Time goes on: what it is now, in milliseconds.
    pub(crate) fn tick(&self, step: u64) -> u64 {
        let now = self.now.fetch_add(step, Relaxed) + step;
        self.history.lock().now = now;
        now
    }

    pub(crate) fn is_now(&self, process: Process, role: Role) {
        self.roles.lock().insert(process, role);
    }

    /// Nothing is broken from here on.
    pub(crate) fn faults_stop(&self) {
        self.armed.lock().clear();
        self.due.lock().clear();
        self.cluster.lock().cut.clear();
        self.take_corruption();
        self.note(Event::FaultsStop);
        self.stopped.store(true, Relaxed);
    }

    /// The browsers may go.
    pub(crate) fn end(&self) {
        self.over.store(true, Relaxed);
    }

    pub(crate) fn served_browsers(&self) -> usize {
        self.served.lock().len()
    }

    pub(crate) fn note(&self, event: Event) {
        match &event {
            Event::Holds {
                user,
                app,
                life,
                standing,
            } => {
                let key = (user.clone(), app.clone());
                if *standing == Standing::Gone {
                    self.copies.lock().remove(&key);
                } else {
                    self.copies.lock().insert(key, (*life, *standing));
                }
            }
            Event::Executed { life, .. } => {
                self.counted.lock().insert(*life);
            }
            Event::AppEnded { app } => self.copies.lock().retain(|(_, of), _| of != app),
            _ => {}
        }
        self.history.lock().note(event);
    }

    pub(crate) fn now(&self) -> u64 {
        self.now.load(Relaxed)
    }

    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.random.lock().below(bound)
    }

    pub(crate) fn new_request(&self) -> u64 {
        self.requests.fetch_add(1, Relaxed) + 1
    }

    pub(crate) fn new_life(&self) -> u64 {
        self.lives.fetch_add(1, Relaxed) + 1
    }

    /// How much of a hundred one user keeps busy.
    pub(crate) fn pressure(&self) -> u64 {
        self.pressure.load(Relaxed)
    }

    pub(crate) fn set_pressure(&self, pressure: u64) {
        self.pressure.store(pressure, Relaxed);
    }

    pub(crate) fn corrupt_next(&self) {
        self.corrupt.store(true, Relaxed);
    }

    pub(crate) fn take_corruption(&self) -> bool {
        self.corrupt.swap(false, Relaxed)
    }

    pub(crate) fn has_stopped(&self) -> bool {
        self.stopped.load(Relaxed)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    pub(crate) fn served(&self, browser: &str) {
        self.served.lock().insert(browser.to_owned());
    }

    pub(crate) fn role(&self, process: Process) -> Option<Role> {
        self.roles.lock().get(&process).cloned()
    }

    /// A message was written: what waits for it is set off.
    pub(crate) fn step(&self, step: &Step) {
        for armed in self.armed.lock().iter_mut() {
            if let Some((delay, act)) = armed.hit(step) {
                self.due.lock().push((self.now() + delay, act));
            }
        }
    }

    /// No copy is frozen, and every user who was served lives in one place. Not counted are slices of logins that were
    /// never served, and what somebody left in a process that nobody knew yet as another one than before (D1).
    pub(crate) fn is_clean(&self) -> bool {
        let (copies, counted) = (self.copies.lock(), self.counted.lock());
        let lives_in = |user: &String, first: bool| {
            let of_user = |((of, app), (life, _)): &(&(String, String), &(u64, Standing))| {
                of == user && counted.contains(life) && (!first || app.ends_with(".1"))
            };
            copies.iter().filter(of_user).count()
        };
        let settled = |user: &String| lives_in(user, false) <= 1 || lives_in(user, true) <= 1;
        let all_live = copies.values().all(|(_, standing)| *standing == Standing::Live);
        all_live && copies.keys().all(|(user, _)| settled(user))
    }
}
