//! Replays of a part of the log.
//!
//! The part is found and guarded before the subscription gets the command: the log is not trimmed
//! below a guard. Once the start of the job is durable, the job's lane keeps it.

use std::sync::Arc;

use super::{Error, Registry, SubscriptionHandle, TopicHandle, known_child};
use gridhook_event::{Lane, Seq, Timestamp};
use gridhook_journal as journal;
use gridhook_journal::{LogGuard, LogPosition, LogSlice};
use gridhook_policy::record::{
    Command, Rate,
    job::{Job, JobCommand, JobKind},
};
use gridhook_record::subscription::StartsFrom;
use gridhook_subscription::SubscriptionState;

/// Bytes per read of a preview, so that other reads run in between.
const SLICE_BYTES: usize = 512 * 1024;

/// A position in the log, as a client gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayPoint {
    /// The event with this sequence.
    At(Seq),
    /// The first event that was appended at this time or later.
    Since(Timestamp),
}

/// A part of the log, as a client gives it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayRange {
    /// The beginning; [`None`] for the oldest stored event.
    pub from: Option<ReplayPoint>,
    /// The end, exclusive; [`None`] for the newest event.
    pub to: Option<ReplayPoint>,
}

/// The content of a part of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayContent {
    /// The first sequence.
    pub from: Seq,
    /// The sequence after the last one.
    pub end: Seq,
    /// Number of stored events.
    pub events: u64,
    /// Number of events that match the subscription's filter.
    pub matching: u64,
}

impl Registry {
    /// Counts the events that a replay of this part would send.
    pub async fn preview_replay(
        &self,
        topic: &str,
        subscription: &str,
        part: ReplayRange,
    ) -> Result<ReplayContent, Error> {
        let topic = self.require_topic(topic)?;
        let child = known_child(&topic, subscription)?;
        let (guard, end) = topic.find_range(part).await?;
        let mut content = ReplayContent {
            from: guard.from,
            end,
            events: 0,
            matching: 0,
        };
        let plan = child.shared.plan();
        let mut from = guard.from;
        while from < end {
            let LogSlice { chunks, upto, .. } = topic
                .journal
                .reader_pool()
                .read_log(topic.partition(), from, end, SLICE_BYTES)
                .await?;
            for chunk in chunks {
                let events = chunk
                    .decode_events()
                    .map_err(|error| journal::Error::Damaged(error.to_string()))?;
                for event in events
                    .iter()
                    .filter(|event| (from..end).contains(&event.seq))
                {
                    content.events += 1;
                    content.matching += u64::from(plan.filter().matches(event));
                }
            }
            // Guards against a slice that does not advance.
            from = upto.max(from.plus(1));
        }
        Ok(content)
    }

    /// Begins a replay of this part, at most `rate` events per second. It is durable when this
    /// returns.
    pub async fn begin_replay(
        &self,
        topic: &str,
        subscription: &str,
        part: ReplayRange,
        rate: Option<Rate>,
    ) -> Result<Job, Error> {
        let key = topic;
        let topic = self.require_topic(topic)?;
        known_child(&topic, subscription)?;
        // Guarded until this returns.
        let (guard, end) = topic.find_range(part).await?;
        let kind = JobKind::Replay {
            from: guard.from,
            end,
        };
        let begun = self
            .send_command(
                key,
                subscription,
                Command::Job(JobCommand::Start { kind, rate }),
            )
            .await?;
        let lane = begun.job.ok_or(journal::Error::Closed)?;
        self.read_job(key, subscription, lane).await
    }

    /// The jobs of a subscription, newest last: those that run, and those that have ended and are
    /// still stored.
    pub async fn read_jobs(&self, topic: &str, subscription: &str) -> Result<Vec<Job>, Error> {
        let topic = self.require_topic(topic)?;
        let child = known_child(&topic, subscription)?;
        all_jobs(&topic, &child).await
    }

    pub async fn read_job(
        &self,
        topic: &str,
        subscription: &str,
        lane: Lane,
    ) -> Result<Job, Error> {
        let jobs = self.read_jobs(topic, subscription).await?;
        jobs.into_iter()
            .find(|job| job.lane == lane)
            .ok_or_else(|| {
                Error::Unknown(format!(
                    "there is no replay {} of the event subscription '{subscription}'",
                    lane.0
                ))
            })
    }
}

/// Reads the ended jobs after the state: so a job that ends in between appears twice and is never
/// missed. Deduplication keeps the ended one.
async fn all_jobs(topic: &TopicHandle, child: &Arc<SubscriptionHandle>) -> Result<Vec<Job>, Error> {
    let SubscriptionState { cursor, ending, .. } = child.shared.current_state();
    let mut jobs = topic
        .journal
        .reader_pool()
        .ended_jobs(child.shared.subscription_key)
        .await?;
    jobs.extend(ending.into_iter().chain(cursor.jobs));
    jobs.sort_by_key(|job| (job.began, job.lane, !job.state.has_ended()));
    jobs.dedup_by_key(|job| (job.began, job.lane));
    Ok(jobs)
}

impl TopicHandle {
    /// Finds a part of the log and keeps it. Returns the end of the part, too.
    async fn find_range(&self, part: ReplayRange) -> Result<(LogGuard, Seq), Error> {
        let next = self
            .journal
            .log_end(self.partition())
            .ok_or(journal::Error::Unknown)?
            .next;
        let all = self.journal.guard_log(self.partition(), Seq::FIRST).await?;
        if all.from >= next {
            return Err(Error::Refused(
                "the log is empty; the setting journal.retention limits how long events are kept"
                    .to_owned(),
            ));
        }
        let from = match part.from {
            None => all.from,
            Some(point) => self.resolve_point(point, next).await?.max(Seq::FIRST),
        };
        let end = match part.to {
            None => next,
            Some(point) => self.resolve_point(point, next).await?.min(next),
        };
        // A range by time means the events that were appended then, even if they have been trimmed.
        let is_trimmed = match part.from {
            // Sequences begin at 1: 0 is the beginning, too.
            Some(ReplayPoint::At(seq)) => seq.max(Seq::FIRST) < all.from,
            Some(ReplayPoint::Since(at)) => {
                all.from > Seq::FIRST && at < self.appended_at(all.from).await?.unwrap_or_default()
            }
            None => false,
        };
        if is_trimmed || from >= end {
            let reason = if is_trimmed {
                "the log was trimmed there"
            } else {
                "the range contains no event"
            };
            return Err(Error::Refused(format!(
                "{reason}; {}",
                self.describe_stored(all.from, next).await?
            )));
        }
        let guard = self.journal.guard_log(self.partition(), from).await?;
        Ok((guard, end))
    }

    /// Where a new subscription with `startsFrom` begins; [`None`] without it.
    pub(super) async fn find_start(&self, from: Option<&StartsFrom>) -> Result<Option<Seq>, Error> {
        let Some(from) = from else {
            return Ok(None);
        };
        let StartPoint {
            requested,
            earliest,
        } = self.resolve_start(from).await?;
        if requested < earliest.at {
            let at = from.at;
            let since = earliest.appended.unwrap_or(at);
            return Err(Error::Refused(format!(
                "startsFrom is {at}, and what was published since is more than half of \
                 journal.backlog_max; expected {since} or later, and POST …/replays for what \
                 was published before"
            )));
        }
        Ok(Some(requested))
    }

    /// Where it begins, or as close to that as leaves room for publishers.
    pub(super) async fn find_nearest_start(
        &self,
        from: Option<&StartsFrom>,
    ) -> Result<Option<Seq>, Error> {
        match from.filter(|_| self.log_end().is_some()) {
            None => Ok(None),
            Some(from) => {
                let StartPoint {
                    requested,
                    earliest,
                } = self.resolve_start(from).await?;
                Ok(Some(requested.max(earliest.at)))
            }
        }
    }

    async fn resolve_start(&self, from: &StartsFrom) -> Result<StartPoint, Error> {
        let end = self
            .journal
            .log_end(self.partition())
            .ok_or(journal::Error::Unknown)?;
        let requested = self
            .resolve_point(ReplayPoint::Since(from.at), end.next)
            .await?;
        let earliest = match self.journal.backlog_limits().backlog {
            None => LogPosition {
                at: Seq::FIRST,
                appended: None,
            },
            Some(bound) => {
                // Everything from the start is backlog, which must leave room for publishers.
                let bytes_max = bound.bytes / u64::from(self.record().partition_count.max(1));
                self.journal
                    .reader_pool()
                    .last_bytes(self.partition(), end, bytes_max / 2)
                    .await?
            }
        };
        Ok(StartPoint {
            requested,
            earliest,
        })
    }

    /// The stored range, for an error text.
    async fn describe_stored(&self, from: Seq, next: Seq) -> Result<String, Error> {
        let first = from.0;
        let last = next.0.saturating_sub(1);
        let since = self.appended_at(from).await?;
        let upto = self.appended_at(Seq(last)).await?;
        let since = since.unwrap_or_default();
        let upto = upto.unwrap_or_default();
        Ok(format!(
            "stored events are {first} to {last}, appended from {since} to {upto}"
        ))
    }

    async fn resolve_point(&self, point: ReplayPoint, next: Seq) -> Result<Seq, Error> {
        match point {
            ReplayPoint::At(seq) => Ok(seq),
            ReplayPoint::Since(at) => Ok(self
                .journal
                .reader_pool()
                .find_position(self.partition(), next, at)
                .await?
                .at),
        }
    }
}

/// The requested start of a new subscription with `startsFrom`, and the earliest one that is
/// allowed.
struct StartPoint {
    requested: Seq,
    /// The first event that leaves room for publishers.
    earliest: LogPosition,
}
