//! The duration of a sync of this disk under the load of a bench, the floor of a publisher's wait,
//! and its processor time.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use hdrhistogram::Histogram;

use super::{load::histogram, time::now};

/// The bytes of an append: about as many as a small group of publishes has.
const BYTES: usize = 1024;

/// The pause between two syncs, long enough that they are no load.
const PAUSE: Duration = Duration::from_millis(20);

/// Somebody who appends a little to a file and syncs it, again and again.
pub(crate) struct Probe {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Syncs>,
}

/// The result of a [`Probe`].
pub(crate) struct Syncs {
    /// The durations of the syncs, in nanoseconds.
    pub(crate) took: Histogram<u64>,
    /// The processor time of each sync with its append, in microseconds.
    pub(crate) each: f64,
}

impl Probe {
    /// Begins, with a file in `folder`.
    pub(crate) fn start(folder: &Path) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let path = folder.join("probe");
        let thread = thread::spawn(move || {
            let mut file = OpenOptions::new()
                .create(true)
                .append(true)
                .open(path)
                .expect("a file");
            let mut took = histogram();
            while !stopped.load(Ordering::Relaxed) {
                let began = now();
                file.write_all(&[0; BYTES])
                    .and_then(|()| file.sync_data())
                    .expect("a disk that takes it");
                took.saturating_record(now() - began);
                thread::sleep(PAUSE);
            }
            let each = processor().as_secs_f64() * 1e6 / took.len().max(1) as f64;
            Syncs { took, each }
        });
        Self { stop, thread }
    }

    /// Ends the probe, and returns its result.
    pub(crate) fn stop(self) -> Syncs {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("a probe does not panic")
    }
}

/// The processor time of this thread.
fn processor() -> Duration {
    let counts = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux counts it");
    let nanoseconds = counts
        .split_whitespace()
        .next()
        .and_then(|field| field.parse().ok());
    Duration::from_nanos(nanoseconds.expect("a number"))
}
