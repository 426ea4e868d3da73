//! The scrub: reads all tables repeatedly, to detect damage before a damaged record is needed.
//!
//! A pass reads every record of every family at the configured rate, without filling the block
//! cache. If the log is damaged, each partition's log is then read, so that the gaps are known
//! exactly. A pass begins when the process starts, and the next one [`PASS_WAIT`] after its end. It
//! has a thread of the runtime that blocking tasks share.
//!
//! Not here: whether records are consistent with each other. `gridhook fsck` checks that.

use std::{
    ops::ControlFlow,
    sync::{Arc, mpsc},
    time::Duration,
};

use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::sleep,
};

use super::WriterStatus;
use gridhook_event::PartitionId;
use gridhook_store::{
    Family, Store, StoreError,
    damage::next_readable,
    keys,
    log::{read_log, walk::next_chunk},
    records::{FloorRecord, StoredRecord},
};

/// The time between two passes. Disks decay over months.
const PASS_WAIT: Duration = Duration::from_secs(6 * 60 * 60);

/// Bytes read between two pauses.
const SLICE: u64 = 256 << 10;

/// A handle to the scrub, which ends soon after this is dropped.
#[derive(Debug)]
pub struct Scrub {
    passes: Option<JoinHandle<()>>,
    /// A pass ends without it.
    _alive: mpsc::Sender<()>,
}

struct Ended;

impl Scrub {
    pub(super) fn start(
        store: Arc<dyn Store>,
        writers: Vec<Arc<WriterStatus>>,
        bytes_per_second: u64,
    ) -> Self {
        let (alive, ended) = mpsc::channel();
        let scrubber = Scrubber {
            store,
            writers,
            bytes_per_second,
            ended,
        };
        let passes = (bytes_per_second > 0).then(|| tokio::spawn(run_passes(scrubber)));
        Self {
            passes,
            _alive: alive,
        }
    }
}

impl Drop for Scrub {
    fn drop(&mut self) {
        self.passes.iter().for_each(JoinHandle::abort);
    }
}

/// Scrubs the store again and again.
async fn run_passes(mut scrubber: Scrubber) {
    loop {
        let pass = move || (scrubber.scrub_once(), scrubber);
        let Ok(outcome) = spawn_blocking(pass).await else {
            return;
        };
        match outcome.0 {
            Ok(()) => {}
            Err(ScrubEnd::Ended) => return,
            Err(ScrubEnd::Store(error)) => {
                return tracing::warn!(%error, "the scrub of the store failed");
            }
        }
        scrubber = outcome.1;
        sleep(PASS_WAIT).await;
    }
}

struct Scrubber {
    store: Arc<dyn Store>,
    writers: Vec<Arc<WriterStatus>>,
    bytes_per_second: u64,
    ended: mpsc::Receiver<()>,
}

enum ScrubEnd {
    Ended,
    Store(StoreError),
}

impl From<Ended> for ScrubEnd {
    fn from(_: Ended) -> Self {
        Self::Ended
    }
}

impl From<StoreError> for ScrubEnd {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Scrubber {
    fn scrub_once(&self) -> Result<(), ScrubEnd> {
        let Some(damage) = self.store.damage() else {
            return Ok(());
        };
        damage.begin_pass();
        let mut is_log_damaged = false;
        for family in Family::ALL {
            is_log_damaged |= self.read_family(family)? && family == Family::Log;
        }
        if is_log_damaged {
            for writer in &self.writers {
                for partition in writer.list_partitions() {
                    self.read_log(writer, partition)?;
                }
            }
        }
        damage.end_pass();
        let damaged_families = damage.read_summary().families;
        for family in Family::ALL
            .into_iter()
            .filter(|family| !damaged_families.contains(family))
        {
            self.store.set_compaction_paused(family, false);
        }
        Ok(())
    }

    /// Reads a family. Returns whether it is damaged.
    fn read_family(&self, family: Family) -> Result<bool, ScrubEnd> {
        let range = keys::full_range();
        let mut from = range.start;
        let mut is_damaged = false;
        loop {
            let mut bytes = 0;
            let mut last = Vec::new();
            let result = self
                .store
                .scan_uncached(family, &from, &range.end, &mut |key, value| {
                    bytes += (key.len() + value.len()) as u64;
                    last.clear();
                    last.extend_from_slice(key);
                    if bytes < SLICE {
                        ControlFlow::Continue(())
                    } else {
                        ControlFlow::Break(())
                    }
                });
            self.pace_reading(bytes)?;
            let is_whole = result.is_ok();
            match result {
                Ok(()) if bytes < SLICE => return Ok(is_damaged),
                Ok(()) => {}
                Err(StoreError::Damaged(_)) => is_damaged = true,
                Err(error @ (StoreError::Full | StoreError::Failed(_))) => return Err(error.into()),
            }
            if !last.is_empty() {
                // The least key after it.
                last.push(0);
                from = last;
            }
            if !is_whole {
                match next_readable(&*self.store, family, &from, &range.end)? {
                    Some(next) => from = next,
                    None => return Ok(is_damaged),
                }
            }
        }
    }

    /// Reads the log of a partition, which records its gaps.
    fn read_log(&self, writer: &WriterStatus, partition: PartitionId) -> Result<(), ScrubEnd> {
        let floor = self.store.get(Family::Meta, &keys::floor_key(partition))?;
        let floor = floor
            .and_then(|floor| FloorRecord::decode(&floor).ok())
            .unwrap_or_default()
            .floor;
        let Some(end) = writer.log_end(partition).map(|end| end.next) else {
            return Ok(());
        };
        let mut at = floor;
        while at < end {
            let slice = read_log(&*self.store, partition, at, end, SLICE as usize)?;
            // A known gap is read again: its file may have been restored.
            if slice.is_missing
                && next_chunk(&*self.store, partition, at, at.plus(1))?.is_none()
                && let Some(damage) = self.store.damage()
            {
                damage.record_loss(partition, at, slice.upto);
            }
            self.pace_reading(
                slice
                    .chunks
                    .iter()
                    .map(|chunk| chunk.bytes_len() as u64)
                    .sum(),
            )?;
            at = slice.upto.max(at.plus(1));
        }
        Ok(())
    }

    /// Pauses for as long as reading this many bytes may take.
    fn pace_reading(&self, bytes: u64) -> Result<(), Ended> {
        self.store
            .damage()
            .into_iter()
            .for_each(|damage| damage.count_scrubbed(bytes));
        self.pause_for(Duration::from_secs_f64(
            bytes as f64 / self.bytes_per_second as f64,
        ))
    }

    fn pause_for(&self, time: Duration) -> Result<(), Ended> {
        match self.ended.recv_timeout(time) {
            Err(mpsc::RecvTimeoutError::Timeout) => Ok(()),
            Ok(()) | Err(mpsc::RecvTimeoutError::Disconnected) => Err(Ended),
        }
    }
}
