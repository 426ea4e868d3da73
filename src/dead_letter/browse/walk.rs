//! A walk through selected dead letters, in steps of a journal slice or a file.

use std::collections::VecDeque;

use super::{
    BrowseCursor, BrowseError, BrowseProblem, DeadLetterId, DeadLetterLocation, DeadLetterQuery,
    DeadLetterStage, FoundDeadLetter, key::SLASH,
};
use crate::{
    DeadLetters,
    event::{self, DeadLetterEvent},
    marker::SUFFIX,
    owner::{self, FileOwner},
    sink::{self, ListedFile},
};
use gridhook_event::{Lane, Seq, Timestamp};
use gridhook_journal::DeadLetterKey;

/// Maximum waiting dead letters per step.
const SLICE: usize = 512;

const SLICE_BYTES: usize = 4 << 20;

/// Four times the maximum that this server writes into a file. A larger file is reported instead of
/// read.
pub(crate) const FILE_BYTES_MAX: u64 = 64 << 20;

/// File names per request to the store.
const NAMES: usize = 256;

/// The result of a step.
#[derive(Debug, Default)]
pub(crate) struct Step {
    pub found: Vec<FoundDeadLetter>,
    pub problems: Vec<BrowseProblem>,
    /// The file that was read, and its number of dead letters.
    pub file: Option<(String, u32)>,
}

impl Step {
    /// The step past a file that cannot be read.
    fn from_problem(file: &str, why: String) -> Self {
        let at = file.to_owned();
        Self {
            problems: vec![BrowseProblem { at, why }],
            ..Self::default()
        }
    }
}

/// A walk through selected dead letters.
pub(crate) struct Walk<'a> {
    dead_letters: &'a DeadLetters,
    location: &'a DeadLetterLocation,
    query: &'a DeadLetterQuery,
    /// The position; [`None`] at the end.
    pub at: Option<BrowseCursor>,
    /// Skips what was dead-lettered, or written, at this time or later.
    until: Timestamp,
    names: VecDeque<ListedFile>,
}

impl<'a> Walk<'a> {
    pub(crate) fn new(
        dead_letters: &'a DeadLetters,
        location: &'a DeadLetterLocation,
        query: &'a DeadLetterQuery,
        at: BrowseCursor,
    ) -> Self {
        Self {
            dead_letters,
            location,
            query,
            at: Some(at),
            until: Timestamp::NEVER,
            names: VecDeque::new(),
        }
    }

    /// Limits the walk to dead letters from before `until`.
    pub(crate) fn limit_until(self, until: Timestamp) -> Self {
        Self { until, ..self }
    }

    /// Takes the next step. Returns an empty step at the end.
    pub(crate) async fn next_step(&mut self) -> Result<Step, BrowseError> {
        match self.at.clone() {
            None => Ok(Step::default()),
            Some(BrowseCursor::Waiting(_))
                if !self.query.includes_stage(DeadLetterStage::Waiting) =>
            {
                self.at = Some(BrowseCursor::Written(None));
                Ok(Step::default())
            }
            Some(BrowseCursor::Waiting(after)) => self.walk_waiting(after).await,
            Some(BrowseCursor::Written(_) | BrowseCursor::InFile { .. })
                if !self.query.includes_stage(DeadLetterStage::Written) =>
            {
                self.at = None;
                Ok(Step::default())
            }
            Some(BrowseCursor::InFile { file, index }) => {
                self.at = Some(BrowseCursor::Written(Some(file.clone())));
                self.walk_file(&file, Some(index)).await
            }
            Some(BrowseCursor::Written(after)) => self.next_file(after).await,
        }
    }

    pub(super) async fn walk_waiting(
        &mut self,
        after: Option<DeadLetterKey>,
    ) -> Result<Step, BrowseError> {
        let reads = self.dead_letters.0.journal.reader_pool();
        let slice = reads
            .dead_after(self.location.subscription_key, after, SLICE, SLICE_BYTES)
            .await?;
        self.at = Some(slice.last().map_or(BrowseCursor::Written(None), |last| {
            BrowseCursor::Waiting(Some(last.key))
        }));
        let mut step = Step::default();
        for waiting in slice
            .into_iter()
            .filter(|waiting| waiting.dead.given_up < self.until)
        {
            let key = DeadLetterId::Waiting(waiting.key);
            match DeadLetterEvent::from_waiting(&waiting) {
                Some(dead_letter) if self.query.matches(&key, &dead_letter) => {
                    step.found.push(FoundDeadLetter { key, dead_letter })
                }
                Some(_) => {}
                None => {
                    let why = "its event is not in the store".to_owned();
                    step.problems.push(BrowseProblem {
                        at: key.to_string(),
                        why,
                    });
                }
            }
        }
        Ok(step)
    }

    async fn next_file(&mut self, after: Option<String>) -> Result<Step, BrowseError> {
        let Some(folder) = &self.location.folder else {
            self.at = None;
            return Ok(Step::default());
        };
        if self.names.is_empty() {
            let after = after.map(|file| format!("{folder}/{file}"));
            self.names = self
                .dead_letters
                .0
                .sink
                .list_below(folder, after.as_deref(), NAMES)
                .await?
                .into();
        }
        let Some(ListedFile { name, modified, .. }) = self.names.pop_front() else {
            self.at = None;
            return Ok(Step::default());
        };
        let file = name
            .strip_prefix(&format!("{folder}/"))
            .unwrap_or(&name)
            .to_owned();
        self.at = Some(BrowseCursor::Written(Some(file.clone())));
        if name.ends_with(SUFFIX) || modified >= self.until || !self.query.may_have(&file) {
            return Ok(Step::default());
        }
        self.walk_file(&file, None).await
    }

    /// The selected dead letters of a file, after an index in it.
    pub(super) async fn walk_file(
        &self,
        file: &str,
        after: Option<u32>,
    ) -> Result<Step, BrowseError> {
        if file.contains(SLASH) {
            let why = format!(
                "its name has a `{SLASH}`, which the name of a dead-letter file cannot have"
            );
            return Ok(Step::from_problem(file, why));
        }
        let DeadLetterLocation {
            folder,
            owner,
            others,
            custom,
            ..
        } = self.location;
        let (Some(folder), Some(owner)) = (folder, owner) else {
            return Ok(Step::default());
        };
        let file_owner = owner::file_owner(owner, others, file);
        match &file_owner {
            FileOwner::Own | FileOwner::Unnamed => {}
            FileOwner::Others => return Ok(Step::default()),
            FileOwner::Unknown(why) => return Ok(Step::from_problem(file, why.clone())),
        }
        let name = format!("{folder}/{file}");
        if self
            .dead_letters
            .read_totals(self.location.subscription_key)
            .await?
            .in_progress
            .is_some_and(|begun| begun.path() == name)
        {
            // The dead letters of this file still wait, and were found among the waiting ones.
            return Ok(Step::default());
        }
        let text = match self.dead_letters.0.sink.get(&name, FILE_BYTES_MAX).await {
            Ok(text) => text,
            Err(error @ sink::SinkError::TooLong { .. }) => {
                return Ok(Step::from_problem(file, error.to_string()));
            }
            Err(error) if error.is_not_found() => return Ok(Step::default()),
            Err(error) => return Err(error.into()),
        };
        let marker = match self.dead_letters.read_marker(&name).await? {
            Ok(marker) => marker,
            Err(why) => {
                return Ok(Step::from_problem(
                    file,
                    format!("cannot read the marker beside the file: {why}"),
                ));
            }
        };
        let custom = *custom;
        // Parses megabytes of JSON.
        let read = match tokio::task::spawn_blocking(move || event::read(&text, custom)).await? {
            Ok(read) => read,
            Err(why) => return Ok(Step::from_problem(file, why)),
        };
        let mut step = Step {
            file: Some((file.to_owned(), count_as_u32(read.len()))),
            ..Step::default()
        };
        for (index, dead_letter) in (0u32..).zip(read) {
            if after.is_some_and(|after| index <= after) || marker.is_handled(index) {
                continue;
            }
            let key = DeadLetterId::Written {
                file: file.to_owned(),
                index,
            };
            match dead_letter {
                Ok(dead_letter) if self.query.matches(&key, &dead_letter) => {
                    match owner::dead_letter_owner(owner, others, &file_owner, &dead_letter) {
                        FileOwner::Own => step.found.push(FoundDeadLetter { key, dead_letter }),
                        FileOwner::Others | FileOwner::Unnamed => {}
                        FileOwner::Unknown(why) => step.problems.push(BrowseProblem {
                            at: key.to_string(),
                            why,
                        }),
                    }
                }
                Ok(_) => {}
                Err(why) => step.problems.push(BrowseProblem {
                    at: key.to_string(),
                    why,
                }),
            }
        }
        Ok(step)
    }
}

/// The largest possible key before this one.
pub(super) fn key_before(DeadLetterKey { due, seq, lane }: DeadLetterKey) -> Option<DeadLetterKey> {
    match (seq.0.checked_sub(1), lane.0.checked_sub(1)) {
        (_, Some(lane)) => Some(DeadLetterKey {
            due,
            seq,
            lane: Lane(lane),
        }),
        (Some(seq), None) => Some(DeadLetterKey {
            due,
            seq: Seq(seq),
            lane: Lane(u16::MAX),
        }),
        (None, None) => None,
    }
}

fn count_as_u32(dead_letters: usize) -> u32 {
    u32::try_from(dead_letters).unwrap_or(u32::MAX)
}
