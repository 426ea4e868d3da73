//! Dead letters that an operator gives up for good.
//!
//! Those that wait leave the journal in the write that counts them; those in a file are written down beside it, and a file
//! of which nothing is left goes, and then what was written down beside it. A crash between two of these steps leaves
//! something to be purged again, and never counts anything twice.
//!
//! One piece of work at a time for each subscription (`DeadLetters::desk`): the accounts are written whole.

use super::{
    DeadLetters, Totals,
    browse::{Cursor, Error, Found, Key, PROBLEMS_MAX, Problem, Query, Shelf, Step, Walk},
    marker::{self, Marker},
    work::notes_of,
};
use crate::{
    journal::{Buried, DeadKey},
    policy::record::What,
};

/// A call takes no more steps than this; whoever wants more asks again.
const STEPS_MAX: usize = 64;

/// What came of a part of a purge.
#[derive(Debug, Default)]
pub struct Purged {
    /// Dead letters that are no more, or would be no more.
    pub letters: u64,
    /// What could not be read, and stays.
    pub problems: Vec<Problem>,
    /// Where the rest begins; [`None`] where all is done.
    pub next: Option<Cursor>,
}

impl DeadLetters {
    /// Purges what is meant, from `at` on; or only counts it.
    ///
    /// # Errors
    /// Where the journal or the store of files does not answer; what was done until then is done.
    pub async fn purge(&self, shelf: &Shelf, query: &Query, at: Cursor, dry_run: bool) -> Result<Purged, Error> {
        if dry_run {
            return self.count(shelf, query, at, |_| None).await;
        }
        let mut walk = Walk::new(self, shelf, query, at);
        let mut purged = Purged::default();
        for _ in 0..STEPS_MAX {
            if walk.at.is_none() {
                break;
            }
            let _desk = self.desk(shelf.obligor).await;
            let Step { found, problems, file } = walk.step().await?;
            purged.letters += found.len() as u64;
            purged.problems.extend(problems);
            if found.is_empty() {
                continue;
            }
            match (file, &shelf.folder) {
                (Some((file, letters)), Some(folder)) => {
                    let (file, purged) = (format!("{folder}/{file}"), indexes(&found));
                    self.mark(&file, letters, |marker| &mut marker.purged, purged, false).await?;
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
        shelf: &Shelf,
        query: &Query,
        at: Cursor,
        problem: impl Fn(&Found) -> Option<Problem>,
    ) -> Result<Purged, Error> {
        let _desk = self.desk(shelf.obligor).await;
        let mut walk = Walk::new(self, shelf, query, at);
        let (mut counted, mut files) = (Purged::default(), 0);
        while let Some(at) = &walk.at {
            if matches!(at, Cursor::Written(_)) {
                if files == STEPS_MAX {
                    break;
                }
                files += 1;
            }
            let Step { found, problems, .. } = walk.step().await?;
            let refused: Vec<Problem> = found.iter().filter_map(&problem).collect();
            counted.letters += (found.len() - refused.len()) as u64;
            let room = PROBLEMS_MAX - counted.problems.len();
            counted.problems.extend(problems.into_iter().chain(refused).take(room));
        }
        counted.next = walk.at;
        Ok(counted)
    }

    async fn purge_waiting(&self, shelf: &Shelf, found: &[Found]) -> Result<(), Error> {
        let done: Vec<DeadKey> = found
            .iter()
            .filter_map(|found| match found.key {
                Key::Waiting(key) => Some(key),
                Key::Written { .. } => None,
            })
            .collect();
        let mut totals = self.totals(shelf.obligor).await?;
        totals.purged += done.len() as u64;
        let totals = Some((Totals::name(shelf.obligor), totals.encode().into()));
        let why = What::Lost { why: "an operator has purged it".into() };
        let notes = notes_of(done.iter(), &why, self.0.clock.now());
        Ok(self.0.journal.bury(shelf.obligor, Buried { totals, done, notes }).await?)
    }

    /// Writes down, in the list that `list` picks, what was done with these letters of a file that has so many. A file of
    /// which nothing is left goes, unless it is kept.
    pub(super) async fn mark(
        &self,
        file: &str,
        letters: u32,
        list: impl FnOnce(&mut Marker) -> &mut Vec<(u32, u32)>,
        indexes: Vec<u32>,
        keep: bool,
    ) -> Result<(), Error> {
        let sink = &self.0.sink;
        // Without what was known before, everything of it would be met again, and that does no harm.
        let mut marker = self.marker(file).await?.unwrap_or_default();
        marker::add(list(&mut marker), indexes);
        if !keep && marker.has_all(letters) {
            sink.delete(file).await?;
            return Ok(sink.delete(&Marker::name(file)).await?);
        }
        let text = serde_json::to_vec(&marker).expect("numbers are JSON");
        Ok(sink.put(&Marker::name(file), text.into()).await?)
    }
}

/// Their places in their file.
pub(super) fn indexes(found: &[Found]) -> Vec<u32> {
    let index = |found: &Found| match found.key {
        Key::Written { index, .. } => Some(index),
        Key::Waiting(_) => None,
    };
    found.iter().filter_map(index).collect()
}
