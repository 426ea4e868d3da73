//! The audit trail: what operators did and tried to do, stored in the journal and bounded by number
//! and age.
//!
//! - The record of a change is in the batch of the journal that makes the change (`write_changes`),
//!   so that neither is there without the other. The task of the operation carries it
//!   ([`AuditedOperation`]).
//! - A command changes no resource: an actor writes what it does. Its record is stored before it
//!   begins ([`record_intent`]) with the status 102, and has its outcome at the end.
//! - Attempts (refused requests and sign-ins) cost a client nothing. Of each identity a few are
//!   recorded at once and then one a second, with the number of those between. They have a limit of
//!   their own, so that they never remove the record of a change.
//! - At a limit no identity can remove the records of the others (`index`).

mod index;
mod operation;

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;

use self::index::AuditIndex;
pub use self::operation::AuditedOperation;
use super::{
    registry::{Error, parse_record, to_json},
    system_events::SystemEvents,
};
use gridhook_journal as journal;
use gridhook_journal::{Journal, MetaChange};
use gridhook_record::audit::AuditRecord;
use gridhook_store::keys::MetaKind;

/// Maximum number of records that one page reads.
const READS_MAX: usize = 2_000;

/// The bounds of the audit trail.
#[derive(Clone, Copy, Debug)]
pub struct AuditLimits {
    /// Maximum number of records of changes; 0 stores nothing. Attempts may have a tenth of it
    /// besides.
    pub records: usize,
    /// The time that a record is kept.
    pub retention: Duration,
}

/// The audit trail of a server.
pub struct AuditTrail {
    journal: Journal,
    limits: AuditLimits,
    index: Mutex<AuditIndex>,
    system_events: Option<Arc<SystemEvents>>,
}

/// Writes a change of the control plane, in one batch with the audit record of the operation that
/// this task executes. Like those of [`Journal::write_meta_changes`], the changes are in the queue
/// of the journal when this returns.
pub(super) fn write_changes(
    journal: &Journal,
    mut changes: Vec<MetaChange>,
) -> impl Future<Output = Result<(), journal::Error>> + Send + use<> {
    let record = AuditedOperation::current().and_then(AuditedOperation::plan_record);
    changes.extend(
        record
            .iter()
            .flat_map(|record| record.changes.iter().cloned()),
    );
    let write = journal.write_meta_changes(changes);
    async move {
        let result = write.await;
        if let Some(record) = record {
            record.note_written(result.is_ok());
        }
        result
    }
}

/// Stores the record of the operation that this task executes, before it does something that is in
/// no batch of `write_changes`: a kill then leaves a record of what may have been done. A failure
/// is logged and does not prevent the command, which may be what frees the disk.
pub async fn record_intent() {
    if let Some(operation) = AuditedOperation::current() {
        operation.record_intent().await;
    }
}

#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    pub operator: Option<String>,
    /// Part of the method and path, or of the id of the request, compared without case.
    pub search: Option<String>,
    pub is_refused: bool,
}

impl AuditFilter {
    fn matches(&self, record: &AuditRecord) -> bool {
        let AuditRecord {
            operator,
            method,
            path,
            status,
            request_id,
            ..
        } = record;
        let is_found = |search: &String| {
            let text = format!("{method} {path} {request_id}").to_lowercase();
            text.contains(&search.to_lowercase())
        };
        self.operator
            .as_ref()
            .is_none_or(|wanted| operator.as_ref() == Some(wanted))
            && self.search.as_ref().is_none_or(is_found)
            && (!self.is_refused || *status >= 400)
    }
}

/// A part of the trail, newest first.
pub struct AuditPage {
    /// The records with their numbers.
    pub records: Vec<(u64, AuditRecord)>,
    /// The number below which the next page begins; [`None`] at the end.
    pub next: Option<u64>,
}

impl AuditTrail {
    /// Reads the index of the stored records. What is stored is also reported to `system_events`.
    /// Blocks; for the start.
    ///
    /// # Errors
    /// If a record cannot be read.
    pub fn recover(
        journal: Journal,
        limits: AuditLimits,
        system_events: Option<Arc<SystemEvents>>,
    ) -> Result<Self, Error> {
        let mut index = AuditIndex::default();
        for record in journal.reader_pool().all_meta(MetaKind::Audit) {
            let (name, value) = record?;
            let record: AuditRecord = parse_record(&name, &value)?;
            let number = name.parse().map_err(|_| Error::Unreadable {
                name,
                reason: "its name is no number".to_owned(),
            })?;
            index.push(number, &record);
        }
        Ok(Self {
            journal,
            limits,
            index: Mutex::new(index),
            system_events,
        })
    }

    /// Keeps the deletions of a write that failed for the next one.
    fn note_written(&self, changes: Vec<MetaChange>, is_written: bool) {
        if !is_written {
            let deletions = changes
                .into_iter()
                .filter(|change| matches!(change, MetaChange::Delete(..)));
            self.index.lock().deferred.extend(deletions);
        }
    }

    /// The newest records below the number `before` that match. A page may have fewer records than
    /// there are.
    ///
    /// # Errors
    /// If a record cannot be read.
    pub async fn page(
        &self,
        top: usize,
        before: Option<u64>,
        filter: &AuditFilter,
    ) -> Result<AuditPage, Error> {
        let numbers: Vec<u64> = {
            let index = self.index.lock();
            let numbers = index.entries.iter().rev().map(|entry| entry.number);
            numbers
                .filter(|number| before.is_none_or(|before| *number < before))
                .take(READS_MAX + 1)
                .collect()
        };
        let mut page = AuditPage {
            records: Vec::new(),
            next: None,
        };
        for (read, number) in numbers.into_iter().enumerate() {
            if read == READS_MAX || page.records.len() == top {
                page.next = Some(number + 1);
                break;
            }
            // Without a value it was trimmed meanwhile.
            let Some(value) = self
                .journal
                .reader_pool()
                .read_meta(MetaKind::Audit, record_name(number))
                .await?
            else {
                continue;
            };
            let record: AuditRecord = parse_record(&record_name(number), &value)?;
            if filter.matches(&record) {
                page.records.push((number, record));
            }
        }
        Ok(page)
    }
}

fn put(number: u64, record: &AuditRecord) -> MetaChange {
    MetaChange::Put(MetaKind::Audit, record_name(number), to_json(record))
}

/// The name of a record: names sort like numbers.
fn record_name(number: u64) -> String {
    format!("{number:020}")
}
