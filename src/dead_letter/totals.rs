//! The totals of a subscription's dead letters: one small record, written only by this module.
//!
//! ```text
//! version 1 | written | lost | files | bytes | redriven | purged
//!     | 0, or 1 and the file in progress: length | name | due 8 | sequence 8 | lane 2
//!     | 0, or 1 and the outage: since 8 | length | destination
//! ```
//!
//! The number after a field is its length in bytes; counts and lengths are varints. Damaged records
//! are rejected by decoding.

use std::time::Duration;

use gridhook_event::{
    Lane, Seq, SubscriptionKey, Timestamp,
    codec::{RecordReader, put_varint},
};
use gridhook_journal::DeadLetterKey;
use gridhook_store::keys;

/// Version 2 added redrives and purges, version 3 the outage.
const VERSION: u8 = 3;

/// The oldest version that is read.
const VERSION_MIN: u8 = 2;

/// The record cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the totals of dead letters are damaged")]
pub struct DamagedTotals;

/// Totals of the fate of a subscription's dead letters: `dead_lettered = waiting + written + lost +
/// redriven + purged`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadLetterTotals {
    pub written: u64,
    /// Dead letters that could not be written: the destination was unreachable for too long, or the
    /// event is damaged.
    pub lost: u64,
    pub files: u64,
    pub bytes: u64,
    /// Waiting dead letters that were redriven.
    pub redriven: u64,
    /// Waiting dead letters that were purged.
    pub purged: u64,
    /// The file that is being written.
    pub in_progress: Option<FileInProgress>,
    /// The current outage of the store.
    pub outage: Option<Outage>,
}

/// A store accepts no files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outage {
    pub since: Timestamp,
    /// The store and the folder, with `:` between them. A change of either ends the outage.
    pub destination: String,
}

impl Outage {
    /// During an outage of at least `window`: the time by which lost dead letters were due.
    /// [`None`] before.
    pub fn lost_by(&self, window: Duration, now: Timestamp) -> Option<Timestamp> {
        (now.since(self.since) >= window).then(|| now.before(window))
    }
}

/// A file that may be stored, completely or not at all, and whose dead letters are all still in the
/// journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInProgress {
    /// The store and the path, with `:` between them; only the path for the folder beside the data.
    pub name: String,
    /// The last dead letter in it. The first is the first one that waits.
    pub last: DeadLetterKey,
}

impl FileInProgress {
    /// The path below the store's address. Parts of a path have no colon.
    pub fn path(&self) -> &str {
        self.name
            .split_once(':')
            .map_or(&self.name, |(_, path)| path)
    }
}

impl DeadLetterTotals {
    /// Dead letters that no longer wait; [`None`] on overflow, which means damage.
    pub fn handled_count(&self) -> Option<u64> {
        [self.lost, self.redriven, self.purged]
            .into_iter()
            .try_fold(self.written, u64::checked_add)
    }

    /// The name of a subscription's record.
    pub fn name(subscription_key: SubscriptionKey) -> String {
        keys::dead_letters_name(subscription_key)
    }

    /// Counts dead letters as lost until `handled` of them are handled. Removes the file in
    /// progress, which would be overwritten with what is left of it.
    #[must_use]
    pub fn accept_loss(self, handled: u64) -> Self {
        let missing = handled.saturating_sub(self.handled_count().unwrap_or(u64::MAX));
        Self {
            lost: self.lost.saturating_add(missing),
            in_progress: None,
            ..self
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(192);
        out.push(VERSION);
        for count in [
            self.written,
            self.lost,
            self.files,
            self.bytes,
            self.redriven,
            self.purged,
        ] {
            put_varint(&mut out, count);
        }
        out.push(self.in_progress.is_some().into());
        if let Some(FileInProgress { name, last }) = &self.in_progress {
            put_varint(&mut out, name.len() as u64);
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(&last.due.0.to_be_bytes());
            out.extend_from_slice(&last.seq.0.to_be_bytes());
            out.extend_from_slice(&last.lane.0.to_be_bytes());
        }
        out.push(self.outage.is_some().into());
        if let Some(Outage { since, destination }) = &self.outage {
            out.extend_from_slice(&since.0.to_be_bytes());
            put_varint(&mut out, destination.len() as u64);
            out.extend_from_slice(destination.as_bytes());
        }
        out
    }

    pub fn decode(bytes: &[u8]) -> Result<Self, DamagedTotals> {
        let mut reader = RecordReader::new(bytes);
        let version = reader
            .u8()
            .filter(|version| (VERSION_MIN..=VERSION).contains(version))
            .ok_or(DamagedTotals)?;
        Self::read_fields(version, &mut reader)
            .filter(|_| reader.is_empty())
            .ok_or(DamagedTotals)
    }

    fn read_fields(version: u8, reader: &mut RecordReader<'_>) -> Option<Self> {
        let mut count = || reader.varint();
        let written = count()?;
        let lost = count()?;
        let files = count()?;
        let bytes = count()?;
        let redriven = count()?;
        let purged = count()?;
        let in_progress = match reader.u8()? {
            0 => None,
            1 => {
                let name = take_text(reader)?;
                let due = Timestamp(reader.u64()?);
                let seq = Seq(reader.u64()?);
                let lane = Lane(reader.u16()?);
                Some(FileInProgress {
                    name,
                    last: DeadLetterKey { due, seq, lane },
                })
            }
            _ => return None,
        };
        let outage = match if version < 3 { 0 } else { reader.u8()? } {
            0 => None,
            1 => Some(Outage {
                since: Timestamp(reader.u64()?),
                destination: take_text(reader)?,
            }),
            _ => return None,
        };
        Some(Self {
            written,
            lost,
            files,
            bytes,
            redriven,
            purged,
            in_progress,
            outage,
        })
    }
}

fn take_text(reader: &mut RecordReader<'_>) -> Option<String> {
    let len = usize::try_from(reader.varint()?).ok()?;
    Some(std::str::from_utf8(reader.take(len)?).ok()?.to_owned())
}
