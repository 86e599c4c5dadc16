//! CPU and memory of the app's processes, read from /proc; it computes no percentage and judges nothing.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::Duration;

use super::Measured;

/// USER_HZ, the unit of times in /proc/PID/stat; 100 on every Linux that Kubernetes runs on.
const TICKS_PER_SECOND: f64 = 100.0;
/// A container id is 64 hex digits; less than this could match by accident.
const SHORTEST_ID: usize = 12;

/// Times of one process, in ticks.
#[derive(Debug, Clone, Copy)]
struct Process {
    parent: u32,
    /// In user and kernel mode.
    own: u64,
    /// Of its children that ended and were waited for.
    children: u64,
    /// Since the machine's boot.
    started: u64,
}

/// A process number is used again; with its start time it is unique.
type Key = (u32, u64);

#[derive(Debug)]
struct Sample {
    at: Duration,
    processes: HashMap<Key, Process>,
}

/// One reading; what could not be measured is absent.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) struct Reading {
    /// CPU seconds per elapsed second since the previous reading.
    pub(crate) cpu: Option<f64>,
    /// Bytes, the sum over the processes.
    pub(crate) rss: Option<f64>,
    /// The machine's load average over a minute.
    pub(crate) load: Option<f64>,
}

/// Reads one app's processes.
#[derive(Debug)]
pub(crate) struct Sensor {
    root: PathBuf,
    measured: Measured,
    container: String,
    last: Option<Sample>,
}

/// Fields of /proc/PID/stat; the name in it may hold anything, so what counts comes after its last parenthesis.
fn parse_stat(text: &str) -> Option<Process> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    // Field n of proc(5) stands at n - 3. Waited children may be negative in old kernels: taken as 0.
    Some(Process {
        parent: u32::try_from(number(1)?).ok()?,
        own: number(11)?.checked_add(number(12)?)?,
        children: number(13).unwrap_or(0).checked_add(number(14).unwrap_or(0))?,
        started: number(19)?,
    })
}

impl Sensor {
    pub(crate) fn new(root: PathBuf, measured: Measured) -> Self {
        Self {
            root,
            measured,
            container: String::new(),
            last: None,
        }
    }

    /// The container to measure, as the pod's status names it (`containerd://ID`, or the bare id).
    pub(crate) fn set_container(&mut self, id: &str) {
        let id = id.rsplit('/').next().unwrap_or_default();
        if id.len() >= SHORTEST_ID && id.bytes().all(|b| b.is_ascii_alphanumeric()) {
            id.clone_into(&mut self.container);
        }
    }

    fn text(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.root.join(name)).ok()
    }

    fn pids(&self) -> Vec<u32> {
        let Ok(entries) = std::fs::read_dir(&self.root) else {
            return Vec::new();
        };
        entries
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .collect()
    }

    fn process(&self, pid: u32) -> Option<Process> {
        parse_stat(&self.text(&format!("{pid}/stat"))?)
    }

    /// Processes of the named container; of the only foreign one when it is not named, or is gone (it restarted).
    fn of_container(&self) -> Vec<u32> {
        let mut foreign: HashMap<String, Vec<u32>> = HashMap::new();
        let mut named = Vec::new();
        let group = |pid: &str| self.text(&format!("{pid}/cgroup"));
        let (own, pause) = (group("self"), group("1"));
        for pid in self.pids() {
            let Some(cgroup) = group(&pid.to_string()) else {
                continue;
            };
            if !self.container.is_empty() && cgroup.contains(&self.container) {
                named.push(pid);
            } else if Some(&cgroup) != own.as_ref() && Some(&cgroup) != pause.as_ref() {
                foreign.entry(cgroup).or_default().push(pid);
            }
        }
        if named.is_empty() && foreign.len() == 1 {
            return foreign.into_values().next().unwrap_or_default();
        }
        named
    }

    fn tree(&self, root: u32) -> HashMap<Key, Process> {
        let all: HashMap<u32, Process> = self
            .pids()
            .into_iter()
            .filter_map(|pid| Some((pid, self.process(pid)?)))
            .collect();
        let mut members: HashSet<u32> = all.contains_key(&root).then_some(root).into_iter().collect();
        loop {
            let more: Vec<u32> = all
                .iter()
                .filter(|(pid, process)| members.contains(&process.parent) && !members.contains(pid))
                .map(|(pid, _)| *pid)
                .collect();
            if more.is_empty() {
                break;
            }
            members.extend(more);
        }
        all.into_iter()
            .filter(|(pid, _)| members.contains(pid))
            .map(|(pid, p)| ((pid, p.started), p))
            .collect()
    }

    fn members(&self) -> HashMap<Key, Process> {
        match &self.measured {
            Measured::Nothing => HashMap::new(),
            Measured::Process(pid) => self.tree(*pid),
            Measured::ProcessFile(path) => {
                let pid = std::fs::read_to_string(path)
                    .ok()
                    .and_then(|text| text.trim().parse().ok());
                pid.map(|pid| self.tree(pid)).unwrap_or_default()
            }
            Measured::Container => {
                let pids = self.of_container().into_iter();
                pids.filter_map(|pid| self.process(pid).map(|p| ((pid, p.started), p)))
                    .collect()
            }
        }
    }

    /// When the app's oldest process started, in ticks since boot; absent when none is seen.
    pub(crate) fn started(&self) -> Option<u64> {
        self.members().values().map(|process| process.started).min()
    }

    /// True when processes are looked for at all.
    pub(crate) fn looks(&self) -> bool {
        self.measured != Measured::Nothing
    }

    fn rss(&self, pids: impl Iterator<Item = u32>) -> f64 {
        let kilobytes = pids.filter_map(|pid| {
            let status = self.text(&format!("{pid}/status"))?;
            let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
            line.split_ascii_whitespace().next()?.parse::<f64>().ok()
        });
        kilobytes.sum::<f64>() * 1024.0
    }

    /// Time of the previous reading.
    pub(crate) fn last_read(&self) -> Option<Duration> {
        self.last.as_ref().map(|sample| sample.at)
    }

    /// Reads now. CPU is absent the first time, and when nothing is seen.
    pub(crate) fn read(&mut self, now: Duration) -> Reading {
        let load = self
            .text("loadavg")
            .and_then(|text| text.split(' ').next()?.parse().ok());
        let processes = self.members();
        if processes.is_empty() {
            self.last = None;
            return Reading {
                load,
                ..Reading::default()
            };
        }
        let rss = Some(self.rss(processes.keys().map(|(pid, _)| *pid)));
        let cpu = self.last.as_ref().and_then(|last| {
            let elapsed = now.checked_sub(last.at)?.as_secs_f64();
            (elapsed > 0.0).then(|| used(&last.processes, &processes) as f64 / TICKS_PER_SECOND / elapsed)
        });
        self.last = Some(Sample { at: now, processes });
        Reading { cpu, rss, load }
    }
}

/// Ticks used between two samples. What a child used after it was last seen comes in through its parent's waited
/// children, less what was counted while it ran; a child that nobody here waited for takes nothing away.
fn used(before: &HashMap<Key, Process>, now: &HashMap<Key, Process>) -> u64 {
    let (mut own, mut waited) = (0, 0);
    for (key, process) in now {
        let last = before.get(key);
        own += process.own.saturating_sub(last.map_or(0, |last| last.own));
        waited += process
            .children
            .saturating_sub(last.map_or(0, |last| last.children));
    }
    let counted: u64 = before
        .iter()
        .filter(|(key, _)| !now.contains_key(*key))
        .map(|(_, ended)| ended.own + ended.children)
        .sum();
    own + u64::saturating_sub(waited, counted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const APP: &str = "0::/kubepods/pod1/0123456789abcdef";
    const AGENT: &str = "0::/kubepods/pod1/ffffffffffffffff";
    const PAUSE: &str = "0::/kubepods/pod1/aaaaaaaaaaaaaaaa";

    fn put(root: &Path, pid: &str, parent: u32, cgroup: &str, own: u64, children: u64) {
        let folder = root.join(pid);
        std::fs::create_dir_all(&folder).unwrap();
        let stat =
            format!("{pid} (a (b) c) S {parent} 0 0 0 0 0 0 0 0 0 {own} 0 {children} 0 20 0 1 0 77 0 0\n");
        std::fs::write(folder.join("stat"), stat).unwrap();
        std::fs::write(folder.join("cgroup"), format!("{cgroup}\n")).unwrap();
        std::fs::write(folder.join("status"), "Name:\tapp\nVmRSS:\t    2048 kB\n").unwrap();
    }

    fn proc_root() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "1", 0, PAUSE, 5, 0);
        put(root.path(), "self", 0, AGENT, 9999, 0);
        put(root.path(), "9", 0, AGENT, 9999, 0);
        put(root.path(), "20", 0, APP, 100, 0);
        put(root.path(), "21", 20, APP, 300, 0);
        std::fs::write(root.path().join("loadavg"), "0.50 0.40 0.30 1/2 3\n").unwrap();
        root
    }

    fn sensor(root: &Path, container: &str) -> Sensor {
        let mut sensor = Sensor::new(root.to_owned(), Measured::Container);
        sensor.set_container(container);
        sensor
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn only_the_apps_container_is_measured() {
        let root = proc_root();
        let mut sensor = sensor(root.path(), "containerd://0123456789abcdef");
        let first = sensor.read(at(10));
        assert_eq!(
            first,
            Reading {
                cpu: None,
                rss: Some(4.0 * 1024.0 * 1024.0),
                load: Some(0.5)
            }
        );
        put(root.path(), "20", 0, APP, 150, 0);
        put(root.path(), "9", 0, AGENT, 99_999, 0);
        assert_eq!(sensor.read(at(11)).cpu, Some(0.5));
        assert_eq!(sensor.started(), Some(77));
    }

    #[test]
    fn a_child_that_ended_is_counted_once() {
        let root = proc_root();
        let mut sensor = sensor(root.path(), "0123456789abcdef");
        sensor.read(at(10));
        // It used 20 more ticks before it ended; its parent waited for it.
        std::fs::remove_dir_all(root.path().join("21")).unwrap();
        put(root.path(), "20", 0, APP, 110, 320);
        assert_eq!(sensor.read(at(11)).cpu, Some(0.3));
    }

    #[test]
    fn an_orphan_that_ended_never_makes_a_negative() {
        let root = proc_root();
        let mut sensor = sensor(root.path(), "0123456789abcdef");
        sensor.read(at(10));
        std::fs::remove_dir_all(root.path().join("21")).unwrap();
        put(root.path(), "20", 0, APP, 110, 0);
        assert_eq!(sensor.read(at(11)).cpu, Some(0.1));
    }

    #[test]
    fn without_a_name_the_only_foreign_container_is_the_apps() {
        let root = proc_root();
        assert_eq!(sensor(root.path(), "").started(), Some(77));
        assert_eq!(
            sensor(root.path(), "eeeeeeeeeeeeeeee").started(),
            Some(77),
            "it restarted under a new id"
        );
        put(root.path(), "30", 0, "0::/kubepods/pod1/bbbbbbbbbbbbbbbb", 1, 0);
        assert_eq!(
            sensor(root.path(), "").started(),
            None,
            "two foreign ones are one too many"
        );
    }

    #[test]
    fn a_process_is_measured_with_its_descendants() {
        let root = proc_root();
        put(root.path(), "22", 21, PAUSE, 10, 0);
        let mut sensor = Sensor::new(root.path().to_owned(), Measured::Process(21));
        sensor.read(at(1));
        put(root.path(), "20", 0, APP, 900, 0);
        put(root.path(), "22", 21, PAUSE, 60, 0);
        assert_eq!(sensor.read(at(2)).cpu, Some(0.5));
    }

    #[test]
    fn nothing_seen_is_nothing_said() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(
            sensor(root.path(), "0123456789abcdef").read(at(1)),
            Reading::default()
        );
    }
}
