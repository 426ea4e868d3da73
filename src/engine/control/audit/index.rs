//! The index of the audit trail: which records are stored, and which go when there are too many.
//!
//! - Changes and attempts have limits of their own, so that attempts never remove the record of a
//!   change.
//! - At a limit the identity with the most records loses its oldest: of operators that are no
//!   administrators of the whole server, if one of them has more than a tenth or all of them more
//!   than half, else of all. So no identity can remove the records of the others.
//! - The index changes at once, and the store with the batch that has the returned changes.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use super::{AuditLimits, put, record_name};
use gridhook_event::Timestamp;
use gridhook_journal::MetaChange;
use gridhook_record::audit::AuditRecord;
use gridhook_store::keys::MetaKind;

/// Number of attempts of an identity that are recorded without a pause.
const ATTEMPT_BURST: u32 = 10;

/// The interval in which one attempt of an identity is recorded after [`ATTEMPT_BURST`] attempts.
const ATTEMPT_INTERVAL: Duration = Duration::from_secs(1);

/// Attempts may have this share of the number of changes, besides them.
const ATTEMPT_SHARE: usize = 10;

/// The number of identities above which those are forgotten that may have a full burst again.
const LIMITED_IDENTITIES: usize = 1_024;

/// Share of a full trail that one operator may have who is no administrator.
const OPERATOR_SHARE: usize = 10;

/// Share of a full trail that all of these may have.
const OPERATORS_SHARE: usize = 2;

/// Maximum number of expired records that one write removes.
const EXPIRED_MAX: usize = 100;

impl AuditLimits {
    fn records_of(self, class: RecordClass) -> usize {
        match class {
            RecordClass::Change => self.records,
            RecordClass::Attempt => (self.records / ATTEMPT_SHARE).max(1),
        }
    }
}

/// The class of a record, by which its number is limited.
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
    /// Whether the identity had the role admin for the whole server.
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

/// The stored records, oldest first.
#[derive(Default)]
pub(super) struct AuditIndex {
    pub(super) entries: VecDeque<IndexEntry>,
    pub(super) next: u64,
    holders: HashMap<RecordHolder, usize>,
    attempts: AttemptLimiter,
    /// Deletions whose write failed. The next write contains them.
    pub(super) deferred: Vec<MetaChange>,
}

#[derive(Clone)]
pub(super) struct IndexEntry {
    pub(super) number: u64,
    at: Timestamp,
    holder: RecordHolder,
}

impl AuditIndex {
    /// Removes the entry at `index`, and returns the deletion of its record.
    pub(super) fn remove(&mut self, index: usize) -> Option<MetaChange> {
        self.release(index);
        let entry = self.entries.remove(index)?;
        Some(MetaChange::Delete(
            MetaKind::Audit,
            record_name(entry.number),
        ))
    }

    /// Stops to count the entry at `index` for its holder.
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

    pub(super) fn push(&mut self, number: u64, record: &AuditRecord) {
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
    pub(super) fn add(&mut self, record: &AuditRecord, limits: AuditLimits) -> Vec<MetaChange> {
        let number = self.next;
        self.push(number, record);
        let mut changes = vec![put(number, record)];
        changes.extend(self.trim(limits, record.at));
        changes
    }

    pub(super) fn position(&self, number: u64) -> Option<usize> {
        self.entries
            .binary_search_by_key(&number, |entry| entry.number)
            .ok()
    }

    /// Whether a record is stored. An attempt is only within its limit, and then has the number of
    /// those before it that were not.
    pub(super) fn admit(&mut self, record: &mut AuditRecord) -> bool {
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
    pub(super) fn complete(
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

    /// The number of records of each holder of this class.
    fn holders_of(&self, class: RecordClass) -> impl Iterator<Item = (&RecordHolder, usize)> {
        let holders = self.holders.iter().map(|(holder, count)| (holder, *count));
        holders.filter(move |(holder, _)| holder.class == class)
    }

    fn count_of(&self, class: RecordClass) -> usize {
        self.holders_of(class).map(|(_, count)| count).sum()
    }

    /// The index of the record that goes when there is one too many of this class.
    fn find_dispensable(&self, class: RecordClass, limit: usize) -> Option<usize> {
        let operators = self
            .holders_of(class)
            .filter(|(holder, _)| !holder.is_administrator);
        let operator_counts: Vec<usize> = operators.map(|(_, count)| count).collect();
        let most_of_operators = operator_counts.iter().copied().max().unwrap_or_default();
        let is_share_exceeded = most_of_operators > (limit / OPERATOR_SHARE).max(1)
            || operator_counts.iter().sum::<usize>() > limit / OPERATORS_SHARE;
        let most = if is_share_exceeded {
            most_of_operators
        } else {
            self.holders_of(class).map(|(_, count)| count).max()?
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
