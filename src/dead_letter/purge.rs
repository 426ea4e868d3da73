//! Purges dead letters for an operator.
//!
//! Waiting dead letters leave the journal in the write that counts them. Those in a file are
//! recorded in the marker beside it. When nothing is left in a file, it is deleted, then its
//! marker. After a crash between two of these steps a purge may be repeated, and counts nothing
//! twice.
//!
//! A subscription has one piece of work at a time (`DeadLetters::lock_subscription`), because the
//! totals are written as a whole.

use std::{fmt, str::FromStr};

use super::{
    DeadLetterTotals, DeadLetters,
    browse::{
        BrowseCursor, BrowseError, BrowseProblem, DeadLetterId, DeadLetterLocation,
        DeadLetterQuery, FILE_BYTES_MAX, FoundDeadLetter, InvalidDeadLetterId, PROBLEMS_MAX, Step,
        Walk,
    },
    marker::{self, FileMarker},
    writer::notes_of,
};
use gridhook_event::Timestamp;
use gridhook_journal::{DeadLetterKey, DeadLetterWrite};
use gridhook_policy::record::LedgerEvent;

/// Maximum steps per call. The client calls again for more.
const STEPS_MAX: usize = 64;

/// The position of the rest of a purge or of a count, as text that a client passes back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeCursor {
    at: BrowseCursor,
    /// The time at which the count began. Later files are skipped: their dead letters were counted
    /// while they waited.
    until: Timestamp,
}

impl PurgeCursor {
    pub const START: Self = Self {
        at: BrowseCursor::START,
        until: Timestamp::NEVER,
    };
}

/// Parts of a file's name are not empty, so that this separates the time from the position.
const TIME_END: &str = "~~";

impl fmt::Display for PurgeCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.until != Timestamp::NEVER {
            write!(f, "{}{TIME_END}", self.until.0)?;
        }
        self.at.fmt(f)
    }
}

impl FromStr for PurgeCursor {
    type Err = InvalidDeadLetterId;

    fn from_str(text: &str) -> Result<Self, InvalidDeadLetterId> {
        let (until, at) = match text.split_once(TIME_END) {
            Some((until, at)) => (
                Timestamp(until.parse().map_err(|_| InvalidDeadLetterId)?),
                at,
            ),
            None => (Timestamp::NEVER, text),
        };
        Ok(Self {
            at: at.parse()?,
            until,
        })
    }
}

/// The result of a part of a purge.
#[derive(Debug, Default)]
pub struct PurgeProgress {
    /// Dead letters that were, or would be, purged.
    pub dead_letters: u64,
    /// Places that could not be read, whose dead letters stay.
    pub problems: Vec<BrowseProblem>,
    /// The position of the rest; [`None`] at the end.
    pub next: Option<PurgeCursor>,
}

impl DeadLetters {
    /// Purges the selected dead letters from `at` on, or only counts them.
    ///
    /// # Errors
    /// If the journal or the store of files fails. Completed steps stay completed.
    pub async fn purge_page(
        &self,
        location: &DeadLetterLocation,
        query: &DeadLetterQuery,
        at: PurgeCursor,
        dry_run: bool,
    ) -> Result<PurgeProgress, BrowseError> {
        if dry_run {
            return self
                .count_page(location, query, at, async |_| Ok(Vec::new()))
                .await;
        }
        let mut walk = Walk::new(self, location, query, at.at);
        let mut progress = PurgeProgress::default();
        for _ in 0..STEPS_MAX {
            if walk.at.is_none() {
                break;
            }
            let _lock = self.lock_subscription(location.subscription_key).await;
            let Step {
                found,
                problems,
                file,
            } = walk.next_step().await?;
            progress.dead_letters += found.len() as u64;
            progress.problems.extend(problems);
            if found.is_empty() {
                continue;
            }
            match (file, &location.folder) {
                (Some((file, dead_letters)), Some(folder)) => {
                    let file = format!("{folder}/{file}");
                    let indexes = file_indexes(&found);
                    self.write_marker(
                        &file,
                        dead_letters,
                        |marker| &mut marker.purged,
                        indexes,
                        false,
                    )
                    .await?;
                }
                _ => self.purge_waiting(location, &found).await?,
            }
        }
        progress.next = walk.at.map(|at| PurgeCursor {
            at,
            until: Timestamp::NEVER,
        });
        Ok(progress)
    }

    /// Counts the selected dead letters from `at` on, except those with problems. No dead letter is
    /// counted as waiting and again in its file: the first call counts all that wait and holds the
    /// lock meanwhile, and later calls skip the files that were written since.
    ///
    /// # Errors
    /// If the journal or the store of files fails.
    pub(super) async fn count_page(
        &self,
        location: &DeadLetterLocation,
        query: &DeadLetterQuery,
        at: PurgeCursor,
        problems_of: impl AsyncFn(Vec<FoundDeadLetter>) -> Result<Vec<BrowseProblem>, BrowseError>,
    ) -> Result<PurgeProgress, BrowseError> {
        let _lock = self.lock_subscription(location.subscription_key).await;
        let until = at.until.min(self.0.clock.now());
        let mut walk = Walk::new(self, location, query, at.at).limit_until(at.until);
        let mut progress = PurgeProgress::default();
        let mut files = 0;
        while let Some(at) = &walk.at {
            if matches!(at, BrowseCursor::Written(_) | BrowseCursor::InFile { .. }) {
                if files == STEPS_MAX {
                    break;
                }
                files += 1;
            }
            let Step {
                found, problems, ..
            } = walk.next_step().await?;
            let count = found.len();
            let refusals = problems_of(found).await?;
            progress.dead_letters += (count - refusals.len()) as u64;
            let room = PROBLEMS_MAX - progress.problems.len();
            progress
                .problems
                .extend(problems.into_iter().chain(refusals).take(room));
        }
        progress.next = walk.at.map(|at| PurgeCursor { at, until });
        Ok(progress)
    }

    async fn purge_waiting(
        &self,
        location: &DeadLetterLocation,
        found: &[FoundDeadLetter],
    ) -> Result<(), BrowseError> {
        let keys: Vec<DeadLetterKey> = found
            .iter()
            .filter_map(|found| match found.key {
                DeadLetterId::Waiting(key) => Some(key),
                DeadLetterId::Written { .. } => None,
            })
            .collect();
        let mut totals = self.read_totals(location.subscription_key).await?;
        totals.purged += keys.len() as u64;
        let totals = Some((
            DeadLetterTotals::name(location.subscription_key),
            totals.encode().into(),
        ));
        let why = LedgerEvent::Lost {
            why: "an operator has purged it".into(),
        };
        let notes = notes_of(keys.iter(), &why, self.0.clock.now());
        Ok(self
            .0
            .journal
            .write_dead_letters(
                location.subscription_key,
                DeadLetterWrite {
                    totals,
                    done: keys,
                    notes,
                },
            )
            .await?)
    }

    /// Records in the marker, in the list that `list` selects, dead letters that were handled in a
    /// file with this number of dead letters. Deletes a file in which nothing is left, unless
    /// `keep`.
    pub(super) async fn write_marker(
        &self,
        file: &str,
        dead_letters: u32,
        list: impl FnOnce(&mut FileMarker) -> &mut Vec<(u32, u32)>,
        indexes: Vec<u32>,
        keep: bool,
    ) -> Result<(), BrowseError> {
        let sink = &self.0.sink;
        let name = FileMarker::name(file);
        let (text, version) = sink.get_version(&name, FILE_BYTES_MAX).await?;
        // If the old marker is unreadable, its dead letters are found again, which is harmless.
        let mut marker: FileMarker = text
            .and_then(|text| serde_json::from_slice(&text).ok())
            .unwrap_or_default();
        marker::add(list(&mut marker), indexes);
        if !keep && marker.has_all(dead_letters) {
            sink.delete_file(file).await?;
            return Ok(sink.delete_file(&name).await?);
        }
        let text = serde_json::to_vec(&marker).expect("numbers are JSON");
        // A former owner may have been paused while it wrote its own.
        Ok(sink.replace_file(&name, text.into(), version).await?)
    }
}

pub(super) fn file_indexes(found: &[FoundDeadLetter]) -> Vec<u32> {
    let mut indexes = Vec::new();
    for dead_letter in found {
        if let DeadLetterId::Written { index, .. } = dead_letter.key {
            indexes.push(index);
        }
    }
    indexes
}
