//! Dead letters that an operator gives up for good.
//!
//! Those that wait leave the journal in the write that counts them; those in a file are written down beside it, and a file
//! of which nothing is left goes, and then what was written down beside it. A crash between two of these steps leaves
//! something to be purged again, and never counts anything twice.
//!
//! One piece of work at a time for each subscription (`DeadLetters::desk`): the accounts are written whole.

use super::{
    DeadLetterTotals, DeadLetters,
    browse::{
        BrowseCursor, BrowseError, BrowseProblem, DeadLetterId, DeadLetterLocation, DeadLetterQuery, FoundDeadLetter,
        PROBLEMS_MAX, Step, Walk,
    },
    marker::{self, RedriveMarker},
    writer::notes_of,
};
use crate::{
    journal::{DeadKey, DeadLetterWrite},
    policy::record::LedgerEvent,
};

/// A call takes no more steps than this; whoever wants more asks again.
const STEPS_MAX: usize = 64;

/// What came of a part of a purge.
#[derive(Debug, Default)]
pub struct PurgeProgress {
    /// Dead letters that are no more, or would be no more.
    pub dead_letters: u64,
    /// What could not be read, and stays.
    pub problems: Vec<BrowseProblem>,
    /// Where the rest begins; [`None`] where all is done.
    pub next: Option<BrowseCursor>,
}

impl DeadLetters {
    /// Purges what is meant, from `at` on; or only counts it.
    ///
    /// # Errors
    /// Where the journal or the store of files does not answer; what was done until then is done.
    pub async fn purge(
        &self,
        shelf: &DeadLetterLocation,
        query: &DeadLetterQuery,
        at: BrowseCursor,
        dry_run: bool,
    ) -> Result<PurgeProgress, BrowseError> {
        if dry_run {
            return self.count(shelf, query, at, |_| None).await;
        }
        let mut walk = Walk::new(self, shelf, query, at);
        let mut purged = PurgeProgress::default();
        for _ in 0..STEPS_MAX {
            if walk.at.is_none() {
                break;
            }
            let _desk = self.lock(shelf.subscription_key).await;
            let Step { found, problems, file } = walk.step().await?;
            purged.dead_letters += found.len() as u64;
            purged.problems.extend(problems);
            if found.is_empty() {
                continue;
            }
            match (file, &shelf.folder) {
                (Some((file, letters)), Some(folder)) => {
                    let (file, purged) = (format!("{folder}/{file}"), indexes(&found));
                    self.write_marker(&file, letters, |marker| &mut marker.purged, purged, false).await?;
                }
                _ => self.purge_waiting(shelf, &found).await?,
            }
        }
        purged.next = walk.at;
        Ok(purged)
    }

    /// Counts what is meant, from `at` on, but for what `problem` has something to say of. No dead letter goes into a file
    /// meanwhile: it would be counted where it waited, and again in its file. So all that wait are counted in one call.
    ///
    /// # Errors
    /// Where the journal or the store of files does not answer.
    pub(super) async fn count(
        &self,
        shelf: &DeadLetterLocation,
        query: &DeadLetterQuery,
        at: BrowseCursor,
        problem: impl Fn(&FoundDeadLetter) -> Option<BrowseProblem>,
    ) -> Result<PurgeProgress, BrowseError> {
        let _desk = self.lock(shelf.subscription_key).await;
        let mut walk = Walk::new(self, shelf, query, at);
        let (mut counted, mut files) = (PurgeProgress::default(), 0);
        while let Some(at) = &walk.at {
            if matches!(at, BrowseCursor::Written(_)) {
                if files == STEPS_MAX {
                    break;
                }
                files += 1;
            }
            let Step { found, problems, .. } = walk.step().await?;
            let refused: Vec<BrowseProblem> = found.iter().filter_map(&problem).collect();
            counted.dead_letters += (found.len() - refused.len()) as u64;
            let room = PROBLEMS_MAX - counted.problems.len();
            counted.problems.extend(problems.into_iter().chain(refused).take(room));
        }
        counted.next = walk.at;
        Ok(counted)
    }

    async fn purge_waiting(&self, shelf: &DeadLetterLocation, found: &[FoundDeadLetter]) -> Result<(), BrowseError> {
        let done: Vec<DeadKey> = found
            .iter()
            .filter_map(|found| match found.key {
                DeadLetterId::Waiting(key) => Some(key),
                DeadLetterId::Written { .. } => None,
            })
            .collect();
        let mut totals = self.totals(shelf.subscription_key).await?;
        totals.purged += done.len() as u64;
        let totals = Some((DeadLetterTotals::name(shelf.subscription_key), totals.encode().into()));
        let why = LedgerEvent::Lost { why: "an operator has purged it".into() };
        let notes = notes_of(done.iter(), &why, self.0.clock.now());
        Ok(self.0.journal.write_dead_letters(shelf.subscription_key, DeadLetterWrite { totals, done, notes }).await?)
    }

    /// Writes down, in the list that `list` picks, what was done with these letters of a file that has so many. A file of
    /// which nothing is left goes, unless it is kept.
    pub(super) async fn write_marker(
        &self,
        file: &str,
        letters: u32,
        list: impl FnOnce(&mut RedriveMarker) -> &mut Vec<(u32, u32)>,
        indexes: Vec<u32>,
        keep: bool,
    ) -> Result<(), BrowseError> {
        let sink = &self.0.sink;
        // Without what was known before, everything of it would be met again, and that does no harm.
        let mut marker = self.marker(file).await?.unwrap_or_default();
        marker::add(list(&mut marker), indexes);
        if !keep && marker.has_all(letters) {
            sink.delete(file).await?;
            return Ok(sink.delete(&RedriveMarker::name(file)).await?);
        }
        let text = serde_json::to_vec(&marker).expect("numbers are JSON");
        Ok(sink.put(&RedriveMarker::name(file), text.into()).await?)
    }
}

/// Their places in their file.
pub(super) fn indexes(found: &[FoundDeadLetter]) -> Vec<u32> {
    let index = |found: &FoundDeadLetter| match found.key {
        DeadLetterId::Written { index, .. } => Some(index),
        DeadLetterId::Waiting(_) => None,
    };
    found.iter().filter_map(index).collect()
}
