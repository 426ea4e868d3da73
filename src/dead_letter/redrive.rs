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

pub use self::progress::RedriveRequest;
use self::progress::{FileBatch, RedriveProgress};
use super::{
    DeadLetterStores, DeadLetterTarget, DeadLetterTotals, DeadLetters,
    browse::{
        BrowseCursor, BrowseError, BrowseProblem, DeadLetterId, DeadLetterLocation, DeadLetterQuery, FoundDeadLetter,
        Step, Walk,
    },
    event::DeadLetterEvent,
    file, marker,
    purge::indexes,
};
use crate::{
    clock::Clock,
    event::{Lane, Seq, SubscriptionKey, Timestamp},
    journal::{self, Journal, MetaChange},
    policy::record::{
        RedrivePage, RedrivenEvent,
        job::{Job, JobState},
    },
    store::{
        chunk::{LogTail, SealedChunk},
        keys::{MetaKind, parse_redrive_name, redrive_name},
    },
};

/// So many dead letters are in a page at the most.
const PAGE: usize = 1_000;

/// How often it is asked whether a page has ended: a person waits, and an endpoint takes longer.
const POLL: Duration = Duration::from_millis(50);

/// The wait where the journal or the store of files does not answer.
const AGAIN: Duration = Duration::from_secs(5);

/// What a redrive must know of subscriptions, and ask of them.
pub trait SubscriptionDirectory: Send + Sync {
    /// The redrives that go on.
    fn redrives(&self) -> Vec<(SubscriptionKey, Lane)>;

    /// The other subscriptions that have the same name, in whichever topic: they may share its folder.
    fn namesakes(&self, subscription_key: SubscriptionKey) -> Vec<SubscriptionKey>;

    /// Whether a subscription's topic has a custom schema; [`None`] where it is no more.
    fn is_custom(&self, subscription_key: SubscriptionKey) -> Option<bool>;

    /// A job that goes on.
    fn job(&self, subscription_key: SubscriptionKey, lane: Lane) -> Option<Job>;

    /// The event of a dead letter as one of the subscription's topic, or why it can't be one.
    ///
    /// # Errors
    /// Where its topic would not take it, or its endpoint not in its schema.
    fn recast(&self, subscription_key: SubscriptionKey, letter: &DeadLetterEvent) -> Result<SealedChunk, String>;

    /// Hands a page to the core; answers when it is durable. False where it was not taken, or nobody knows.
    fn take_back(
        &self,
        subscription_key: SubscriptionKey,
        page: RedrivePage,
    ) -> Pin<Box<dyn Future<Output = bool> + Send>>;
}

/// The redrives of a server. Clones are the same.
#[derive(Clone)]
pub struct Redrives {
    journal: Journal,
    clock: Clock,
    stores: DeadLetterStores,
    roster: Arc<dyn SubscriptionDirectory>,
    /// The last place that was given to an event apart.
    apart: Arc<AtomicU64>,
}

impl Redrives {
    /// Of the dead letters in these stores and of these subscriptions.
    pub fn new(
        journal: Journal,
        clock: Clock,
        stores: DeadLetterStores,
        roster: Arc<dyn SubscriptionDirectory>,
    ) -> Self {
        Self { journal, clock, stores, roster, apart: Arc::default() }
    }

    /// Where a subscription's dead letters are, and who writes them; [`None`] where it is no more.
    pub fn location(&self, subscription_key: SubscriptionKey) -> Option<(&DeadLetters, DeadLetterLocation)> {
        let (custom, (letters, target)) = (self.roster.is_custom(subscription_key)?, self.stores.of(subscription_key)?);
        let place = |target: &DeadLetterTarget| (target.store.clone(), file::folder(target));
        let own = target.as_ref().map(place);
        let namesakes = self.roster.namesakes(subscription_key).into_iter();
        let others = namesakes.filter_map(|other| self.stores.of(other)?.1).filter(|other| Some(place(other)) == own);
        let others = others.map(|other| other.owner()).collect();
        let (folder, owner) = (target.as_ref().map(file::folder), target.as_ref().map(DeadLetterTarget::owner));
        Some((letters, DeadLetterLocation { subscription_key, folder, custom, owner, others }))
    }

    fn dead_letters(&self, subscription_key: SubscriptionKey) -> Result<&DeadLetters, BrowseError> {
        self.stores.of(subscription_key).map(|(letters, _)| letters).ok_or(BrowseError::NoStore)
    }

    /// Goes on with what an earlier process began. Blocks: for the start.
    ///
    /// # Errors
    /// Where the journal can't be read.
    pub fn resume(&self) -> Result<(), journal::Error> {
        let mut all: HashSet<(SubscriptionKey, Lane)> = self.roster.redrives().into_iter().collect();
        let records = self.journal.reads().all_meta(MetaKind::Redrive)?;
        all.extend(records.iter().filter_map(|(name, _)| parse_redrive_name(name)));
        for (subscription_key, lane) in all {
            actix_rt::spawn(self.clone().run(subscription_key, lane));
        }
        Ok(())
    }

    /// Begins to do what is asked, for a job that has begun.
    ///
    /// # Errors
    /// Where it can't be written down.
    pub async fn start(
        &self,
        subscription_key: SubscriptionKey,
        lane: Lane,
        ask: &RedriveRequest,
    ) -> Result<(), journal::Error> {
        let name = redrive_name(subscription_key, lane);
        let put = MetaChange::Put(MetaKind::Redrive, name, RedriveProgress::new(ask).record());
        self.journal.change(vec![put]).await?;
        actix_rt::spawn(self.clone().run(subscription_key, lane));
        Ok(())
    }

    /// Counts what is meant, from `at` on, and says what of it could not be sent.
    ///
    /// # Errors
    /// Where the journal or the store of files does not answer.
    pub async fn count(
        &self,
        shelf: &DeadLetterLocation,
        query: &DeadLetterQuery,
        at: BrowseCursor,
    ) -> Result<super::purge::PurgeProgress, BrowseError> {
        let problem = |FoundDeadLetter { key, dead_letter: letter }: &FoundDeadLetter| match self
            .roster
            .recast(shelf.subscription_key, letter)
        {
            Err(why) if matches!(key, DeadLetterId::Written { .. }) => Some(BrowseProblem { at: key.to_string(), why }),
            Ok(_) | Err(_) => None,
        };
        self.dead_letters(shelf.subscription_key)?.count(shelf, query, at, problem).await
    }

    async fn run(self, subscription_key: SubscriptionKey, lane: Lane) {
        loop {
            match self.turn(subscription_key, lane).await {
                Ok(RedriveStep::Over) => return,
                Ok(RedriveStep::Wait) => tokio::time::sleep(POLL).await,
                Ok(RedriveStep::Done) => {}
                Err(error) => {
                    tracing::warn!(subscription = ?subscription_key, job = lane.0, %error, "a redrive can't go on now");
                    if matches!(error, BrowseError::Journal(journal::Error::Closed)) {
                        return;
                    }
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
    }

    /// One step on. All that it knows was written down.
    async fn turn(&self, subscription_key: SubscriptionKey, lane: Lane) -> Result<RedriveStep, BrowseError> {
        let journal = &self.journal;
        let job = self.roster.job(subscription_key, lane);
        if job.as_ref().is_some_and(|job| job.counters.pending > 0 || job.state == JobState::Paused) {
            return Ok(RedriveStep::Wait);
        }
        let record = journal.reads().meta(MetaKind::Redrive, redrive_name(subscription_key, lane)).await?;
        // To begin anew would send events again whose files were dealt with.
        let read = |record: &Bytes| {
            serde_json::from_slice(record).map_err(|error| {
                let name = redrive_name(subscription_key, lane);
                journal::Error::Damaged(format!("the record {name} of a redrive cannot be read: {error}"))
            })
        };
        let progress: Option<RedriveProgress> = record.as_ref().map(read).transpose()?;
        let queue = self.dead_letters(subscription_key)?.lock(subscription_key).await;
        // Behind whatever was asked for before, heard of or not.
        journal.write_dead_letters(subscription_key, journal::DeadLetterWrite::default()).await?;
        let job = match (job, self.roster.job(subscription_key, lane)) {
            (None, None) => None,
            (Some(before), Some(job)) if before.counters == job.counters => Some(job),
            // It went on meanwhile.
            (Some(_) | None, Some(_)) | (Some(_), None) => return Ok(RedriveStep::Done),
        };
        let shelf = self.location(subscription_key).map(|(_, shelf)| shelf);
        if let (Some(progress), Some(shelf)) = (&progress, &shelf) {
            self.put_down(progress, shelf, job.as_ref()).await?;
        }
        let (Some(job), Some(shelf)) = (job, shelf) else {
            let name = redrive_name(subscription_key, lane);
            journal.change(vec![MetaChange::Delete(MetaKind::Redrive, name)]).await?;
            tracing::info!(subscription = ?subscription_key, job = lane.0, "a redrive has ended");
            return Ok(RedriveStep::Over);
        };
        if job.state != JobState::Running {
            return Ok(RedriveStep::Wait);
        }
        // A job that nobody has written down anything of was begun by a process that ended then.
        let page = self.page(&shelf, &job, progress.unwrap_or_default()).await?;
        let taken = self.roster.take_back(subscription_key, page).await;
        drop(queue);
        Ok(if taken { RedriveStep::Done } else { RedriveStep::Wait })
    }

    /// The page that was on its way has ended: what is said of its file says so.
    async fn put_down(
        &self,
        progress: &RedriveProgress,
        shelf: &DeadLetterLocation,
        job: Option<&Job>,
    ) -> Result<(), BrowseError> {
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
        let letters = self.dead_letters(shelf.subscription_key)?;
        letters.write_marker(&file, page.letters, |marker| &mut marker.redriven, indexes, progress.keep).await
    }

    /// The next page, or the word that there is none.
    async fn page(
        &self,
        shelf: &DeadLetterLocation,
        job: &Job,
        mut progress: RedriveProgress,
    ) -> Result<RedrivePage, BrowseError> {
        let query = progress.query();
        let mut page = RedrivePage {
            lane: job.lane,
            dead_letters: Vec::new(),
            progress: Bytes::new(),
            account: None,
            drained: true,
        };
        progress.page = None;
        if let Some(at) = progress.at() {
            let mut walk = Walk::new(self.dead_letters(shelf.subscription_key)?, shelf, &query, at).until(job.began);
            while walk.at.is_some() && page.dead_letters.is_empty() {
                let Step { mut found, file, problems } = walk.step().await?;
                for BrowseProblem { at, why } in problems {
                    tracing::warn!(subscription = ?shelf.subscription_key, at, why, "a dead letter is not sent again: it can't be read");
                }
                let whole = distinct(&found).min(PAGE);
                if whole < found.len() {
                    found.truncate(whole);
                    walk.at = found.last().map(|last| BrowseCursor::behind(&last.key));
                }
                match file {
                    Some((file, letters)) => {
                        let taken = self.of_file(shelf, &found, &mut page).await?;
                        let mut runs = Vec::new();
                        marker::add(&mut runs, indexes(&taken));
                        let lost_before = job.counters.dropped + job.counters.canceled;
                        progress.page =
                            (!taken.is_empty()).then_some(FileBatch { file, letters, indexes: runs, lost_before });
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

    async fn of_those_that_wait(
        &self,
        shelf: &DeadLetterLocation,
        found: &[FoundDeadLetter],
        page: &mut RedrivePage,
    ) -> Result<(), BrowseError> {
        for found in found {
            if let DeadLetterId::Waiting(key) = found.key {
                let waited = Some((key.due, key.seq, key.lane));
                page.dead_letters.push(RedrivenEvent { seq: key.seq, waited, event: None });
            }
        }
        if !page.dead_letters.is_empty() {
            let mut totals = self.dead_letters(shelf.subscription_key)?.totals(shelf.subscription_key).await?;
            totals.redriven += page.dead_letters.len() as u64;
            page.account = Some((DeadLetterTotals::name(shelf.subscription_key), totals.encode().into()));
        }
        Ok(())
    }

    /// Those that could be made events of again.
    async fn of_file(
        &self,
        shelf: &DeadLetterLocation,
        found: &[FoundDeadLetter],
        page: &mut RedrivePage,
    ) -> Result<Vec<FoundDeadLetter>, BrowseError> {
        let now = self.clock.now();
        let held = self.journal.reads().last_held(shelf.subscription_key.partition).await?;
        let mut next = self.apart(held, found.len() as u64, now);
        let mut taken = Vec::with_capacity(found.len());
        for found in found {
            match self.roster.recast(shelf.subscription_key, &found.dead_letter) {
                Ok(sealed) => {
                    let event = sealed.stamp(found.dead_letter.fate.published.unwrap_or(now), LogTail::default());
                    page.dead_letters.push(RedrivenEvent { seq: next, waited: None, event: Some(event) });
                    next = next.plus(1);
                    taken.push(found.clone());
                }
                Err(why) => {
                    tracing::warn!(subscription = ?shelf.subscription_key, at = %found.key, why, "a dead letter is not sent again");
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
    serde_json::from_slice::<RedriveProgress>(record).map(drop).map_err(|error| error.to_string())
}

/// What a turn has come to.
enum RedriveStep {
    /// There is more to do at once.
    Done,
    /// Nothing can be done now.
    Wait,
    /// Nothing will ever be.
    Over,
}

/// How many of them there are before a place comes for the second time: one job owes a place once.
fn distinct(found: &[FoundDeadLetter]) -> usize {
    let mut places = HashSet::new();
    let is_new = |found: &&FoundDeadLetter| match found.key {
        DeadLetterId::Waiting(key) => places.insert(key.seq),
        DeadLetterId::Written { .. } => true,
    };
    found.iter().take_while(is_new).count()
}
