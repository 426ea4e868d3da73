//! Looking through a subscription's dead letters, those that wait and those in files, a bounded step at a time.
//!
//! Those that wait come first, in the order in which their file is due; then the files, in the order of their names. A dead
//! letter that goes into a file meanwhile may be met twice, and is never missed. What was dealt with before, as the marker
//! beside a file says, is not met again.
//!
//! Invariants: a step reads a slice of the journal or one file, and a page takes a bounded number of steps; where it ended
//! before everything was looked at it says so, by the place where the next page begins. What cannot be read is told, with
//! the file's name and the reason, and stops nobody.

use std::{collections::VecDeque, fmt, str::FromStr};

use crate::{
    dead_letter::{
        DeadLetters,
        letter::{self, Letter},
        marker::{Marker, SUFFIX},
        sink::{self, Listed},
    },
    event::{Lane, Obligor, Seq, Timestamp},
    journal::{self, DeadKey},
    policy::place::check_part,
};

/// Dead letters that wait are read by so many …
const SLICE: usize = 512;

/// … and by about so many bytes.
const SLICE_BYTES: usize = 4 << 20;

/// Four times what this server writes into one file: a larger one is none of ours, and is told instead of read.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Names are asked of the store by so many.
const NAMES: usize = 256;

/// A page takes no more steps than this: about a second of a disk's time.
const STEPS_MAX: usize = 64;

/// Problems told on a page, at the most.
const PROBLEMS_MAX: usize = 100;

/// Stands in a key where a path has a slash.
const SLASH: &str = "~";

/// Why dead letters can't be looked at.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The journal.
    #[error(transparent)]
    Journal(#[from] journal::Error),
    /// The store of files.
    #[error(transparent)]
    Store(#[from] sink::Error),
    /// The work died.
    #[error("looking at dead letters failed: {0}")]
    Work(#[from] tokio::task::JoinError),
}

/// Where a subscription's dead letters are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shelf {
    /// Whose.
    pub obligor: Obligor,
    /// The folder of its files; [`None`] where it has no destination.
    pub folder: Option<String>,
    /// Whether its topic has a custom schema: of a dead letter, `data` is the event then.
    pub custom: bool,
}

/// Which of the two places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the journal, waiting for its file.
    Waiting,
    /// In a file.
    Written,
}

/// Which dead letters are meant: what says nothing is true of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    /// In this place.
    pub place: Option<Place>,
    /// Last tried (or else published) then or later.
    pub from: Option<Timestamp>,
    /// Before then.
    pub to: Option<Timestamp>,
    /// Given up for this reason, compared without case.
    pub reason: Option<String>,
    /// Of an event with this id.
    pub id: Option<String>,
    /// These, by their keys.
    pub keys: Option<Vec<Key>>,
}

impl Query {
    fn has(&self, key: &Key, letter: &Letter) -> bool {
        let at = letter.at();
        self.keys.as_ref().is_none_or(|keys| keys.contains(key))
            && self.from.is_none_or(|from| at.is_some_and(|at| at >= from))
            && self.to.is_none_or(|to| at.is_some_and(|at| at < to))
            && self.id.as_ref().is_none_or(|id| letter.id.as_ref() == Some(id))
            && self.reason.as_ref().is_none_or(|wanted| {
                letter.fate.reason.as_ref().is_some_and(|reason| reason.eq_ignore_ascii_case(wanted))
            })
    }

    fn wants(&self, place: Place) -> bool {
        let is_here = |key: &Key| key.place() == place;
        self.place.is_none_or(|wanted| wanted == place)
            && self.keys.as_ref().is_none_or(|keys| keys.iter().any(is_here))
    }

    /// Whether a file may have what is meant, as far as its name says.
    fn may_have(&self, file: &str) -> bool {
        let in_it = |key: &Key| matches!(key, Key::Written { file: known, .. } if known == file);
        self.keys.as_ref().is_none_or(|keys| keys.iter().any(in_it))
    }
}

/// Names a dead letter.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// One that waits.
    Waiting(DeadKey),
    /// One in a file.
    Written {
        /// The file, below the subscription's folder.
        file: String,
        /// Its place in it, from 0 on.
        index: u32,
    },
}

impl Key {
    /// Where it is.
    pub fn place(&self) -> Place {
        match self {
            Self::Waiting(_) => Place::Waiting,
            Self::Written { .. } => Place::Written,
        }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting(DeadKey { due, seq, lane }) => write!(f, "waiting~{}~{}~{}", due.0, seq.0, lane.0),
            Self::Written { file, index } => write!(f, "{}~{index}", file.replace('/', SLASH)),
        }
    }
}

/// It names no dead letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is no key of a dead letter; allowed is a key as the list has it")]
pub struct NoKey;

impl FromStr for Key {
    type Err = NoKey;

    fn from_str(text: &str) -> Result<Self, NoKey> {
        let parts: Vec<&str> = text.split(SLASH).collect();
        if let ["waiting", due, seq, lane] = parts[..] {
            let key = || {
                let (due, seq) = (Timestamp(due.parse().ok()?), Seq(seq.parse().ok()?));
                Some(DeadKey { due, seq, lane: Lane(lane.parse().ok()?) })
            };
            return key().map(Self::Waiting).ok_or(NoKey);
        }
        let (index, file) = parts.split_last().ok_or(NoKey)?;
        let is_path = !file.is_empty() && file.iter().all(|part| check_part(part).is_ok());
        match index.parse() {
            Ok(index) if is_path => Ok(Self::Written { file: file.join("/"), index }),
            Ok(_) | Err(_) => Err(NoKey),
        }
    }
}

/// A dead letter that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// What it is called.
    pub key: Key,
    /// What it is.
    pub letter: Letter,
}

/// What could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where: a file, a place in it, or a dead letter that waits.
    pub at: String,
    /// What is wrong.
    pub why: String,
}

/// What one step met.
#[derive(Debug, Default)]
pub(super) struct Step {
    pub(super) found: Vec<Found>,
    pub(super) problems: Vec<Problem>,
    /// The file that was read, and how many letters it has.
    pub(super) file: Option<(String, u32)>,
}

/// A page of dead letters.
#[derive(Debug, Default)]
pub struct Page {
    /// Those that are meant.
    pub found: Vec<Found>,
    /// What could not be read, the first of it.
    pub problems: Vec<Problem>,
    /// Where the next page begins; [`None`] where everything was looked at. A page with few or none may have one.
    pub next: Option<Cursor>,
}

/// How far a look has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cursor {
    /// At the dead letters that wait, behind this one.
    Waiting(Option<DeadKey>),
    /// At the files: behind this one, or behind a place in it.
    Written(Option<(String, Option<u32>)>),
}

impl Cursor {
    /// Before everything.
    pub const START: Self = Self::Waiting(None);

    fn behind(key: &Key) -> Self {
        match key {
            Key::Waiting(key) => Self::Waiting(Some(*key)),
            Key::Written { file, index } => Self::Written(Some((file.clone(), Some(*index)))),
        }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting(None) => f.write_str("waiting"),
            Self::Written(None) => f.write_str("written"),
            Self::Waiting(Some(key)) => Key::Waiting(*key).fmt(f),
            Self::Written(Some((file, Some(index)))) => Key::Written { file: file.clone(), index: *index }.fmt(f),
            Self::Written(Some((file, None))) => write!(f, "{}~all", file.replace('/', SLASH)),
        }
    }
}

impl FromStr for Cursor {
    type Err = NoKey;

    fn from_str(text: &str) -> Result<Self, NoKey> {
        if let Some(file) = text.strip_suffix("~all") {
            return match format!("{file}~0").parse()? {
                Key::Written { file, .. } => Ok(Self::Written(Some((file, None)))),
                Key::Waiting(_) => Err(NoKey),
            };
        }
        match text {
            "waiting" => Ok(Self::Waiting(None)),
            "written" => Ok(Self::Written(None)),
            key => Ok(Self::behind(&key.parse()?)),
        }
    }
}

/// A look through all that is meant.
pub(super) struct Walk<'a> {
    letters: &'a DeadLetters,
    shelf: &'a Shelf,
    query: &'a Query,
    /// Where it is; [`None`] behind everything.
    pub(super) at: Option<Cursor>,
    names: VecDeque<Listed>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(letters: &'a DeadLetters, shelf: &'a Shelf, query: &'a Query, at: Cursor) -> Self {
        Self { letters, shelf, query, at: Some(at), names: VecDeque::new() }
    }

    /// The next step. Behind the last one there is nothing.
    pub(super) async fn step(&mut self) -> Result<Step, Error> {
        match self.at.clone() {
            None => Ok(Step::default()),
            Some(Cursor::Waiting(_)) if !self.query.wants(Place::Waiting) => {
                self.at = Some(Cursor::Written(None));
                Ok(Step::default())
            }
            Some(Cursor::Waiting(after)) => self.waiting(after).await,
            Some(Cursor::Written(_)) if !self.query.wants(Place::Written) => {
                self.at = None;
                Ok(Step::default())
            }
            Some(Cursor::Written(Some((file, Some(index))))) => {
                self.at = Some(Cursor::Written(Some((file.clone(), None))));
                self.file(&file, Some(index)).await
            }
            Some(Cursor::Written(after)) => self.next_file(after.map(|(file, _)| file)).await,
        }
    }

    async fn waiting(&mut self, after: Option<DeadKey>) -> Result<Step, Error> {
        let reads = self.letters.0.journal.reads();
        let slice = reads.dead_after(self.shelf.obligor, after, SLICE, SLICE_BYTES).await?;
        self.at = Some(slice.last().map_or(Cursor::Written(None), |last| Cursor::Waiting(Some(last.key))));
        let mut step = Step::default();
        for waiting in slice {
            let key = Key::Waiting(waiting.key);
            match Letter::waiting(&waiting) {
                Some(letter) if self.query.has(&key, &letter) => step.found.push(Found { key, letter }),
                Some(_) => {}
                None => {
                    let why = "its event is not in the store".to_owned();
                    step.problems.push(Problem { at: key.to_string(), why });
                }
            }
        }
        Ok(step)
    }

    async fn next_file(&mut self, after: Option<String>) -> Result<Step, Error> {
        let Some(folder) = &self.shelf.folder else {
            self.at = None;
            return Ok(Step::default());
        };
        if self.names.is_empty() {
            let after = after.map(|file| format!("{folder}/{file}"));
            self.names = self.letters.0.sink.list(folder, after.as_deref(), NAMES).await?.into();
        }
        let Some(Listed { name, .. }) = self.names.pop_front() else {
            self.at = None;
            return Ok(Step::default());
        };
        let file = name.strip_prefix(&format!("{folder}/")).unwrap_or(&name).to_owned();
        self.at = Some(Cursor::Written(Some((file.clone(), None))));
        if name.ends_with(SUFFIX) || !self.query.may_have(&file) {
            return Ok(Step::default());
        }
        self.file(&file, None).await
    }

    /// The letters of a file that are meant, behind a place in it.
    async fn file(&self, file: &str, after: Option<u32>) -> Result<Step, Error> {
        let problem =
            |why: String| Ok(Step { problems: vec![Problem { at: file.to_owned(), why }], ..Step::default() });
        if file.contains(SLASH) {
            return problem(format!("its name has a `{SLASH}`, which the name of a dead-letter file cannot have"));
        }
        let Some(folder) = &self.shelf.folder else { return Ok(Step::default()) };
        let name = format!("{folder}/{file}");
        if self.letters.totals(self.shelf.obligor).await?.in_progress.is_some_and(|begun| begun.path() == name) {
            // What is in it still waits, and is met there.
            return Ok(Step::default());
        }
        let text = match self.letters.0.sink.get(&name, FILE_BYTES_MAX).await {
            Ok(text) => text,
            Err(error @ sink::Error::TooLong { .. }) => return problem(error.to_string()),
            Err(error) if error.is_not_found() => return Ok(Step::default()),
            Err(error) => return Err(error.into()),
        };
        let marker = match self.letters.marker(&name).await? {
            Ok(marker) => marker,
            Err(why) => return problem(format!("what is written down beside it can't be read: {why}")),
        };
        let custom = self.shelf.custom;
        // Megabytes of JSON.
        let read = match tokio::task::spawn_blocking(move || letter::read(&text, custom)).await? {
            Ok(read) => read,
            Err(why) => return problem(why),
        };
        let mut step = Step { file: Some((file.to_owned(), count(read.len()))), ..Step::default() };
        for (index, letter) in (0u32..).zip(read) {
            if after.is_some_and(|after| index <= after) || marker.has(index) {
                continue;
            }
            let key = Key::Written { file: file.to_owned(), index };
            match letter {
                Ok(letter) if self.query.has(&key, &letter) => step.found.push(Found { key, letter }),
                Ok(_) => {}
                Err(why) => step.problems.push(Problem { at: key.to_string(), why }),
            }
        }
        Ok(step)
    }
}

/// The last key that there can be before this one.
fn before(DeadKey { due, seq, lane }: DeadKey) -> Option<DeadKey> {
    match (seq.0.checked_sub(1), lane.0.checked_sub(1)) {
        (_, Some(lane)) => Some(DeadKey { due, seq, lane: Lane(lane) }),
        (Some(seq), None) => Some(DeadKey { due, seq: Seq(seq), lane: Lane(u16::MAX) }),
        (None, None) => None,
    }
}

fn count(letters: usize) -> u32 {
    u32::try_from(letters).unwrap_or(u32::MAX)
}

impl DeadLetters {
    /// A page of the dead letters that are meant: up to `top`, from `at` on.
    ///
    /// # Errors
    /// Where the journal or the store of files does not answer.
    pub async fn page(&self, shelf: &Shelf, query: &Query, at: Cursor, top: usize) -> Result<Page, Error> {
        let mut walk = Walk::new(self, shelf, query, at);
        let mut page = Page::default();
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
                walk.at = found.last().map(|last| Cursor::behind(&last.key));
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
    pub async fn one(&self, shelf: &Shelf, key: Key) -> Result<Result<Option<Found>, Problem>, Error> {
        let query = Query { keys: Some(vec![key.clone()]), ..Query::default() };
        let mut walk = Walk::new(self, shelf, &query, Cursor::START);
        let Step { found, problems, .. } = match &key {
            Key::Waiting(key) => walk.waiting(before(*key)).await?,
            Key::Written { file, index } => walk.file(file, index.checked_sub(1)).await?,
        };
        let told = key.to_string();
        let problem = problems.into_iter().find(|problem| problem.at == told || !problem.at.contains(SLASH));
        match (found.into_iter().next(), problem) {
            (None, Some(problem)) => Ok(Err(problem)),
            (found, _) => Ok(Ok(found)),
        }
    }

    /// What was done with a file's letters since it was written; why that can't be known.
    pub(super) async fn marker(&self, file: &str) -> Result<Result<Marker, String>, sink::Error> {
        match self.0.sink.get(&Marker::name(file), FILE_BYTES_MAX).await {
            Ok(text) => Ok(serde_json::from_slice(&text).map_err(|error| error.to_string())),
            Err(error) if error.is_not_found() => Ok(Ok(Marker::default())),
            Err(error) => Err(error),
        }
    }
}
