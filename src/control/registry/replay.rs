//! Replays: which part of the log one is of, how many events that is, and what becomes of it.
//!
//! The part is found and kept before the subscription is told: the floor does not move below a hold. From the moment that the
//! job's beginning is durable its lane keeps it.

use std::sync::Arc;

use super::{Error, Registry, SubscriptionHandle, TopicHandle, known_child};
use crate::{
    control::record::subscription::StartsFrom,
    event::{Lane, Seq, Timestamp},
    journal::{self, LogHold, LogSlice},
    policy::record::{
        Command, Rate,
        job::{Job, JobCommand, JobKind},
    },
    subscription::SubscriptionState,
};

/// A dry run reads the log in slices of about so many bytes, so that others read in between.
const SLICE_BYTES: usize = 512 * 1024;

/// A place in a log, as somebody asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayPoint {
    /// The event with this sequence.
    At(Seq),
    /// The first event that was appended then or later.
    Since(Timestamp),
}

/// The part of a log that somebody asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayRange {
    /// From here on; [`None`] for all that is stored.
    pub from: Option<ReplayPoint>,
    /// Up to before here; [`None`] for all that is stored by now.
    pub to: Option<ReplayPoint>,
}

/// What is in a part of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayContent {
    /// From this event on …
    pub from: Seq,
    /// … to before this one.
    pub end: Seq,
    /// So many events are stored.
    pub events: u64,
    /// So many of them match the subscription's filter.
    pub matching: u64,
}

impl Registry {
    /// What a replay of this part would send.
    pub async fn look_at(&self, topic: &str, subscription: &str, part: ReplayRange) -> Result<ReplayContent, Error> {
        let topic = self.known(topic)?;
        let child = known_child(&topic, subscription)?;
        let (hold, end) = topic.find(part).await?;
        let mut content = ReplayContent { from: hold.from, end, events: 0, matching: 0 };
        let plan = child.shared.plan();
        let mut from = hold.from;
        while from < end {
            let LogSlice { chunks, upto, .. } =
                topic.journal.reads().log(topic.partition(), from, end, SLICE_BYTES).await?;
            for chunk in chunks {
                let events = chunk.events().map_err(|error| journal::Error::Damaged(error.to_string()))?;
                for event in events.iter().filter(|event| (from..end).contains(&event.seq)) {
                    content.events += 1;
                    content.matching += u64::from(plan.filter().matches(event));
                }
            }
            // A log that has nothing more says so by its end; one that says nothing is not asked again.
            from = upto.max(from.plus(1));
        }
        Ok(content)
    }

    /// Begins a replay of this part, at most so many events in a second; it is durable when this returns.
    pub async fn replay(
        &self,
        topic: &str,
        subscription: &str,
        part: ReplayRange,
        rate: Option<Rate>,
    ) -> Result<Job, Error> {
        let (key, topic) = (topic, self.known(topic)?);
        known_child(&topic, subscription)?;
        // Kept until this returns.
        let (hold, end) = topic.find(part).await?;
        let kind = JobKind::Replay { from: hold.from, end };
        let begun = self.command(key, subscription, Command::Job(JobCommand::Start { kind, rate })).await?;
        let lane = begun.job.ok_or(journal::Error::Closed)?;
        self.job(key, subscription, lane).await
    }

    /// The jobs of a subscription, the latest last: those that go on, and those that have ended and are kept yet.
    pub async fn jobs(&self, topic: &str, subscription: &str) -> Result<Vec<Job>, Error> {
        let topic = self.known(topic)?;
        let child = known_child(&topic, subscription)?;
        all_jobs(&topic, &child).await
    }

    /// One of them.
    pub async fn job(&self, topic: &str, subscription: &str, lane: Lane) -> Result<Job, Error> {
        let jobs = self.jobs(topic, subscription).await?;
        jobs.into_iter().find(|job| job.lane == lane).ok_or_else(|| {
            Error::Unknown(format!("there is no replay {} of the event subscription '{subscription}'", lane.0))
        })
    }
}

/// Read in this order, a job that ends meanwhile is told twice and not missed: as it went on, and as it ended, which counts.
async fn all_jobs(topic: &TopicHandle, child: &Arc<SubscriptionHandle>) -> Result<Vec<Job>, Error> {
    let SubscriptionState { cursor, ending, .. } = child.shared.state();
    let mut jobs = topic.journal.reads().ended_jobs(child.shared.subscription_key).await?;
    jobs.extend(ending.into_iter().chain(cursor.jobs));
    jobs.sort_by_key(|job| (job.began, job.lane, !job.state.has_ended()));
    jobs.dedup_by_key(|job| (job.began, job.lane));
    Ok(jobs)
}

impl TopicHandle {
    /// Finds a part of its log and keeps it, up to the end that is given with it.
    async fn find(&self, part: ReplayRange) -> Result<(LogHold, Seq), Error> {
        let next = self.journal.end(self.partition()).ok_or(journal::Error::Unknown)?.next;
        let all = self.journal.hold(self.partition(), Seq::FIRST).await?;
        if all.from >= next {
            return Err(Error::Refused(
                "nothing is stored: journal.retention says how long the log is kept".to_owned(),
            ));
        }
        let from = match part.from {
            None => all.from,
            Some(place) => self.place(place, next).await?,
        };
        let end = match part.to {
            None => next,
            Some(place) => self.place(place, next).await?.min(next),
        };
        // An asker by time means what was appended then, also if it is gone.
        let gone = match part.from {
            Some(ReplayPoint::At(seq)) => seq < all.from,
            Some(ReplayPoint::Since(at)) => {
                all.from > Seq::FIRST && at < self.appended_at(all.from).await?.unwrap_or_default()
            }
            None => false,
        };
        if gone || from >= end {
            let why = if gone { "the log has been given up there" } else { "no event is there" };
            return Err(Error::Refused(format!("{why}; {}", self.stored(all.from, next).await?)));
        }
        let hold = self.journal.hold(self.partition(), from).await?;
        Ok((hold, end))
    }

    /// Where a new subscription starts that wants to start in the past; [`None`] for one that does not.
    pub(super) async fn start(&self, from: Option<StartsFrom>) -> Result<Option<Seq>, Error> {
        let Some(StartsFrom { at, .. }) = from else { return Ok(None) };
        let end = self.journal.end(self.partition()).ok_or(journal::Error::Unknown)?;
        let start = self.place(ReplayPoint::Since(at), end.next).await?;
        if let Some(bound) = self.journal.limits().backlog {
            // All that it starts with is its backlog, and must leave the publishers room.
            let first = self.journal.reads().last_bytes(self.partition(), end, bound.bytes / 2).await?;
            if start < first.at {
                let since = first.appended.unwrap_or(at);
                return Err(Error::Refused(format!(
                    "startsFrom is {at}, and what was published since is more than half of journal.backlog_max; allowed \
                     is {since} or later, and POST …/replays for what was published before"
                )));
            }
        }
        Ok(Some(start))
    }

    /// What is stored, for people.
    async fn stored(&self, from: Seq, next: Seq) -> Result<String, Error> {
        let (first, last) = (from.0, next.0.saturating_sub(1));
        let (since, upto) = (self.appended_at(from).await?, self.appended_at(Seq(last)).await?);
        let (since, upto) = (since.unwrap_or_default(), upto.unwrap_or_default());
        Ok(format!("stored are the events {first} to {last}, appended from {since} to {upto}"))
    }

    async fn place(&self, place: ReplayPoint, next: Seq) -> Result<Seq, Error> {
        match place {
            ReplayPoint::At(seq) => Ok(seq),
            ReplayPoint::Since(at) => Ok(self.journal.reads().position(self.partition(), next, at).await?.at),
        }
    }
}
