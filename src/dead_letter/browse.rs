//! Browses a subscription's dead letters, waiting and written, in bounded steps.
//!
//! Waiting dead letters come first, in the order of their due time, then files, in the order of
//! their names. A dead letter that is written to a file meanwhile may appear twice and is never
//! missed; counting prevents it. Dead letters that were already redriven or purged, according to
//! the marker beside a file, are skipped.
//!
//! Invariants:
//! - A step reads a slice of the journal or one file. A page takes a bounded number of steps, and
//!   says where the next page begins.
//! - An unreadable file or dead letter is reported with its name and the reason, and does not stop
//!   the walk.

mod key;
mod walk;

pub use self::key::{BrowseCursor, DeadLetterId, InvalidDeadLetterId};
pub(super) use self::walk::FILE_BYTES_MAX;
pub(super) use self::walk::{Step, Walk};
use self::{key::SLASH, walk::key_before};
use crate::{DeadLetters, Owner, event::DeadLetterEvent, marker::FileMarker, sink};
use gridhook_compute::ComputeError;
use gridhook_event::{SubscriptionKey, Timestamp};
use gridhook_journal as journal;

/// Maximum steps per page: about a second of disk time.
const STEPS_MAX: usize = 64;

pub(super) const PROBLEMS_MAX: usize = 100;

/// Why dead letters cannot be browsed.
#[derive(Debug, thiserror::Error)]
pub enum BrowseError {
    #[error(transparent)]
    Journal(#[from] journal::Error),
    /// The store of files failed.
    #[error(transparent)]
    Store(#[from] sink::SinkError),
    #[error("there is no store for dead letters")]
    NoStore,
    #[error("reading dead letters failed: {0}")]
    Work(#[from] tokio::task::JoinError),
    /// The computing threads could not check the dead letters.
    #[error("the dead letters were not checked: {0}")]
    Compute(#[from] ComputeError),
}

/// The place of a subscription's dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterLocation {
    pub subscription_key: SubscriptionKey,
    /// The folder of the files; [`None`] without a destination.
    pub folder: Option<String>,
    /// Whether the topic has the custom input schema: then `data` of a dead letter is the event.
    pub custom: bool,
    /// The subscription as the owner of its files; [`None`] without a destination.
    pub owner: Option<Owner>,
    /// Other subscriptions that write files into the same folder.
    pub others: Vec<Owner>,
}

/// The two stages of a dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadLetterStage {
    /// The dead letter is in the journal, waiting for its file.
    Waiting,
    Written,
}

/// Selects dead letters. A field that is [`None`] selects all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadLetterQuery {
    pub stage: Option<DeadLetterStage>,
    /// Selects dead letters last attempted (or else published) at this time or later.
    pub from: Option<Timestamp>,
    /// Selects dead letters last attempted (or else published) before this time.
    pub to: Option<Timestamp>,
    /// Selects dead letters with this reason, compared without case.
    pub reason: Option<String>,
    /// Selects dead letters of events with this id.
    pub id: Option<String>,
    pub keys: Option<Vec<DeadLetterId>>,
}

impl DeadLetterQuery {
    fn matches(&self, key: &DeadLetterId, dead_letter: &DeadLetterEvent) -> bool {
        let at = dead_letter.last_attempted();
        self.keys.as_ref().is_none_or(|keys| keys.contains(key))
            && self.from.is_none_or(|from| at.is_some_and(|at| at >= from))
            && self.to.is_none_or(|to| at.is_some_and(|at| at < to))
            && self
                .id
                .as_ref()
                .is_none_or(|id| dead_letter.id.as_ref() == Some(id))
            && self.reason.as_ref().is_none_or(|wanted| {
                dead_letter
                    .result
                    .reason
                    .as_ref()
                    .is_some_and(|reason| reason.eq_ignore_ascii_case(wanted))
            })
    }

    fn includes_stage(&self, stage: DeadLetterStage) -> bool {
        let is_here = |key: &DeadLetterId| key.stage() == stage;
        self.stage.is_none_or(|wanted| wanted == stage)
            && self
                .keys
                .as_ref()
                .is_none_or(|keys| keys.iter().any(is_here))
    }

    /// Whether a file may contain selected dead letters, by its name.
    fn may_have(&self, file: &str) -> bool {
        let in_it = |key: &DeadLetterId| matches!(key, DeadLetterId::Written { file: known, .. } if known == file);
        self.keys.as_ref().is_none_or(|keys| keys.iter().any(in_it))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundDeadLetter {
    pub key: DeadLetterId,
    pub dead_letter: DeadLetterEvent,
}

/// Something that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrowseProblem {
    /// A file, an index in it, or a waiting dead letter.
    pub at: String,
    pub why: String,
}

#[derive(Debug, Default)]
pub struct DeadLetterPage {
    pub found: Vec<FoundDeadLetter>,
    pub problems: Vec<BrowseProblem>,
    /// The position of the next page; [`None`] at the end. A page with few or no dead letters may
    /// have one.
    pub next: Option<BrowseCursor>,
}

impl DeadLetters {
    /// A page of selected dead letters: at most `top`, from `at` on.
    ///
    /// # Errors
    /// If the journal or the store of files fails.
    pub async fn read_page(
        &self,
        location: &DeadLetterLocation,
        query: &DeadLetterQuery,
        at: BrowseCursor,
        top: usize,
    ) -> Result<DeadLetterPage, BrowseError> {
        let mut walk = Walk::new(self, location, query, at);
        let mut page = DeadLetterPage::default();
        for _ in 0..STEPS_MAX {
            if walk.at.is_none() || page.found.len() >= top {
                break;
            }
            let Step {
                mut found,
                problems,
                ..
            } = walk.next_step().await?;
            let room = PROBLEMS_MAX - page.problems.len();
            page.problems.extend(problems.into_iter().take(room));
            let room = top - page.found.len();
            if found.len() > room {
                found.truncate(room);
                walk.at = found.last().map(|last| BrowseCursor::behind_key(&last.key));
            }
            page.found.append(&mut found);
        }
        page.next = walk.at;
        Ok(page)
    }

    /// Reads one dead letter, if it exists, or why it cannot be read.
    ///
    /// # Errors
    /// If the journal or the store of files fails.
    pub async fn read_one(
        &self,
        location: &DeadLetterLocation,
        key: DeadLetterId,
    ) -> Result<Result<Option<FoundDeadLetter>, BrowseProblem>, BrowseError> {
        let query = DeadLetterQuery {
            keys: Some(vec![key.clone()]),
            ..DeadLetterQuery::default()
        };
        let mut walk = Walk::new(self, location, &query, BrowseCursor::START);
        let Step {
            found, problems, ..
        } = match &key {
            DeadLetterId::Waiting(key) => walk.walk_waiting(key_before(*key)).await?,
            DeadLetterId::Written { file, index } => {
                walk.walk_file(file, index.checked_sub(1)).await?
            }
        };
        let name = key.to_string();
        let problem = problems
            .into_iter()
            .find(|problem| problem.at == name || !problem.at.contains(SLASH));
        match (found.into_iter().next(), problem) {
            (None, Some(problem)) => Ok(Err(problem)),
            (found, _) => Ok(Ok(found)),
        }
    }

    /// The marker of a file, or why it cannot be read.
    pub(super) async fn read_marker(
        &self,
        file: &str,
    ) -> Result<Result<FileMarker, String>, sink::SinkError> {
        match self
            .0
            .sink
            .get(&FileMarker::name(file), FILE_BYTES_MAX)
            .await
        {
            Ok(text) => Ok(serde_json::from_slice(&text).map_err(|error| error.to_string())),
            Err(error) if error.is_not_found() => Ok(Ok(FileMarker::default())),
            Err(error) => Err(error),
        }
    }
}
