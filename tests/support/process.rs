//! Processor time, memory and writes of a process, from `/proc`.

use std::{collections::HashMap, fs, time::Duration};

/// Processor time of a process since its start, in user and system mode.
pub(crate) fn processor(id: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).expect("a process that runs");
    // Behind the name, which may have spaces: user and system time are the 12th and the 13th, in
    // hundredths.
    let (_, fields) = stat.rsplit_once(')').expect("a name");
    let ticks = fields
        .split_whitespace()
        .skip(11)
        .take(2)
        .map(|ticks| ticks.parse::<u64>().expect("a number"));
    Duration::from_millis(10 * ticks.sum::<u64>())
}

/// Resident memory of a process, in bytes.
pub(crate) fn resident(id: u32) -> u64 {
    memory(id, "VmRSS:")
}

/// The resident part without mapped files, of which the program itself is one: it grows with the
/// program.
pub(crate) fn anonymous(id: u32) -> u64 {
    memory(id, "RssAnon:")
}

/// The peak of the resident memory, in bytes.
pub(crate) fn most_resident(id: u32) -> u64 {
    memory(id, "VmHWM:")
}

fn memory(id: u32, which: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).expect("a process that runs");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(which))
        .expect("its memory");
    1024 * line
        .trim()
        .trim_end_matches(" kB")
        .parse::<u64>()
        .expect("a number of kilobytes")
}

/// Bytes that a process wrote to the disk; [`None`] if the system does not count them.
pub(crate) fn written(id: u32) -> Option<u64> {
    let io = fs::read_to_string(format!("/proc/{id}/io")).ok()?;
    io.lines()
        .find_map(|line| line.strip_prefix("write_bytes: "))?
        .parse()
        .ok()
}

/// The number of times that each thread of a process has waited, by the name of the thread's
/// folder.
pub(crate) fn waits(id: u32) -> HashMap<String, u64> {
    let mut waits = HashMap::new();
    for task in fs::read_dir(format!("/proc/{id}/task")).expect("a process that runs") {
        let task = task.expect("a thread").path();
        // A thread may end meanwhile.
        let Ok(status) = fs::read_to_string(task.join("status")) else {
            continue;
        };
        let count = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))
            .expect("its switches");
        let count = count.trim().parse().expect("a number");
        waits.insert(task.display().to_string(), count);
    }
    waits
}
