//! Figures of the backups at the destination.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use gridhook_event::Timestamp;

/// Figures of the backups at the destination, for metrics.
#[derive(Debug, Default)]
pub struct BackupFigures {
    last_success: AtomicU64,
    micros: AtomicU64,
    bytes: AtomicU64,
    written_bytes: AtomicU64,
    failures: AtomicU64,
}

/// The present values of [`BackupFigures`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupCounts {
    /// The time at which the newest sound backup was begun.
    pub last_success: Option<Timestamp>,
    /// Duration of the last backup.
    pub duration: Duration,
    /// Size of all files of the last backup.
    pub bytes: u64,
    /// Bytes that the last backup wrote: unchanged pieces are not written again.
    pub written_bytes: u64,
    /// Failures since the process started.
    pub failures: u64,
}

impl BackupFigures {
    pub fn current_counts(&self) -> BackupCounts {
        let [last_success, micros, bytes, written_bytes, failures] = [
            &self.last_success,
            &self.micros,
            &self.bytes,
            &self.written_bytes,
            &self.failures,
        ]
        .map(|figure| figure.load(Ordering::Relaxed));
        let last_success = Some(Timestamp(last_success)).filter(|last| last.0 > 0);
        BackupCounts {
            last_success,
            duration: Duration::from_micros(micros),
            bytes,
            written_bytes,
            failures,
        }
    }

    pub(super) fn note_made(&self, duration: Duration, bytes: u64, written_bytes: u64) {
        self.micros.store(
            u64::try_from(duration.as_micros()).unwrap_or(u64::MAX),
            Ordering::Relaxed,
        );
        self.bytes.store(bytes, Ordering::Relaxed);
        self.written_bytes.store(written_bytes, Ordering::Relaxed);
    }

    pub(super) fn note_success(&self, begun: Timestamp) {
        self.last_success.fetch_max(begun.0, Ordering::Relaxed);
    }

    pub(super) fn note_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }
}
