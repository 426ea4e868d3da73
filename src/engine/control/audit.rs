//! The audit trail: what operators did and tried to do, stored in the journal and bounded by number and age.
//!
//! Refusals without an identity cost an attacker nothing. At most one a second is stored, with the number of those between, and
//! at most a tenth of the records are such refusals, so that they cannot push out the others.
//!
//! Operators that are no administrators of the whole server push out their own records first: when the trail is full,
//! the oldest record goes of the one with most, if that is more than a tenth, or of all of them, if they have more than
//! half.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{
    registry::{Error, json, parse},
    system_events::SystemEvents,
};
use gridhook_event::Timestamp;
use gridhook_journal::{Journal, MetaChange};
use gridhook_record::audit::AuditRecord;
use gridhook_store::keys::MetaKind;

/// Interval between two stored refusals without an identity.
const REFUSAL_INTERVAL: Duration = Duration::from_secs(1);

/// Share of the records that refusals without an identity may have.
const REFUSAL_SHARE: usize = 10;

/// Share of a full trail that one operator may have who is no administrator.
const OPERATOR_SHARE: usize = 10;

/// Share of a full trail that all of these may have.
const OPERATORS_SHARE: usize = 2;

/// Maximum number of records that one page reads.
const READS_MAX: usize = 2_000;

/// Maximum number of expired records that one write removes.
const EXPIRED_MAX: usize = 100;

/// The bounds of the audit trail.
#[derive(Clone, Copy, Debug)]
pub struct AuditLimits {
    /// Maximum number of records; 0 stores nothing.
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

/// What is stored, oldest first.
#[derive(Default)]
struct AuditIndex {
    entries: VecDeque<IndexEntry>,
    next: u64,
    refusals: usize,
    /// The numbers of records of operators that are no administrators.
    of_operators: HashMap<Arc<str>, usize>,
    last_refusal: Option<Timestamp>,
    suppressed: u64,
}

struct IndexEntry {
    number: u64,
    at: Timestamp,
    author: RecordAuthor,
}

#[derive(PartialEq, Eq)]
enum RecordAuthor {
    /// Nobody was authenticated.
    Nobody,
    /// An administrator of the whole server.
    Administrator,
    /// Another operator, by kind of identity and name.
    Operator(Arc<str>),
}

impl AuditIndex {
    /// Removes the entry at `index`, and returns the deletion of its record.
    fn remove(&mut self, index: usize) -> Option<MetaChange> {
        let entry = self.entries.remove(index)?;
        match &entry.author {
            RecordAuthor::Nobody => self.refusals -= 1,
            RecordAuthor::Administrator => {}
            RecordAuthor::Operator(name) => match self.of_operators.get_mut(name) {
                Some(count) if *count > 1 => *count -= 1,
                Some(_) | None => drop(self.of_operators.remove(name)),
            },
        }
        Some(MetaChange::Delete(MetaKind::Audit, name(entry.number)))
    }

    fn push(&mut self, number: u64, record: &AuditRecord) {
        let author = match &record.operator {
            None => RecordAuthor::Nobody,
            Some(_) if record.is_administrator => RecordAuthor::Administrator,
            Some(name) => {
                let name = format!("{} {name}", record.identity_type.as_deref().unwrap_or_default());
                let known = self.of_operators.get_key_value(&*name).map(|(name, _)| Arc::clone(name));
                RecordAuthor::Operator(known.unwrap_or_else(|| name.into()))
            }
        };
        match &author {
            RecordAuthor::Nobody => self.refusals += 1,
            RecordAuthor::Administrator => {}
            RecordAuthor::Operator(name) => *self.of_operators.entry(Arc::clone(name)).or_default() += 1,
        }
        self.next = number + 1;
        self.entries.push_back(IndexEntry { number, at: record.at, author });
    }

    /// The index of the record that goes when the trail is full.
    fn dispensable(&self, limits: AuditLimits) -> usize {
        let most = self.of_operators.iter().max_by_key(|(_, count)| **count);
        let busiest =
            most.filter(|(_, count)| **count > (limits.records / OPERATOR_SHARE).max(1)).map(|(name, _)| name);
        let is_share_full = self.of_operators.values().sum::<usize>() > limits.records / OPERATORS_SHARE;
        let is_dispensable = |entry: &IndexEntry| match (&entry.author, busiest) {
            (RecordAuthor::Operator(name), Some(busiest)) => name == busiest,
            (RecordAuthor::Operator(_), None) => true,
            (RecordAuthor::Nobody | RecordAuthor::Administrator, _) => false,
        };
        if busiest.is_none() && !is_share_full {
            return 0;
        }
        self.entries.iter().position(is_dispensable).unwrap_or_default()
    }

    /// Removes what exceeds the limits.
    fn trim(&mut self, limits: AuditLimits, now: Timestamp) -> Vec<MetaChange> {
        let mut deleted = Vec::new();
        if self.refusals > (limits.records / REFUSAL_SHARE).max(1) {
            let oldest = self.entries.iter().position(|entry| entry.author == RecordAuthor::Nobody);
            deleted.extend(oldest.and_then(|oldest| self.remove(oldest)));
        }
        while self.entries.len() > limits.records {
            deleted.extend(self.remove(self.dispensable(limits)));
        }
        let is_expired = |oldest: &IndexEntry| now.since(oldest.at) > limits.retention;
        while deleted.len() < EXPIRED_MAX && self.entries.front().is_some_and(is_expired) {
            deleted.extend(self.remove(0));
        }
        deleted
    }
}

/// Which records are listed.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// Name of the operator.
    pub operator: Option<String>,
    /// Part of the method and path, or of the id of the request, compared without case.
    pub search: Option<String>,
    /// Whether only refused operations are listed.
    pub is_refused: bool,
}

impl AuditFilter {
    fn matches(&self, record: &AuditRecord) -> bool {
        let AuditRecord { operator, method, path, status, request_id, .. } = record;
        let is_found = |search: &String| {
            let text = format!("{method} {path} {request_id}").to_lowercase();
            text.contains(&search.to_lowercase())
        };
        self.operator.as_ref().is_none_or(|wanted| operator.as_ref() == Some(wanted))
            && self.search.as_ref().is_none_or(is_found)
            && (!self.is_refused || *status >= 400)
    }
}

/// A part of the trail, newest first.
pub struct AuditPage {
    /// The records and their numbers.
    pub records: Vec<(u64, AuditRecord)>,
    /// The number below which the next page begins; [`None`] at the end.
    pub next: Option<u64>,
}

impl AuditTrail {
    /// Reads the index of the stored records. What is stored is also reported to `system_events`. Blocks; for the start.
    ///
    /// # Errors
    /// If a record cannot be read.
    pub fn recover(
        journal: Journal,
        limits: AuditLimits,
        system_events: Option<Arc<SystemEvents>>,
    ) -> Result<Self, Error> {
        let mut index = AuditIndex::default();
        for (name, value) in journal.reads().all_meta(MetaKind::Audit)? {
            let record: AuditRecord = parse(&name, &value)?;
            let number =
                name.parse().map_err(|_| Error::Unreadable { name, reason: "its name is no number".to_owned() })?;
            index.push(number, &record);
        }
        Ok(Self { journal, limits, index: Mutex::new(index), system_events })
    }

    /// Stores a record. It is durable when this returns. A failure is logged, because the operation is done by now.
    pub async fn record(&self, mut record: AuditRecord) {
        let stored = {
            let mut index = self.index();
            if self.limits.records == 0 {
                return;
            }
            if record.operator.is_none() {
                if index.last_refusal.is_some_and(|last| record.at.since(last) < REFUSAL_INTERVAL) {
                    index.suppressed += 1;
                    return;
                }
                index.last_refusal = Some(record.at);
                record.suppressed = std::mem::take(&mut index.suppressed);
            }
            let number = index.next;
            index.push(number, &record);
            if let Some(events) = &self.system_events {
                events.report_operation(&record);
            }
            let mut changes = vec![MetaChange::Put(MetaKind::Audit, name(number), json(&record))];
            changes.extend(index.trim(self.limits, record.at));
            self.journal.change(changes)
        };
        if let Err(error) = stored.await {
            tracing::error!(%error, operator = record.operator, method = record.method, path = record.path, "audit record not stored");
        }
    }

    /// The newest records below the number `before` that match. A page may have fewer records than there are.
    ///
    /// # Errors
    /// If a record cannot be read.
    pub async fn page(&self, top: usize, before: Option<u64>, filter: &AuditFilter) -> Result<AuditPage, Error> {
        let numbers: Vec<u64> = {
            let index = self.index();
            let numbers = index.entries.iter().rev().map(|entry| entry.number);
            numbers.filter(|number| before.is_none_or(|before| *number < before)).take(READS_MAX + 1).collect()
        };
        let mut page = AuditPage { records: Vec::new(), next: None };
        for (read, number) in numbers.into_iter().enumerate() {
            if read == READS_MAX || page.records.len() == top {
                page.next = Some(number + 1);
                break;
            }
            // Without a value it was trimmed meanwhile.
            let Some(value) = self.journal.reads().meta(MetaKind::Audit, name(number)).await? else { continue };
            let record: AuditRecord = parse(&name(number), &value)?;
            if filter.matches(&record) {
                page.records.push((number, record));
            }
        }
        Ok(page)
    }

    fn index(&self) -> MutexGuard<'_, AuditIndex> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Names sort like numbers.
fn name(number: u64) -> String {
    format!("{number:020}")
}
