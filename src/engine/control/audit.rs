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
//! - At a limit the identity with the most records loses its oldest: of operators that are no
//!   administrators of the whole server, if one of them has more than a tenth or all of them more
//!   than half, else of all. So no identity can remove the records of the others.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use super::{
    registry::{Error, parse_record, to_json},
    system_events::SystemEvents,
};
use gridhook_clock::Clock;
use gridhook_event::Timestamp;
use gridhook_journal as journal;
use gridhook_journal::{Journal, MetaChange};
use gridhook_record::audit::{AuditChange, AuditRecord};
use gridhook_store::keys::MetaKind;

/// Number of attempts of an identity that are recorded at once …
const ATTEMPT_BURST: u32 = 10;

/// … before one is recorded in this interval.
const ATTEMPT_INTERVAL: Duration = Duration::from_secs(1);

/// Attempts may have this share of the number of changes, besides them.
const ATTEMPT_SHARE: usize = 10;

/// Number of identities above which those are forgotten that may have a full burst again.
const LIMITED_IDENTITIES: usize = 1_024;

/// Share of a full trail that one operator may have who is no administrator.
const OPERATOR_SHARE: usize = 10;

/// Share of a full trail that all of these may have.
const OPERATORS_SHARE: usize = 2;

/// Status of the record of a command whose outcome is not known, or not yet.
const STATUS_OF_INTENT: u16 = 102;

/// Maximum number of records that one page reads.
const READS_MAX: usize = 2_000;

/// Maximum number of expired records that one write removes.
const EXPIRED_MAX: usize = 100;

/// The bounds of the audit trail.
#[derive(Clone, Copy, Debug)]
pub struct AuditLimits {
    /// Maximum number of records of changes; 0 stores nothing. Attempts may have a tenth of it
    /// besides.
    pub records: usize,
    /// The time that a record is kept.
    pub retention: Duration,
}

impl AuditLimits {
    fn records_of(self, class: RecordClass) -> usize {
        match class {
            RecordClass::Change => self.records,
            RecordClass::Attempt => (self.records / ATTEMPT_SHARE).max(1),
        }
    }
}

/// The audit trail of a server.
pub struct AuditTrail {
    journal: Journal,
    limits: AuditLimits,
    index: Mutex<AuditIndex>,
    system_events: Option<Arc<SystemEvents>>,
}

/// What a record counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum RecordClass {
    /// Something was changed, revealed or commanded, or may have been.
    Change,
    /// A refused request, or a sign-in.
    Attempt,
}

impl RecordClass {
    fn from_record(record: &AuditRecord) -> Self {
        let is_attempt = (400..500).contains(&record.status) || record.is_sign_in();
        if is_attempt {
            Self::Attempt
        } else {
            Self::Change
        }
    }
}

/// The identity whose records count together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RecordHolder {
    class: RecordClass,
    /// Kind of identity and name; [`None`] if nobody was authenticated.
    identity: Option<Arc<str>>,
    /// Whether it had the role admin for the whole server.
    is_administrator: bool,
}

impl RecordHolder {
    fn from_record(record: &AuditRecord) -> Self {
        let kind = record.identity_type.as_deref().unwrap_or_default();
        Self {
            class: RecordClass::from_record(record),
            identity: record
                .operator
                .as_deref()
                .map(|name| format!("{kind} {name}").into()),
            is_administrator: record.is_administrator,
        }
    }
}

/// What is stored, oldest first.
#[derive(Default)]
struct AuditIndex {
    entries: VecDeque<IndexEntry>,
    next: u64,
    holders: HashMap<RecordHolder, usize>,
    attempts: AttemptLimiter,
    /// Deletions whose write failed.
    deferred: Vec<MetaChange>,
}

#[derive(Clone)]
struct IndexEntry {
    number: u64,
    at: Timestamp,
    holder: RecordHolder,
}

impl AuditIndex {
    /// Removes the entry at `index`, and returns the deletion of its record.
    fn remove(&mut self, index: usize) -> Option<MetaChange> {
        self.release(index);
        let entry = self.entries.remove(index)?;
        Some(MetaChange::Delete(MetaKind::Audit, name(entry.number)))
    }

    /// No longer counts the entry at `index` for its holder.
    fn release(&mut self, index: usize) {
        let Some(entry) = self.entries.get(index) else {
            return;
        };
        if let Some(count) = self.holders.get_mut(&entry.holder) {
            *count -= 1;
            if *count == 0 {
                self.holders.remove(&entry.holder);
            }
        }
    }

    fn push(&mut self, number: u64, record: &AuditRecord) {
        let mut holder = RecordHolder::from_record(record);
        if let Some((known, _)) = self.holders.get_key_value(&holder) {
            holder = known.clone();
        }
        *self.holders.entry(holder.clone()).or_default() += 1;
        self.next = number + 1;
        self.entries.push_back(IndexEntry {
            number,
            at: record.at,
            holder,
        });
    }

    /// Adds a record. Returns its write, and the deletions of what exceeds the limits.
    fn add(&mut self, record: &AuditRecord, limits: AuditLimits) -> Vec<MetaChange> {
        let number = self.next;
        self.push(number, record);
        let mut changes = vec![put(number, record)];
        changes.extend(self.trim(limits, record.at));
        changes
    }

    fn position(&self, number: u64) -> Option<usize> {
        self.entries
            .binary_search_by_key(&number, |entry| entry.number)
            .ok()
    }

    /// Whether a record is stored. An attempt is only within its limit, and then has the number of
    /// those before it that were not.
    fn admit(&mut self, record: &mut AuditRecord) -> bool {
        let RecordHolder {
            class, identity, ..
        } = RecordHolder::from_record(record);
        if class == RecordClass::Change {
            return true;
        }
        let suppressed = self.attempts.admit(identity, record.at);
        record.suppressed = suppressed.unwrap_or_default();
        suppressed.is_some()
    }

    /// Replaces the record of a command by what it is at its end. A refused command was no change:
    /// its record counts as an attempt, or goes.
    fn complete(
        &mut self,
        number: u64,
        record: &mut AuditRecord,
        limits: AuditLimits,
    ) -> Vec<MetaChange> {
        let Some(index) = self.position(number) else {
            return Vec::new();
        };
        if !self.admit(record) {
            return self.remove(index).into_iter().collect();
        }
        let holder = RecordHolder::from_record(record);
        if self.entries[index].holder != holder {
            self.release(index);
            *self.holders.entry(holder.clone()).or_default() += 1;
            self.entries[index].holder = holder;
        }
        let mut changes = vec![put(number, record)];
        changes.extend(self.trim(limits, record.at));
        changes
    }

    /// Removes what exceeds the limits.
    fn trim(&mut self, limits: AuditLimits, now: Timestamp) -> Vec<MetaChange> {
        let mut deleted = std::mem::take(&mut self.deferred);
        for class in [RecordClass::Change, RecordClass::Attempt] {
            while self.count_of(class) > limits.records_of(class) {
                let dispensable = self.find_dispensable(class, limits.records_of(class));
                deleted.extend(dispensable.and_then(|index| self.remove(index)));
            }
        }
        let mut expired = 0;
        while expired < EXPIRED_MAX
            && self
                .entries
                .front()
                .is_some_and(|oldest| now.since(oldest.at) > limits.retention)
        {
            deleted.extend(self.remove(0));
            expired += 1;
        }
        deleted
    }

    fn count_of(&self, class: RecordClass) -> usize {
        self.holders
            .iter()
            .filter(|(holder, _)| holder.class == class)
            .map(|(_, count)| count)
            .sum()
    }

    /// The place of the record that goes when there is one too many of this class.
    fn find_dispensable(&self, class: RecordClass, limit: usize) -> Option<usize> {
        let of_class = || {
            self.holders
                .iter()
                .filter(|(holder, _)| holder.class == class)
        };
        let of_operators = || {
            of_class()
                .filter(|(holder, _)| !holder.is_administrator)
                .map(|(_, count)| *count)
        };
        let most_of_operators = of_operators().max().unwrap_or_default();
        let is_share_exceeded = most_of_operators > (limit / OPERATOR_SHARE).max(1)
            || of_operators().sum::<usize>() > limit / OPERATORS_SHARE;
        let most = if is_share_exceeded {
            most_of_operators
        } else {
            of_class().map(|(_, count)| *count).max()?
        };
        let is_dispensable = |holder: &RecordHolder| {
            let may_lose = !(is_share_exceeded && holder.is_administrator);
            may_lose && holder.class == class && self.holders.get(holder) == Some(&most)
        };
        self.entries
            .iter()
            .position(|entry| is_dispensable(&entry.holder))
    }
}

/// Limits how often the attempts of an identity are recorded.
#[derive(Default)]
struct AttemptLimiter(HashMap<Option<Arc<str>>, RecentAttempts>);

#[derive(Default)]
struct RecentAttempts {
    /// The time from which a full burst is free again.
    free_from: Timestamp,
    suppressed: u64,
}

impl AttemptLimiter {
    /// Whether an attempt is recorded; then with the number of those that were not since the last
    /// one.
    fn admit(&mut self, identity: Option<Arc<str>>, now: Timestamp) -> Option<u64> {
        if self.0.len() > LIMITED_IDENTITIES {
            self.0.retain(|_, recent| recent.free_from > now);
        }
        let recent = self.0.entry(identity).or_default();
        let burst_end = now.after(ATTEMPT_INTERVAL * ATTEMPT_BURST);
        // Not later than the end of a burst, because the clock may have been set back.
        let free_from = recent.free_from.max(now).min(burst_end);
        if free_from == burst_end {
            recent.suppressed += 1;
            return None;
        }
        recent.free_from = free_from.after(ATTEMPT_INTERVAL);
        Some(std::mem::take(&mut recent.suppressed))
    }
}

tokio::task_local! {
    /// The operation that the task executes for an operator.
    static OPERATION: Arc<AuditedOperation>;
}

/// An operation of an operator, whose record is in the batch of the first change that it makes.
pub struct AuditedOperation {
    trail: Arc<AuditTrail>,
    clock: Clock,
    state: Mutex<OperationState>,
}

struct OperationState {
    /// The record as it is expected to be, and at the end as it is.
    record: AuditRecord,
    /// The number of the record, once a change was written or could not be.
    number: Option<u64>,
    /// The record in the store, with the change that it is of.
    stored: Option<AuditRecord>,
    /// Whether the store has the record of the intent.
    has_intent: bool,
}

/// The record of an operation in a batch that is being written.
struct PlannedRecord {
    operation: Arc<AuditedOperation>,
    record: AuditRecord,
    changes: Vec<MetaChange>,
}

impl AuditedOperation {
    /// An operation with the record that a change has if it succeeds.
    pub fn new(trail: Arc<AuditTrail>, clock: Clock, record: AuditRecord) -> Arc<Self> {
        Arc::new(Self {
            trail,
            clock,
            state: Mutex::new(OperationState {
                record,
                number: None,
                stored: None,
                has_intent: false,
            }),
        })
    }

    /// The operation that this task executes.
    pub fn current() -> Option<Arc<Self>> {
        OPERATION.try_with(Arc::clone).ok()
    }

    pub fn execute<T>(self: Arc<Self>, part: impl Future<Output = T>) -> impl Future<Output = T> {
        OPERATION.scope(self, part)
    }

    /// Sets the status of the response, as far as it is known.
    pub fn set_status(&self, status: u16) {
        self.state().record.status = status;
    }

    /// Sets what the operation changes, as far as it is known.
    pub fn set_changes(&self, changes: Vec<AuditChange>) {
        self.state().record.changes = changes;
    }

    /// Whether a change was written, with the record.
    pub fn is_stored(&self) -> bool {
        self.state().stored.is_some()
    }

    /// Stores the record, unless the store has it as it is now. It is durable when this returns. A
    /// failure is logged, because the operation is done by now.
    pub async fn finish(&self) {
        let changes = self.final_changes();
        if changes.is_empty() {
            return;
        }
        let result = self.trail.journal.write_meta_changes(changes.clone()).await;
        self.trail.note_written(changes, result.is_ok());
        if let Err(error) = result {
            self.log_missing(&error);
        }
    }

    /// Stores the record before the operation does what is in no batch with it.
    async fn record_intent(&self) {
        let intent = {
            let mut state = self.state();
            if state.number.is_some() || self.trail.limits.records == 0 {
                return;
            }
            state.record.at = self.clock.now();
            let record = AuditRecord {
                status: STATUS_OF_INTENT,
                ..state.record.clone()
            };
            // Removes no other record: it may be of a command that is refused.
            let mut index = self.trail.index();
            let number = index.next;
            index.push(number, &record);
            state.number = Some(number);
            state.has_intent = true;
            put(number, &record)
        };
        if let Err(error) = self.trail.journal.write_meta_changes(vec![intent]).await {
            self.log_missing(&error);
        }
    }

    /// Removes the record of the intent: another shard did what was asked for.
    pub async fn withdraw(&self) {
        let deletion = {
            let state = self.state();
            let mut index = self.trail.index();
            let number = state.number.filter(|_| state.has_intent);
            let position = number.and_then(|number| index.position(number));
            position.and_then(|position| index.remove(position))
        };
        if let Some(deletion) = deletion {
            let changes = vec![deletion];
            let result = self.trail.journal.write_meta_changes(changes.clone()).await;
            self.trail.note_written(changes, result.is_ok());
        }
    }

    fn log_missing(&self, error: &journal::Error) {
        let AuditRecord {
            operator,
            method,
            path,
            ..
        } = &self.state().record;
        tracing::error!(%error, operator, method, path, "audit record not stored");
    }

    /// The record for the batch of a change; [`None`] if an earlier change of the operation had it.
    fn plan_record(self: Arc<Self>) -> Option<PlannedRecord> {
        let (record, changes) = {
            let mut state = self.state();
            if state.stored.is_some() || self.trail.limits.records == 0 {
                return None;
            }
            state.record.at = self.clock.now();
            let mut index = self.trail.index();
            let changes = match state.number {
                Some(number) => vec![put(number, &state.record)],
                None => {
                    state.number = Some(index.next);
                    index.add(&state.record, self.trail.limits)
                }
            };
            (state.record.clone(), changes)
        };
        Some(PlannedRecord {
            operation: self,
            record,
            changes,
        })
    }

    /// What is to be written when the operation ends.
    fn final_changes(&self) -> Vec<MetaChange> {
        let mut state = self.state();
        let mut index = self.trail.index();
        if self.trail.limits.records == 0 {
            return Vec::new();
        }
        let is_intent = state.has_intent && state.stored.is_none();
        if state.stored.is_none() && !is_intent {
            state.record.at = self.clock.now();
        }
        let changes = match state.number {
            Some(_) if state.stored.as_ref() == Some(&state.record) => Vec::new(),
            Some(number) if is_intent => {
                index.complete(number, &mut state.record, self.trail.limits)
            }
            Some(number) if index.position(number).is_some() => vec![put(number, &state.record)],
            // It was trimmed meanwhile.
            Some(_) => Vec::new(),
            None => {
                if !index.admit(&mut state.record) {
                    return Vec::new();
                }
                index.add(&state.record, self.trail.limits)
            }
        };
        if let Some(events) = &self.trail.system_events {
            events.report_operation(&state.record);
        }
        changes
    }

    fn state(&self) -> MutexGuard<'_, OperationState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PlannedRecord {
    fn note_written(self, is_written: bool) {
        if is_written {
            self.operation.state().stored = Some(self.record);
        }
        self.operation.trail.note_written(self.changes, is_written);
    }
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
    /// The records and their numbers.
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
        for (name, value) in journal.reader_pool().all_meta(MetaKind::Audit)? {
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
            self.index().deferred.extend(deletions);
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
            let index = self.index();
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
                .read_meta(MetaKind::Audit, name(number))
                .await?
            else {
                continue;
            };
            let record: AuditRecord = parse_record(&name(number), &value)?;
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

fn put(number: u64, record: &AuditRecord) -> MetaChange {
    MetaChange::Put(MetaKind::Audit, name(number), to_json(record))
}

/// Names sort like numbers.
fn name(number: u64) -> String {
    format!("{number:020}")
}
