//! A changelog in memory that loses, delays and repeats messages on request.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use gridhook::journal::changelog::{Changelog, ChangelogBounds, ChangelogError};
use parking_lot::{Mutex, MutexGuard};

/// The fault of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppendFault {
    /// The record is appended and acknowledged.
    None,
    /// The record does not arrive.
    Lost,
    /// The record is appended, and the acknowledgement is lost.
    AcknowledgementLost,
    /// The record arrives before the next append.
    LateBefore,
    /// The record arrives after the next append.
    LateAfter,
    /// It arrives twice, and the caller receives the response to the second one.
    Twice,
    /// The log is full.
    Full,
    /// The sender dies before the append.
    Crash,
}

/// A log. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryChangelog(Arc<Mutex<MemoryLog>>);

type Message = (Bytes, Option<u64>);

#[derive(Debug, Default)]
struct MemoryLog {
    is_gone: bool,
    /// The number of records that were trimmed.
    trimmed: usize,
    records: Vec<Bytes>,
    faults: VecDeque<AppendFault>,
    before_next: Vec<Message>,
    after_next: Vec<Message>,
    appends: u64,
    /// Whether a record is appended whatever sequence it expects.
    is_unfenced: bool,
    /// How many responses still lack the newest record.
    stale_answers: u32,
}

impl MemoryLog {
    fn append(&mut self, (record, expected): &Message) -> Result<u64, ChangelogError> {
        let last = self.records.len() as u64;
        if !self.is_unfenced && expected.is_some_and(|expected| expected != last) {
            return Err(ChangelogError::WrongLast);
        }
        self.records.push(record.clone());
        Ok(last + 1)
    }

    /// Whether the next response lacks the newest record.
    fn is_stale(&mut self) -> bool {
        let is_stale = self.stale_answers > 0;
        self.stale_answers = self.stale_answers.saturating_sub(1);
        is_stale
    }
}

impl MemoryChangelog {
    /// Gives the next appends these faults, one each.
    pub(crate) fn fail(&self, faults: impl IntoIterator<Item = AppendFault>) {
        self.log().faults.extend(faults);
    }

    /// The number of appends that were tried.
    pub(crate) fn appends(&self) -> u64 {
        self.log().appends
    }

    pub(crate) fn records(&self) -> Vec<Bytes> {
        self.log().records.clone()
    }

    /// Changes the stored records directly.
    pub(crate) fn tamper(&self, change: impl FnOnce(&mut Vec<Bytes>)) {
        change(&mut self.log().records);
    }

    /// Removes the first records, as a trim does.
    pub(crate) fn drop_first(&self, records: usize) {
        self.log().trimmed = records;
    }

    /// Takes the fence away: the log appends whatever is expected.
    pub(crate) fn unfence(&self) {
        self.log().is_unfenced = true;
    }

    /// Acts as a server that has just become the leader: this number of responses lack the newest
    /// records.
    pub(crate) fn answer_stale(&self, answers: u32) {
        self.log().stale_answers = answers;
    }

    /// Deletes the log.
    pub(crate) fn delete(&self) {
        self.log().is_gone = true;
    }

    /// A panic with the lock is a bug of the test. Later calls should report more instead of
    /// hanging.
    fn log(&self) -> MutexGuard<'_, MemoryLog> {
        self.0.lock()
    }

    fn there(&self) -> Result<MutexGuard<'_, MemoryLog>, ChangelogError> {
        let log = self.log();
        if log.is_gone {
            Err(ChangelogError::Missing)
        } else {
            Ok(log)
        }
    }
}

impl Changelog for MemoryChangelog {
    fn append(&self, record: &Bytes, expected: Option<u64>) -> Result<u64, ChangelogError> {
        let mut log = self.there()?;
        let message = (record.clone(), expected);
        let nothing = || Err(ChangelogError::Unavailable("no answer".to_owned()));
        log.appends += 1;
        for late in std::mem::take(&mut log.before_next) {
            log.append(&late).ok();
        }
        let later = std::mem::take(&mut log.after_next);
        let response = match log.faults.pop_front().unwrap_or(AppendFault::None) {
            AppendFault::None => log.append(&message),
            AppendFault::Lost => nothing(),
            AppendFault::AcknowledgementLost => {
                log.append(&message).ok();
                nothing()
            }
            AppendFault::LateBefore => {
                log.before_next.push(message);
                nothing()
            }
            AppendFault::LateAfter => {
                log.after_next.push(message);
                nothing()
            }
            AppendFault::Twice => {
                log.append(&message).ok();
                log.append(&message)
            }
            AppendFault::Full => Err(ChangelogError::Full),
            AppendFault::Crash => Err(ChangelogError::Refused("the sender has died".to_owned())),
        };
        for late in later {
            log.append(&late).ok();
        }
        response
    }

    fn bounds(&self) -> Result<ChangelogBounds, ChangelogError> {
        let mut log = self.there()?;
        let last = log.records.len() as u64 - u64::from(log.is_stale());
        Ok(ChangelogBounds {
            first: log.trimmed as u64 + 1,
            last,
            bytes: log.records[log.trimmed..]
                .iter()
                .map(|record| record.len() as u64)
                .sum(),
            missing_replicas: 0,
        })
    }

    fn trim(&self, through: u64, keep_bytes: u64) -> Result<(), ChangelogError> {
        let mut log = self.there()?;
        let mut kept = 0;
        let newest = log.records.iter().rev().take_while(|record| {
            kept += record.len() as u64;
            kept <= keep_bytes
        });
        let most = log.records.len() - newest.count().max(1).min(log.records.len());
        log.trimmed = log
            .trimmed
            .max(most.min(usize::try_from(through).expect("a small log")));
        Ok(())
    }

    fn read(&self, from: u64, most: usize) -> Result<Vec<Bytes>, ChangelogError> {
        let mut log = self.there()?;
        let from = usize::try_from(from)
            .expect("a small log")
            .saturating_sub(1);
        if log.is_stale() || from < log.trimmed {
            return Ok(Vec::new());
        }
        Ok(log.records.iter().skip(from).take(most).cloned().collect())
    }
}
