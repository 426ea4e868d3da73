//! Looking through a subscription's dead letters, those that wait and those in files, a bounded step at a time.
//!
//! Those that wait come first, in the order in which their file is due; then the files, in the order of their names. A dead
//! letter that goes into a file meanwhile may be met twice, and is never missed; whoever counts lets none go. What was dealt with before, as the marker
//! beside a file says, is not met again.
//!
//! Invariants: a step reads a slice of the journal or one file, and a page takes a bounded number of steps; where it ended
//! before everything was looked at it says so, by the place where the next page begins. What cannot be read is told, with
//! the file's name and the reason, and stops nobody.

mod key;
mod walk;

pub use self::key::{BrowseCursor, DeadLetterId, InvalidDeadLetterId};
pub(super) use self::walk::{Step, Walk};
use self::{
    key::SLASH,
    walk::{FILE_BYTES_MAX, before},
};
use crate::{
    dead_letter::{DeadLetters, Owner, event::DeadLetterEvent, marker::RedriveMarker, sink},
    event::{SubscriptionKey, Timestamp},
    journal,
};

/// A page takes no more steps than this: about a second of a disk's time.
const STEPS_MAX: usize = 64;

/// Problems told on a page, at the most.
pub(super) const PROBLEMS_MAX: usize = 100;

/// Why dead letters can't be looked at.
#[derive(Debug, thiserror::Error)]
pub enum BrowseError {
    /// The journal.
    #[error(transparent)]
    Journal(#[from] journal::Error),
    /// The store of files.
    #[error(transparent)]
    Store(#[from] sink::SinkError),
    /// There is none.
    #[error("there is no store for dead letters")]
    NoStore,
    /// The work died.
    #[error("looking at dead letters failed: {0}")]
    Work(#[from] tokio::task::JoinError),
}

/// Where a subscription's dead letters are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterLocation {
    /// Whose.
    pub subscription_key: SubscriptionKey,
    /// The folder of its files; [`None`] where it has no destination.
    pub folder: Option<String>,
    /// Whether its topic has a custom schema: of a dead letter, `data` is the event then.
    pub custom: bool,
    /// Whose files those in the folder are that are looked at; [`None`] where it has no destination.
    pub owner: Option<Owner>,
    /// Who else writes into the folder.
    pub others: Vec<Owner>,
}

/// Which of the two places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadLetterStage {
    /// In the journal, waiting for its file.
    Waiting,
    /// In a file.
    Written,
}

/// Which dead letters are meant: what says nothing is true of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadLetterQuery {
    /// In this place.
    pub place: Option<DeadLetterStage>,
    /// Last tried (or else published) then or later.
    pub from: Option<Timestamp>,
    /// Before then.
    pub to: Option<Timestamp>,
    /// Given up for this reason, compared without case.
    pub reason: Option<String>,
    /// Of an event with this id.
    pub id: Option<String>,
    /// These, by their keys.
    pub keys: Option<Vec<DeadLetterId>>,
}

impl DeadLetterQuery {
    fn has(&self, key: &DeadLetterId, letter: &DeadLetterEvent) -> bool {
        let at = letter.at();
        self.keys.as_ref().is_none_or(|keys| keys.contains(key))
            && self.from.is_none_or(|from| at.is_some_and(|at| at >= from))
            && self.to.is_none_or(|to| at.is_some_and(|at| at < to))
            && self.id.as_ref().is_none_or(|id| letter.id.as_ref() == Some(id))
            && self.reason.as_ref().is_none_or(|wanted| {
                letter.fate.reason.as_ref().is_some_and(|reason| reason.eq_ignore_ascii_case(wanted))
            })
    }

    fn includes(&self, place: DeadLetterStage) -> bool {
        let is_here = |key: &DeadLetterId| key.place() == place;
        self.place.is_none_or(|wanted| wanted == place)
            && self.keys.as_ref().is_none_or(|keys| keys.iter().any(is_here))
    }

    /// Whether a file may have what is meant, as far as its name says.
    fn may_have(&self, file: &str) -> bool {
        let in_it = |key: &DeadLetterId| matches!(key, DeadLetterId::Written { file: known, .. } if known == file);
        self.keys.as_ref().is_none_or(|keys| keys.iter().any(in_it))
    }
}

/// A dead letter that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundDeadLetter {
    /// What it is called.
    pub key: DeadLetterId,
    /// What it is.
    pub dead_letter: DeadLetterEvent,
}

/// What could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrowseProblem {
    /// Where: a file, a place in it, or a dead letter that waits.
    pub at: String,
    /// What is wrong.
    pub why: String,
}

/// A page of dead letters.
#[derive(Debug, Default)]
pub struct DeadLetterPage {
    /// Those that are meant.
    pub found: Vec<FoundDeadLetter>,
    /// What could not be read, the first of it.
    pub problems: Vec<BrowseProblem>,
    /// Where the next page begins; [`None`] where everything was looked at. A page with few or none may have one.
    pub next: Option<BrowseCursor>,
}

impl DeadLetters {
    /// A page of the dead letters that are meant: up to `top`, from `at` on.
    ///
    /// # Errors
    /// Where the journal or the store of files does not answer.
    pub async fn page(
        &self,
        shelf: &DeadLetterLocation,
        query: &DeadLetterQuery,
        at: BrowseCursor,
        top: usize,
    ) -> Result<DeadLetterPage, BrowseError> {
        let mut walk = Walk::new(self, shelf, query, at);
        let mut page = DeadLetterPage::default();
        for _ in 0..STEPS_MAX {
            if walk.at.is_none() || page.found.len() >= top {
                break;
            }
            let Step { mut found, problems, .. } = walk.step().await?;
            let room = PROBLEMS_MAX - page.problems.len();
            page.problems.extend(problems.into_iter().take(room));
            let room = top - page.found.len();
            if found.len() > room {
                found.truncate(room);
                walk.at = found.last().map(|last| BrowseCursor::behind(&last.key));
            }
            page.found.append(&mut found);
        }
        page.next = walk.at;
        Ok(page)
    }

    /// One of them, if it is there; or why it can't be read.
    ///
    /// # Errors
    /// Where the journal or the store of files does not answer.
    pub async fn one(
        &self,
        shelf: &DeadLetterLocation,
        key: DeadLetterId,
    ) -> Result<Result<Option<FoundDeadLetter>, BrowseProblem>, BrowseError> {
        let query = DeadLetterQuery { keys: Some(vec![key.clone()]), ..DeadLetterQuery::default() };
        let mut walk = Walk::new(self, shelf, &query, BrowseCursor::START);
        let Step { found, problems, .. } = match &key {
            DeadLetterId::Waiting(key) => walk.waiting(before(*key)).await?,
            DeadLetterId::Written { file, index } => walk.file(file, index.checked_sub(1)).await?,
        };
        let told = key.to_string();
        let problem = problems.into_iter().find(|problem| problem.at == told || !problem.at.contains(SLASH));
        match (found.into_iter().next(), problem) {
            (None, Some(problem)) => Ok(Err(problem)),
            (found, _) => Ok(Ok(found)),
        }
    }

    /// What was done with a file's letters since it was written; why that can't be known.
    pub(super) async fn marker(&self, file: &str) -> Result<Result<RedriveMarker, String>, sink::SinkError> {
        match self.0.sink.get(&RedriveMarker::name(file), FILE_BYTES_MAX).await {
            Ok(text) => Ok(serde_json::from_slice(&text).map_err(|error| error.to_string())),
            Err(error) if error.is_not_found() => Ok(Ok(RedriveMarker::default())),
            Err(error) => Err(error),
        }
    }
}
