//! What /proc says of a process, and on which cores it may run.

use anyhow::{Context as _, bail};

/// CPU time that all threads of a process have used so far, in microseconds.
pub(crate) fn cpu_us(pid: u32) -> anyhow::Result<f64> {
    let mut sum = 0.0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).context("list threads")? {
        // The scheduler's own account, user and system time together; utime and stime count whole ticks of 10 ms.
        let text = std::fs::read_to_string(task?.path().join("schedstat")).context("read schedstat")?;
        let nanoseconds = text.split(' ').next().and_then(|field| field.parse::<f64>().ok());
        sum += nanoseconds.context("schedstat does not begin with a number")? / 1000.0;
    }
    Ok(sum)
}

/// Memory of a process, such as `VmRSS` (all that is resident) or `RssAnon` (its own, without the program's pages), in MiB.
pub(crate) fn memory_mib(pid: u32, what: &str) -> anyhow::Result<f64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).context("read status")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(what)?.strip_prefix(':'));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    Ok(kib.with_context(|| format!("status has no {what}"))? / 1024.0)
}

/// Lets all threads of a process run on these cores only, such as `1` or `0-1`.
pub(crate) async fn pin(pid: u32, cores: &str) -> anyhow::Result<()> {
    let done = tokio::process::Command::new("taskset")
        .args(["-a", "-c", "-p", cores, &pid.to_string()])
        .output()
        .await
        .context("start taskset")?;
    if !done.status.success() {
        bail!("taskset: {}", String::from_utf8_lossy(&done.stderr));
    }
    Ok(())
}

/// Lets the calling thread run before all others of its core as soon as it wakes; false where that is not allowed.
#[allow(dead_code, reason = "only the data path's latency needs it")]
pub(crate) fn urgent() -> bool {
    let Some(thread) = std::fs::read_link("/proc/thread-self")
        .ok()
        .and_then(|link| link.file_name().map(std::ffi::OsStr::to_owned))
    else {
        return false;
    };
    let done = std::process::Command::new("chrt")
        .args(["--fifo", "--pid", "1"])
        .arg(thread)
        .output();
    done.is_ok_and(|done| done.status.success())
}

/// Cores of this machine.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Load averages, for the reader to judge how quiet the machine was.
pub(crate) fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}
