//! What the system says of this process: processor, memory, files. Under the names that every exporter has for them.

use std::{fs, io};

use rustix::{
    param::{clock_ticks_per_second, page_size},
    process::{Resource, getrlimit},
};

/// A process. What could not be read is not there.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProcessFigures {
    pub(super) cpu_seconds: Option<f64>,
    pub(super) start_time_seconds: Option<f64>,
    pub(super) threads: Option<u64>,
    pub(super) virtual_bytes: Option<u64>,
    pub(super) resident_bytes: Option<u64>,
    pub(super) open_files: Option<u64>,
    pub(super) most_files: Option<u64>,
}

impl ProcessFigures {
    /// This one. Blocks: files are read.
    pub(super) fn read() -> Self {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // Behind the name, which may have spaces and parentheses.
        let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let seconds = |ticks: u64| ticks as f64 / clock_ticks_per_second() as f64;
        let used = field(14).zip(field(15)).map(|(user, system)| seconds(user + system));
        Self {
            cpu_seconds: used,
            start_time_seconds: booted().zip(field(22)).map(|(booted, ticks)| booted as f64 + seconds(ticks)),
            threads: field(20),
            virtual_bytes: field(23),
            resident_bytes: field(24).map(|pages| pages * page_size() as u64),
            open_files: files().ok(),
            most_files: getrlimit(Resource::Nofile).current,
        }
    }
}

/// When the machine was started: seconds since 1970.
fn booted() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
}

fn files() -> io::Result<u64> {
    // The look itself has one.
    Ok((fs::read_dir("/proc/self/fd")?.count() as u64).saturating_sub(1))
}
