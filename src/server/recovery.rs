//! The progress of a store that is recovered, for `/readyz`: recovering a large log takes time, and
//! monitoring must not take that for a failure.

use std::{fs, path::Path};

use gridhook_admin::health::StepProgress;

/// How much of the write-ahead log in `store` has been read. RocksDB does not report it, so it is
/// taken from the positions of this process's open files.
pub(super) fn recovery_progress(store: &Path) -> Option<StepProgress> {
    let is_log = |path: &Path| path.extension().is_some_and(|extension| extension == "log");
    let mut logs: Vec<(String, u64)> = Vec::new();
    for entry in fs::read_dir(store)
        .ok()?
        .flatten()
        .filter(|entry| is_log(&entry.path()))
    {
        logs.push((
            entry.file_name().to_string_lossy().into_owned(),
            entry.metadata().ok()?.len(),
        ));
    }
    let store = store.canonicalize().ok()?;
    let mut reading: Option<(String, u64)> = None;
    for descriptor in fs::read_dir("/proc/self/fd").ok()?.flatten() {
        let Ok(path) = fs::read_link(descriptor.path()) else {
            continue;
        };
        if !is_log(&path) || path.parent() != Some(&store) {
            continue;
        }
        let info =
            fs::read_to_string(Path::new("/proc/self/fdinfo").join(descriptor.file_name())).ok()?;
        let at = info
            .lines()
            .find_map(|line| line.strip_prefix("pos:")?.trim().parse().ok())?;
        let name = path.file_name()?.to_string_lossy().into_owned();
        reading = reading.max(Some((name, at)));
    }
    let total_bytes = logs.iter().map(|(_, bytes)| bytes).sum();
    let (reading, at) = reading?;
    // The names are numbers with leading zeros, and the logs are read in that order.
    let before: u64 = logs
        .iter()
        .filter(|(name, _)| *name < reading)
        .map(|(_, bytes)| bytes)
        .sum();
    Some(StepProgress {
        done_bytes: (before + at).min(total_bytes),
        total_bytes,
    })
}
