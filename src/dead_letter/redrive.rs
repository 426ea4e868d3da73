//! Redrive: sends dead letters again, to their subscription only, a page at a time.
//!
//! A redrive is a job of its subscription. This module reads the dead letters. The subscription's
//! core makes them pending, sends them and counts the results, in one write with the progress
//! record of the redrive.
//!
//! Invariants:
//! - Waiting dead letters leave their queue in the same write that makes them pending. Dead letters
//!   of a file become pending as separate events in the journal; only when all have ended is the
//!   marker written or the file deleted. So a dead letter is always stored somewhere, and after a
//!   crash only what was in flight is repeated.
//! - One page at a time: the journal holds a bounded number of events per redrive.
//! - What was dead-lettered or written after the redrive began is skipped, so that a redrive ends.
//! - A file of which a part was dropped, or canceled without a destination, stays unchanged.

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
        BrowseCursor, BrowseError, BrowseProblem, DeadLetterId, DeadLetterLocation,
        DeadLetterQuery, FoundDeadLetter, Step, Walk,
    },
    event::DeadLetterEvent,
    file, marker,
    purge::{PurgeCursor, PurgeProgress, file_indexes},
};
use gridhook_clock::Clock;
use gridhook_compute::{Compute, ComputeCaller, ComputeError, Meter};
use gridhook_event::{
    Lane, Seq, SubscriptionKey, Timestamp,
    chunk::{RunningTotals, SealedChunk},
};
use gridhook_journal as journal;
use gridhook_journal::{Journal, MetaChange};
use gridhook_policy::record::{
    RedrivePage, RedrivenEvent,
    job::{Job, JobState},
};
use gridhook_store::keys::{MetaKind, parse_redrive_name, redrive_name};

/// Maximum dead letters per page.
const PAGE_SIZE: usize = 1_000;

/// The interval in which the end of a page is checked.
const POLL: Duration = Duration::from_millis(50);

/// The pause after an error of the journal or the store of files.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// The event subscriptions of the server, as redrives need them.
pub trait SubscriptionDirectory: Send + Sync {
    fn running_redrives(&self) -> Vec<(SubscriptionKey, Lane)>;

    /// Lists other subscriptions with the same name, in any topic. They may share the folder.
    fn namesakes(&self, subscription_key: SubscriptionKey) -> Vec<SubscriptionKey>;

    /// Whether a subscription's topic has the custom input schema; [`None`] if it was deleted.
    fn is_custom(&self, subscription_key: SubscriptionKey) -> Option<bool>;

    fn running_job(&self, subscription_key: SubscriptionKey, lane: Lane) -> Option<Job>;

    /// Converts a dead letter to an event of the subscription's topic.
    ///
    /// # Errors
    /// If the topic would reject the event, or it cannot be delivered in the subscription's schema.
    fn convert_dead_letter(
        &self,
        subscription_key: SubscriptionKey,
        dead_letter: &DeadLetterEvent,
    ) -> Result<SealedChunk, String>;

    /// Passes a page to the core, and completes once it is durable. False if it was rejected, or
    /// the result is unknown.
    fn redrive_page(
        &self,
        subscription_key: SubscriptionKey,
        page: RedrivePage,
    ) -> Pin<Box<dyn Future<Output = bool> + Send>>;
}

/// The redrives of a server. Clones share their state.
#[derive(Clone)]
pub struct Redrives {
    journal: Journal,
    clock: Clock,
    stores: DeadLetterStores,
    directory: Arc<dyn SubscriptionDirectory>,
    /// The last sequence that was assigned to a separate event.
    last_separate: Arc<AtomicU64>,
}

impl Redrives {
    /// Redrives for the dead letters in these stores, of these subscriptions.
    pub fn new(
        journal: Journal,
        clock: Clock,
        stores: DeadLetterStores,
        directory: Arc<dyn SubscriptionDirectory>,
    ) -> Self {
        Self {
            journal,
            clock,
            stores,
            directory,
            last_separate: Arc::default(),
        }
    }

    /// Finds the place of a subscription's dead letters; [`None`] if the subscription was deleted.
    pub fn find_location(
        &self,
        subscription_key: SubscriptionKey,
    ) -> Option<(&DeadLetters, DeadLetterLocation)> {
        let custom = self.directory.is_custom(subscription_key)?;
        let (dead_letters, target) = self.stores.current_store(subscription_key)?;
        let destination =
            |target: &DeadLetterTarget| (target.store.clone(), file::target_folder(target));
        let own = target.as_ref().map(destination);
        let namesakes = self.directory.namesakes(subscription_key).into_iter();
        let others = namesakes
            .filter_map(|other| self.stores.current_store(other)?.1)
            .filter(|other| Some(destination(other)) == own);
        let others = others.map(|other| other.owner()).collect();
        let folder = target.as_ref().map(file::target_folder);
        let owner = target.as_ref().map(DeadLetterTarget::owner);
        Some((
            dead_letters,
            DeadLetterLocation {
                subscription_key,
                folder,
                custom,
                owner,
                others,
            },
        ))
    }

    fn dead_letters(&self, subscription_key: SubscriptionKey) -> Result<&DeadLetters, BrowseError> {
        self.stores
            .current_store(subscription_key)
            .map(|(dead_letters, _)| dead_letters)
            .ok_or(BrowseError::NoStore)
    }

    /// Resumes the redrives of an earlier process. Blocks; for the start.
    ///
    /// # Errors
    /// If the journal cannot be read.
    pub fn resume_redrives(&self) -> Result<(), journal::Error> {
        let mut all: HashSet<(SubscriptionKey, Lane)> =
            self.directory.running_redrives().into_iter().collect();
        for record in self.journal.reader_pool().all_meta(MetaKind::Redrive) {
            let (name, _redrive) = record?;
            all.extend(parse_redrive_name(&name));
        }
        for (subscription_key, lane) in all {
            actix_rt::spawn(self.clone().run(subscription_key, lane));
        }
        Ok(())
    }

    /// Starts the redrive of a job that has begun.
    ///
    /// # Errors
    /// If its record cannot be written.
    pub async fn start(
        &self,
        subscription_key: SubscriptionKey,
        lane: Lane,
        request: &RedriveRequest,
    ) -> Result<(), journal::Error> {
        let name = redrive_name(subscription_key, lane);
        let put = MetaChange::Put(
            MetaKind::Redrive,
            name,
            RedriveProgress::new(request).to_record(),
        );
        self.journal.write_meta_changes(vec![put]).await?;
        actix_rt::spawn(self.clone().run(subscription_key, lane));
        Ok(())
    }

    /// Counts the selected dead letters from `at` on, and reports those that cannot be sent.
    ///
    /// # Errors
    /// If the journal or the store of files fails.
    pub async fn count_page(
        &self,
        location: &DeadLetterLocation,
        query: &DeadLetterQuery,
        at: PurgeCursor,
        (compute, caller): (&Compute, &ComputeCaller),
    ) -> Result<PurgeProgress, BrowseError> {
        let subscription_key = location.subscription_key;
        let problems_of = async |found: Vec<FoundDeadLetter>| {
            let directory = Arc::clone(&self.directory);
            let convert = |meter: Meter| convert_all(directory, subscription_key, found, meter);
            Ok(compute.run(caller.clone(), convert).await??)
        };
        self.dead_letters(subscription_key)?
            .count_page(location, query, at, problems_of)
            .await
    }

    /// The number of dead letters of a running redrive, if dry runs counted them.
    ///
    /// # Errors
    /// If the journal cannot be read.
    pub async fn read_total(
        &self,
        subscription_key: SubscriptionKey,
        lane: Lane,
    ) -> Result<Option<u64>, journal::Error> {
        let record = self
            .journal
            .reader_pool()
            .read_meta(MetaKind::Redrive, redrive_name(subscription_key, lane))
            .await?;
        Ok(record.and_then(|record| {
            serde_json::from_slice::<RedriveProgress>(&record)
                .ok()?
                .total
        }))
    }

    async fn run(self, subscription_key: SubscriptionKey, lane: Lane) {
        loop {
            match self.take_step(subscription_key, lane).await {
                Ok(RedriveStep::Over) => return,
                Ok(RedriveStep::Wait) => tokio::time::sleep(POLL).await,
                Ok(RedriveStep::Done) => {}
                Err(error) => {
                    tracing::warn!(
                        subscription = ?subscription_key,
                        job = lane.0,
                        %error,
                        "redrive paused after an error"
                    );
                    if matches!(error, BrowseError::Journal(journal::Error::Closed)) {
                        return;
                    }
                    tokio::time::sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    /// Takes one step, based on stored state only.
    async fn take_step(
        &self,
        subscription_key: SubscriptionKey,
        lane: Lane,
    ) -> Result<RedriveStep, BrowseError> {
        let journal = &self.journal;
        let job = self.directory.running_job(subscription_key, lane);
        if job
            .as_ref()
            .is_some_and(|job| job.counters.pending > 0 || job.state == JobState::Paused)
        {
            return Ok(RedriveStep::Wait);
        }
        let record = journal
            .reader_pool()
            .read_meta(MetaKind::Redrive, redrive_name(subscription_key, lane))
            .await?;
        // Starting over would send events again whose files were already handled.
        let progress = record.map(|record| serde_json::from_slice(&record));
        let progress: Option<RedriveProgress> = progress.transpose().map_err(|error| {
            let name = redrive_name(subscription_key, lane);
            journal::Error::Damaged(format!(
                "the record {name} of a redrive cannot be read: {error}"
            ))
        })?;
        let queue = self
            .dead_letters(subscription_key)?
            .lock_subscription(subscription_key)
            .await;
        // Waits for earlier writes, also those whose replies were lost.
        journal
            .write_dead_letters(subscription_key, journal::DeadLetterWrite::default())
            .await?;
        let job = match (job, self.directory.running_job(subscription_key, lane)) {
            (None, None) => None,
            (Some(before), Some(job)) if before.counters == job.counters => Some(job),
            // The job advanced meanwhile.
            (Some(_) | None, Some(_)) | (Some(_), None) => return Ok(RedriveStep::Done),
        };
        let location = self
            .find_location(subscription_key)
            .map(|(_, location)| location);
        if let (Some(progress), Some(location)) = (&progress, &location) {
            self.write_page_marker(progress, location, job.as_ref())
                .await?;
        }
        let (Some(job), Some(location)) = (job, location) else {
            let name = redrive_name(subscription_key, lane);
            journal
                .write_meta_changes(vec![MetaChange::Delete(MetaKind::Redrive, name)])
                .await?;
            tracing::info!(subscription = ?subscription_key, job = lane.0, "redrive ended");
            return Ok(RedriveStep::Over);
        };
        if job.state != JobState::Running {
            return Ok(RedriveStep::Wait);
        }
        // Without a record, the process ended between starting the job and writing the record.
        let page = self
            .next_page(&location, &job, progress.unwrap_or_default())
            .await?;
        let is_taken = self.directory.redrive_page(subscription_key, page).await;
        drop(queue);
        Ok(if is_taken {
            RedriveStep::Done
        } else {
            RedriveStep::Wait
        })
    }

    /// Writes the marker of a page that has ended.
    async fn write_page_marker(
        &self,
        progress: &RedriveProgress,
        location: &DeadLetterLocation,
        job: Option<&Job>,
    ) -> Result<(), BrowseError> {
        let (Some(page), Some(folder)) = (&progress.page, &location.folder) else {
            return Ok(());
        };
        let lost = job.map(|job| job.counters.dropped + job.counters.canceled);
        if lost.is_none_or(|lost| lost > page.lost_before) {
            tracing::warn!(
                file = page.file,
                "dead-letter file kept: not all of its events were delivered or dead-lettered again"
            );
            return Ok(());
        }
        let indexes = page
            .indexes
            .iter()
            .flat_map(|(first, count)| *first..first.saturating_add(*count))
            .collect();
        let file = format!("{folder}/{}", page.file);
        let dead_letters = self.dead_letters(location.subscription_key)?;
        dead_letters
            .write_marker(
                &file,
                page.dead_letters,
                |marker| &mut marker.redriven,
                indexes,
                progress.keep,
            )
            .await
    }

    /// The next page, which may be empty at the end.
    async fn next_page(
        &self,
        location: &DeadLetterLocation,
        job: &Job,
        mut progress: RedriveProgress,
    ) -> Result<RedrivePage, BrowseError> {
        let query = progress.to_query();
        let mut page = RedrivePage {
            lane: job.lane,
            dead_letters: Vec::new(),
            progress: Bytes::new(),
            totals: None,
            drained: true,
        };
        progress.page = None;
        if let Some(at) = progress.current_cursor() {
            let mut walk = Walk::new(
                self.dead_letters(location.subscription_key)?,
                location,
                &query,
                at,
            )
            .limit_until(job.began);
            while walk.at.is_some() && page.dead_letters.is_empty() {
                let Step {
                    mut found,
                    file,
                    problems,
                } = walk.next_step().await?;
                for BrowseProblem { at, why } in problems {
                    tracing::warn!(subscription = ?location.subscription_key, at, why, "cannot \
                        read dead letter; not redriven");
                }
                let whole = count_distinct(&found).min(PAGE_SIZE);
                if whole < found.len() {
                    found.truncate(whole);
                    walk.at = found.last().map(|last| BrowseCursor::behind_key(&last.key));
                }
                match file {
                    Some((file, dead_letters)) => {
                        let events = self.add_from_file(location, &found, &mut page).await?;
                        let mut runs = Vec::new();
                        marker::add(&mut runs, file_indexes(&events));
                        let lost_before = job.counters.dropped + job.counters.canceled;
                        progress.page = (!events.is_empty()).then_some(FileBatch {
                            file,
                            dead_letters,
                            indexes: runs,
                            lost_before,
                        });
                    }
                    None => self.add_waiting(location, &found, &mut page).await?,
                }
            }
            page.drained = walk.at.is_none();
            progress.at = walk.at.map(|at| at.to_string());
        }
        page.progress = progress.to_record();
        Ok(page)
    }

    async fn add_waiting(
        &self,
        location: &DeadLetterLocation,
        found: &[FoundDeadLetter],
        page: &mut RedrivePage,
    ) -> Result<(), BrowseError> {
        for found in found {
            if let DeadLetterId::Waiting(key) = found.key {
                let waiting_key = Some((key.due, key.seq, key.lane));
                page.dead_letters.push(RedrivenEvent {
                    seq: key.seq,
                    waited: waiting_key,
                    event: None,
                });
            }
        }
        if !page.dead_letters.is_empty() {
            let mut totals = self
                .dead_letters(location.subscription_key)?
                .read_totals(location.subscription_key)
                .await?;
            totals.redriven += page.dead_letters.len() as u64;
            page.totals = Some((
                DeadLetterTotals::name(location.subscription_key),
                totals.encode().into(),
            ));
        }
        Ok(())
    }

    /// Adds the dead letters that can be converted to events.
    async fn add_from_file(
        &self,
        location: &DeadLetterLocation,
        found: &[FoundDeadLetter],
        page: &mut RedrivePage,
    ) -> Result<Vec<FoundDeadLetter>, BrowseError> {
        let now = self.clock.now();
        let last_carried = self
            .journal
            .reader_pool()
            .last_carried(location.subscription_key.partition)
            .await?;
        let mut next = self.separate_seqs(last_carried, found.len() as u64, now);
        let mut events = Vec::with_capacity(found.len());
        for found in found {
            match self
                .directory
                .convert_dead_letter(location.subscription_key, &found.dead_letter)
            {
                Ok(sealed) => {
                    let event = sealed.stamp_record(
                        found.dead_letter.result.published.unwrap_or(now),
                        RunningTotals::default(),
                    );
                    page.dead_letters.push(RedrivenEvent {
                        seq: next,
                        waited: None,
                        event: Some(event),
                    });
                    next = next.plus(1);
                    events.push(found.clone());
                }
                Err(why) => {
                    tracing::warn!(
                        subscription = ?location.subscription_key,
                        at = %found.key,
                        why,
                        "cannot convert dead letter; not redriven"
                    );
                }
            }
        }
        Ok(events)
    }

    /// The first of `count` new sequences for separate events. They follow the clock, the last one
    /// assigned, and those that are stored, so that none is used twice.
    fn separate_seqs(&self, held: Option<Seq>, count: u64, now: Timestamp) -> Seq {
        let least = now.0.max(
            held.filter(|held| held.is_apart())
                .map_or(0, |held| held.0 - Seq::APART.0 + 1),
        );
        let next = |last: u64| Some(last.max(least) + count);
        let last = self
            .last_separate
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, next)
            .unwrap_or_default();
        Seq(Seq::APART.0 + last.max(least))
    }
}

/// The dead letters of files that cannot be sent.
async fn convert_all(
    directory: Arc<dyn SubscriptionDirectory>,
    subscription_key: SubscriptionKey,
    found: Vec<FoundDeadLetter>,
    meter: Meter,
) -> Result<Vec<BrowseProblem>, ComputeError> {
    let mut problems = Vec::new();
    for FoundDeadLetter { key, dead_letter } in found {
        meter.pause_if_used_up().await?;
        match directory.convert_dead_letter(subscription_key, &dead_letter) {
            Err(why) if matches!(key, DeadLetterId::Written { .. }) => {
                problems.push(BrowseProblem {
                    at: key.to_string(),
                    why,
                });
            }
            Ok(_) | Err(_) => {}
        }
    }
    Ok(problems)
}

/// Checks that a redrive record can be read.
///
/// # Errors
/// The record cannot be read.
pub fn check_record(record: &[u8]) -> serde_json::Result<()> {
    serde_json::from_slice::<RedriveProgress>(record).map(drop)
}

/// The result of a step.
enum RedriveStep {
    /// The next step can follow at once.
    Done,
    Wait,
    Over,
}

/// The number of dead letters before a sequence repeats: a job can have each sequence pending only
/// once.
fn count_distinct(found: &[FoundDeadLetter]) -> usize {
    let mut waiting = HashSet::new();
    let first_repeated = found.iter().position(|dead_letter| match dead_letter.key {
        DeadLetterId::Waiting(key) => !waiting.insert(key.seq),
        DeadLetterId::Written { .. } => false,
    });
    first_repeated.unwrap_or(found.len())
}
