//! Dead letters that are sent again, to their subscription alone: a page at a time, each of what there was when it began.
//!
//! A redrive is a job of its subscription. Who reads the dead letters is here; who owes them then, sends them, and counts
//! what becomes of them is the subscription's core, in one write with the record of how far the redrive has come.
//!
//! Invariants:
//! - Of what waits, a page stops waiting in the write in which it is owed. Of a file, a page is owed and its events are held
//!   apart in the journal, and when all of them have ended it is written down beside the file, or the file goes: never
//!   before. So at no instant is a dead letter nowhere, and a kill repeats what was in flight.
//! - One page at a time: what a redrive holds in the journal is bounded, however many dead letters there are.
//! - What was given up, or written, since it began is not its business: it sends nothing in a circle.
//! - A file of which a part was dropped, or canceled with nowhere to go, is left as it is.

mod progress;

use std::{
    collections::HashSet,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;

pub use self::progress::Ask;
use self::progress::{FilePage, Progress};
use super::{
    DeadLetters, Stores, Target, Totals,
    browse::{Cursor, Error, Found, Key, Problem, Query, Shelf, Step, Walk},
    file,
    letter::Letter,
    marker,
    purge::indexes,
};
use crate::{
    clock::Clock,
    event::{Lane, Obligor, Seq, Timestamp},
    journal::{
        self, Journal, MetaChange,
        chunk::{Running, Sealed},
        keys::{MetaKind, parse_redrive_name, redrive_name},
    },
    policy::record::{
        Returned, TakenBack,
        job::{Job, JobState},
    },
};

/// So many dead letters are in a page at the most.
const PAGE: usize = 1_000;

/// How often it is asked whether a page has ended: a person waits, and an endpoint takes longer.
const POLL: Duration = Duration::from_millis(50);

/// The wait where the journal or the store of files does not answer.
const AGAIN: Duration = Duration::from_secs(5);

/// What a redrive must know of subscriptions, and ask of them.
pub trait Roster: Send + Sync {
    /// The redrives that go on.
    fn redrives(&self) -> Vec<(Obligor, Lane)>;

    /// The other subscriptions that have the same name, in whichever topic: they may share its folder.
    fn namesakes(&self, obligor: Obligor) -> Vec<Obligor>;

    /// Whether a subscription's topic has a custom schema; [`None`] where it is no more.
    fn is_custom(&self, obligor: Obligor) -> Option<bool>;

    /// A job that goes on.
    fn job(&self, obligor: Obligor, lane: Lane) -> Option<Job>;

    /// The event of a dead letter as one of the subscription's topic, or why it can't be one.
    ///
    /// # Errors
    /// Where its topic would not take it, or its endpoint not in its schema.
    fn recast(&self, obligor: Obligor, letter: &Letter) -> Result<Sealed, String>;

    /// Hands a page to the core; answers when it is durable. False where it was not taken, or nobody knows.
    fn take_back(&self, obligor: Obligor, page: TakenBack) -> Pin<Box<dyn Future<Output = bool> + Send>>;
}

/// The redrives of a server. Clones are the same.
#[derive(Clone)]
pub struct Redrives {
    journal: Journal,
    clock: Clock,
    stores: Stores,
    roster: Arc<dyn Roster>,
    /// The last place that was given to an event apart.
    apart: Arc<AtomicU64>,
}

impl Redrives {
    /// Of the dead letters in these stores and of these subscriptions.
    pub fn new(journal: Journal, clock: Clock, stores: Stores, roster: Arc<dyn Roster>) -> Self {
        Self { journal, clock, stores, roster, apart: Arc::default() }
    }

    /// Where a subscription's dead letters are, and who writes them; [`None`] where it is no more.
    pub fn shelf(&self, obligor: Obligor) -> Option<(&DeadLetters, Shelf)> {
        let (custom, (letters, target)) = (self.roster.is_custom(obligor)?, self.stores.of(obligor)?);
        let place = |target: &Target| (target.store.clone(), file::folder(target));
        let own = target.as_ref().map(place);
        let namesakes = self.roster.namesakes(obligor).into_iter();
        let others = namesakes.filter_map(|other| self.stores.of(other)?.1).filter(|other| Some(place(other)) == own);
        let others = others.map(|other| other.owner()).collect();
        let (folder, owner) = (target.as_ref().map(file::folder), target.as_ref().map(Target::owner));
        Some((letters, Shelf { obligor, folder, custom, owner, others }))
    }

    fn letters(&self, obligor: Obligor) -> Result<&DeadLetters, Error> {
        self.stores.of(obligor).map(|(letters, _)| letters).ok_or(Error::NoStore)
    }

    /// Goes on with what an earlier process began. Blocks: for the start.
    ///
    /// # Errors
    /// Where the journal can't be read.
    pub fn resume(&self) -> Result<(), journal::Error> {
        let mut all: HashSet<(Obligor, Lane)> = self.roster.redrives().into_iter().collect();
        let records = self.journal.reads().all_meta(MetaKind::Redrive)?;
        all.extend(records.iter().filter_map(|(name, _)| parse_redrive_name(name)));
        for (obligor, lane) in all {
            actix_rt::spawn(self.clone().run(obligor, lane));
        }
        Ok(())
    }

    /// Begins to do what is asked, for a job that has begun.
    ///
    /// # Errors
    /// Where it can't be written down.
    pub async fn begin(&self, obligor: Obligor, lane: Lane, ask: &Ask) -> Result<(), journal::Error> {
        let name = redrive_name(obligor, lane);
        let put = MetaChange::Put(MetaKind::Redrive, name, Progress::new(ask).record());
        self.journal.change(vec![put]).await?;
        actix_rt::spawn(self.clone().run(obligor, lane));
        Ok(())
    }

    /// Counts what is meant, from `at` on, and says what of it could not be sent.
    ///
    /// # Errors
    /// Where the journal or the store of files does not answer.
    pub async fn count(&self, shelf: &Shelf, query: &Query, at: Cursor) -> Result<super::purge::Purged, Error> {
        let problem = |Found { key, letter }: &Found| match self.roster.recast(shelf.obligor, letter) {
            Err(why) if matches!(key, Key::Written { .. }) => Some(Problem { at: key.to_string(), why }),
            Ok(_) | Err(_) => None,
        };
        self.letters(shelf.obligor)?.count(shelf, query, at, problem).await
    }

    async fn run(self, obligor: Obligor, lane: Lane) {
        loop {
            match self.turn(obligor, lane).await {
                Ok(Turn::Over) => return,
                Ok(Turn::Wait) => tokio::time::sleep(POLL).await,
                Ok(Turn::Done) => {}
                Err(error) => {
                    tracing::warn!(subscription = ?obligor, job = lane.0, %error, "a redrive can't go on now");
                    if matches!(error, Error::Journal(journal::Error::Closed)) {
                        return;
                    }
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }

    /// One step on. All that it knows was written down.
    async fn turn(&self, obligor: Obligor, lane: Lane) -> Result<Turn, Error> {
        let journal = &self.journal;
        let job = self.roster.job(obligor, lane);
        if job.as_ref().is_some_and(|job| job.counters.pending > 0 || job.state == JobState::Paused) {
            return Ok(Turn::Wait);
        }
        let record = journal.reads().meta(MetaKind::Redrive, redrive_name(obligor, lane)).await?;
        // To begin anew would send events again whose files were dealt with.
        let read = |record: &Bytes| {
            serde_json::from_slice(record).map_err(|error| {
                let name = redrive_name(obligor, lane);
                journal::Error::Damaged(format!("the record {name} of a redrive cannot be read: {error}"))
            })
        };
        let progress: Option<Progress> = record.as_ref().map(read).transpose()?;
        let desk = self.letters(obligor)?.desk(obligor).await;
        // Behind whatever was asked for before, heard of or not.
        journal.bury(obligor, journal::Buried::default()).await?;
        let job = match (job, self.roster.job(obligor, lane)) {
            (None, None) => None,
            (Some(before), Some(job)) if before.counters == job.counters => Some(job),
            // It went on meanwhile.
            (Some(_) | None, Some(_)) | (Some(_), None) => return Ok(Turn::Done),
        };
        let shelf = self.shelf(obligor).map(|(_, shelf)| shelf);
        if let (Some(progress), Some(shelf)) = (&progress, &shelf) {
            self.put_down(progress, shelf, job.as_ref()).await?;
        }
        let (Some(job), Some(shelf)) = (job, shelf) else {
            let name = redrive_name(obligor, lane);
            journal.change(vec![MetaChange::Delete(MetaKind::Redrive, name)]).await?;
            tracing::info!(subscription = ?obligor, job = lane.0, "a redrive has ended");
            return Ok(Turn::Over);
        };
        if job.state != JobState::Running {
            return Ok(Turn::Wait);
        }
        // A job that nobody has written down anything of was begun by a process that ended then.
        let page = self.page(&shelf, &job, progress.unwrap_or_default()).await?;
        let taken = self.roster.take_back(obligor, page).await;
        drop(desk);
        Ok(if taken { Turn::Done } else { Turn::Wait })
    }

    /// The page that was on its way has ended: what is said of its file says so.
    async fn put_down(&self, progress: &Progress, shelf: &Shelf, job: Option<&Job>) -> Result<(), Error> {
        let (Some(page), Some(folder)) = (&progress.page, &shelf.folder) else { return Ok(()) };
        let lost = job.map(|job| job.counters.dropped + job.counters.canceled);
        if lost.is_none_or(|lost| lost > page.lost_before) {
            tracing::warn!(
                file = page.file,
                "a dead-letter file stays as it is: not all of its events are delivered or put aside again"
            );
            return Ok(());
        }
        let indexes = page.indexes.iter().flat_map(|(first, count)| *first..first.saturating_add(*count)).collect();
        let file = format!("{folder}/{}", page.file);
        let letters = self.letters(shelf.obligor)?;
        letters.mark(&file, page.letters, |marker| &mut marker.redriven, indexes, progress.keep).await
    }

    /// The next page, or the word that there is none.
    async fn page(&self, shelf: &Shelf, job: &Job, mut progress: Progress) -> Result<TakenBack, Error> {
        let query = progress.query();
        let mut page =
            TakenBack { lane: job.lane, letters: Vec::new(), progress: Bytes::new(), account: None, drained: true };
        progress.page = None;
        if let Some(at) = progress.at() {
            let mut walk = Walk::new(self.letters(shelf.obligor)?, shelf, &query, at).until(job.began);
            while walk.at.is_some() && page.letters.is_empty() {
                let Step { mut found, file, problems } = walk.step().await?;
                for Problem { at, why } in problems {
                    tracing::warn!(subscription = ?shelf.obligor, at, why, "a dead letter is not sent again: it can't be read");
                }
                let whole = distinct(&found).min(PAGE);
                if whole < found.len() {
                    found.truncate(whole);
                    walk.at = found.last().map(|last| Cursor::behind(&last.key));
                }
                match file {
                    Some((file, letters)) => {
                        let taken = self.of_file(shelf, &found, &mut page).await?;
                        let mut runs = Vec::new();
                        marker::add(&mut runs, indexes(&taken));
                        let lost_before = job.counters.dropped + job.counters.canceled;
                        progress.page =
                            (!taken.is_empty()).then_some(FilePage { file, letters, indexes: runs, lost_before });
                    }
                    None => self.of_those_that_wait(shelf, &found, &mut page).await?,
                }
            }
            page.drained = walk.at.is_none();
            progress.at = walk.at.map(|at| at.to_string());
        }
        page.progress = progress.record();
        Ok(page)
    }

    async fn of_those_that_wait(&self, shelf: &Shelf, found: &[Found], page: &mut TakenBack) -> Result<(), Error> {
        for found in found {
            if let Key::Waiting(key) = found.key {
                let waited = Some((key.due, key.seq, key.lane));
                page.letters.push(Returned { seq: key.seq, waited, event: None });
            }
        }
        if !page.letters.is_empty() {
            let mut totals = self.letters(shelf.obligor)?.totals(shelf.obligor).await?;
            totals.redriven += page.letters.len() as u64;
            page.account = Some((Totals::name(shelf.obligor), totals.encode().into()));
        }
        Ok(())
    }

    /// Those that could be made events of again.
    async fn of_file(&self, shelf: &Shelf, found: &[Found], page: &mut TakenBack) -> Result<Vec<Found>, Error> {
        let now = self.clock.now();
        let held = self.journal.reads().last_held(shelf.obligor.partition).await?;
        let mut next = self.apart(held, found.len() as u64, now);
        let mut taken = Vec::with_capacity(found.len());
        for found in found {
            match self.roster.recast(shelf.obligor, &found.letter) {
                Ok(sealed) => {
                    let event = sealed.stamp(found.letter.fate.published.unwrap_or(now), Running::default());
                    page.letters.push(Returned { seq: next, waited: None, event: Some(event) });
                    next = next.plus(1);
                    taken.push(found.clone());
                }
                Err(why) => {
                    tracing::warn!(subscription = ?shelf.obligor, at = %found.key, why, "a dead letter is not sent again");
                }
            }
        }
        Ok(taken)
    }

    /// The first of so many places apart that nobody ever had: they follow the clock, this process's last one, and what is
    /// held.
    fn apart(&self, held: Option<Seq>, count: u64, now: Timestamp) -> Seq {
        let least = now.0.max(held.filter(|held| held.is_apart()).map_or(0, |held| held.0 - Seq::APART.0 + 1));
        let next = |last: u64| Some(last.max(least) + count);
        let last = self.apart.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).unwrap_or_default();
        Seq(Seq::APART.0 + last.max(least))
    }
}

/// Whether the record of how far a redrive has come can be read; if not, why.
///
/// # Errors
/// Where it cannot be.
pub fn check_record(record: &[u8]) -> Result<(), String> {
    serde_json::from_slice::<Progress>(record).map(drop).map_err(|error| error.to_string())
}

/// What a turn has come to.
enum Turn {
    /// There is more to do at once.
    Done,
    /// Nothing can be done now.
    Wait,
    /// Nothing will ever be.
    Over,
}

/// How many of them there are before a place comes for the second time: one job owes a place once.
fn distinct(found: &[Found]) -> usize {
    let mut places = HashSet::new();
    let is_new = |found: &&Found| match found.key {
        Key::Waiting(key) => places.insert(key.seq),
        Key::Written { .. } => true,
    };
    found.iter().take_while(is_new).count()
}
