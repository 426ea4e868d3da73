//! Looks ids up for duplicate detection, on a thread of its own for each writer. The writer serves
//! all topics of its shard, and must not read the disk for the ids of one.
//!
//! Invariants:
//! - Requests reach the writer in the order in which they came. Those that came together are looked
//!   up together.
//! - A lookup says which writes it includes ([`KnownIds::version`]). What was written later, the
//!   writer knows.
//! - Where a lookup fails, the writer reads the records itself.
//!
//! The thread starts with the first request, and ends with the journal.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, OnceLock, mpsc},
};

use super::{WriterEntry, WriterHandle};
use gridhook_store::{
    Family, Store, StoreError, keys,
    records::{PublishedId, StoredRecord as _},
};

/// The number of ids at which no further request joins a lookup.
const IDS_MAX: usize = 8192;

/// The records of a request's ids.
pub(super) struct KnownIds {
    /// The version of the written ids ([`super::WriterStatus::ids_version`]) when the lookup began.
    pub(super) version: u64,
    /// The record of each id, in the order of the events.
    pub(super) records: Vec<Option<PublishedId>>,
}

/// The thread of a writer.
#[derive(Default)]
pub(super) struct IdLookups(OnceLock<mpsc::Sender<WriterEntry>>);

impl IdLookups {
    /// Passes a request on to the writer once its ids are looked up.
    pub(super) fn look_up_and_send(
        &self,
        store: impl FnOnce() -> Arc<dyn Store>,
        writer: &Arc<WriterHandle>,
        entry: WriterEntry,
    ) {
        let thread = self.0.get_or_init(|| start(store(), Arc::clone(writer)));
        // If the thread has ended, the entry is dropped, and the caller gets an error.
        thread.send(entry).ok();
    }

    /// Makes the writer end after the requests that have come.
    pub(super) fn close(&self, writer: &WriterHandle) {
        let was_passed_on = self
            .0
            .get()
            .is_some_and(|thread| thread.send(WriterEntry::Close).is_ok());
        if !was_passed_on {
            writer.queue.send_entry(WriterEntry::Close);
        }
    }
}

fn start(store: Arc<dyn Store>, writer: Arc<WriterHandle>) -> mpsc::Sender<WriterEntry> {
    let (sender, entries) = mpsc::channel::<WriterEntry>();
    let span = tracing::Span::current();
    std::thread::Builder::new()
        .name("journal-ids".to_owned())
        .spawn(move || span.in_scope(|| run_lookups(&*store, &writer, &entries)))
        .expect("a process that cannot start a thread cannot continue");
    sender
}

/// Looks up the ids of entries, several entries at once, until no sender is left.
fn run_lookups(store: &dyn Store, writer: &WriterHandle, entries: &mpsc::Receiver<WriterEntry>) {
    while let Ok(first) = entries.recv() {
        let mut ids = count_ids(&first);
        let mut group = vec![first];
        while ids < IDS_MAX
            && let Ok(next) = entries.try_recv()
        {
            ids += count_ids(&next);
            group.push(next);
        }
        let version = writer.status.ids_version();
        // The panic hook has logged a panic.
        let records = catch_unwind(AssertUnwindSafe(|| look_up(store, &group)));
        if let Ok(Ok(records)) = records {
            distribute_records(&mut group, version, records);
        }
        group
            .into_iter()
            .for_each(|entry| writer.queue.send_entry(entry));
    }
}

fn count_ids(entry: &WriterEntry) -> usize {
    if let WriterEntry::Publish {
        check: Some(check), ..
    } = entry
    {
        check.ids.len()
    } else {
        0
    }
}

/// Reads the records of the ids of all these requests.
fn look_up(
    store: &dyn Store,
    group: &[WriterEntry],
) -> Result<Vec<Option<PublishedId>>, StoreError> {
    let mut digests = Vec::new();
    for entry in group {
        if let WriterEntry::Publish {
            partition,
            check: Some(check),
            ..
        } = entry
        {
            digests.extend(
                check
                    .ids
                    .iter()
                    .map(|digest| keys::published_id(*partition, *digest)),
            );
        }
    }
    let records = store.get_all(Family::PublishedIds, &digests)?;
    let mut published_ids = Vec::with_capacity(records.len());
    for record in records {
        let published_id = record.map(|record| PublishedId::decode(&record));
        published_ids.push(published_id.transpose().map_err(StoreError::damaged)?);
    }
    Ok(published_ids)
}

fn distribute_records(group: &mut [WriterEntry], version: u64, records: Vec<Option<PublishedId>>) {
    let mut records = records.into_iter();
    for entry in group {
        if let WriterEntry::Publish {
            check: Some(check), ..
        } = entry
        {
            let records = records.by_ref().take(check.ids.len()).collect();
            check.known = Some(KnownIds { version, records });
        }
    }
}
