//! Processor time, memory and file descriptors of this process, with the names of the standard
//! process metrics.

use std::{fs, io};

use rustix::{
    param::{clock_ticks_per_second, page_size},
    process::{Resource, getrlimit},
};

/// Figures of the process; [`None`] for what could not be read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProcessFigures {
    pub(crate) cpu_seconds: Option<f64>,
    pub(crate) start_time_seconds: Option<f64>,
    pub(crate) threads: Option<u64>,
    pub(crate) virtual_bytes: Option<u64>,
    pub(crate) resident_bytes: Option<u64>,
    pub(crate) open_files: Option<u64>,
    pub(crate) most_files: Option<u64>,
}

impl ProcessFigures {
    /// Reads the figures of this process from `/proc`. Blocks on files.
    pub(crate) fn read() -> Self {
        let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        // The fields start after the name, which may contain spaces and parentheses.
        let fields: Vec<&str> = stat
            .rsplit_once(')')
            .map_or("", |(_, rest)| rest)
            .split_whitespace()
            .collect();
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let seconds = |ticks: u64| ticks as f64 / clock_ticks_per_second() as f64;
        let cpu_ticks = field(14)
            .zip(field(15))
            .map(|(user, system)| seconds(user + system));
        Self {
            cpu_seconds: cpu_ticks,
            start_time_seconds: boot_time()
                .zip(field(22))
                .map(|(booted, ticks)| booted as f64 + seconds(ticks)),
            threads: field(20),
            virtual_bytes: field(23),
            resident_bytes: field(24).map(|pages| pages * page_size() as u64),
            open_files: open_files().ok(),
            most_files: getrlimit(Resource::Nofile).current,
        }
    }
}

/// Boot time of the machine, in seconds since 1970.
fn boot_time() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    stat.lines()
        .find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
}

fn open_files() -> io::Result<u64> {
    // Reading the folder takes one descriptor itself.
    Ok((fs::read_dir("/proc/self/fd")?.count() as u64).saturating_sub(1))
}
