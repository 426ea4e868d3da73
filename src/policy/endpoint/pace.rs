//! The pace: token buckets with one token per request, for an endpoint that failed recently or
//! states its allowed rate.
//!
//! After probation the backlog and all due retries are ready at once. Their rate starts at a tenth
//! of the last healthy rate, climbs to that rate in seconds, and then grows a little in each second
//! without failure, bounded by the rate of successes. A failure lowers it to a share of the
//! accepted rate.
//!
//! Fresh events come as fast as they came before the outage, and the endpoint accepted that. They
//! do not wait for the climb: until the first failure, the rate of all requests starts at
//! `over_share` times the last healthy rate.
//!
//! Invariants:
//! - The rate is at most `over_share` times the larger of the last healthy rate and the present
//!   rate of successes, and at most the ceiling.
//! - It is at least `least`, unless the ceiling is lower. Delivery never stalls.
//! - With a ceiling of N per second, no second has more than N requests, also across a new bucket:
//!   it starts empty.
//! - A request sent before the last cut does not cut again: a volley of failures counts once.
//!
//! What it does not do: it does not decide which request takes a token. The sender does.

use std::time::Duration;

use crate::{edition::PaceRules, outcome::Failure, record::Rate, token_bucket::TokenBucket};
use gridhook_event::Timestamp;

/// How much of the rate accumulates while nothing is sent. More would cause bursts; less would be
/// lost to timer resolution.
const BURST: Duration = Duration::from_millis(50);

/// Successes are judged per second.
const SECOND: Duration = Duration::from_secs(1);

/// Whether the events of a request came while the endpoint was unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventAge {
    /// Published since the endpoint was last known to be unavailable, and not sent before.
    Fresh,
    /// Of the backlog, of a job, or retried.
    Old,
}

/// The pace of an endpoint.
#[derive(Debug)]
pub(super) struct RequestPace {
    ceiling: Option<f64>,
    course: Option<RecoveryCourse>,
    /// For all requests.
    bucket: TokenBucket,
    /// For requests with old events, which need a token of each bucket.
    old_bucket: TokenBucket,
}

/// The course of the rate after probation.
#[derive(Debug)]
struct RecoveryCourse {
    /// The last healthy rate, at which the climb ends.
    goal: f64,
    floor: f64,
    rate: f64,
    /// The rate of all requests, until a failure, if it is above `rate`.
    total: Option<f64>,
    /// When the climb started, while it lasts.
    climbs: Option<Timestamp>,
    climb: Duration,
    second: SecondCounts,
    /// Requests in the previous second.
    before: u32,
    /// Successes per second; recent seconds weigh more.
    proven: Option<f64>,
    cut: Timestamp,
}

#[derive(Debug)]
struct SecondCounts {
    began: Timestamp,
    accepted: u32,
    failed: u32,
    clean: bool,
}

impl SecondCounts {
    fn starting_at(now: Timestamp) -> Self {
        Self {
            began: now,
            accepted: 0,
            failed: 0,
            clean: true,
        }
    }
}

impl RequestPace {
    /// A bucket, or none if nothing bounds the rate. `healthy` is the last healthy rate of an
    /// endpoint that failed recently, `ceiling` the maximum rate. With a ceiling the bucket is
    /// empty: the one before may have used it up.
    pub(super) fn new(
        healthy: Option<Rate>,
        ceiling: Option<Rate>,
        table: &PaceRules,
        now: Timestamp,
    ) -> Option<Self> {
        let course = healthy.map(|healthy| {
            let goal = healthy.per_second().max(table.least);
            let floor = (goal * table.start_share).max(table.least);
            RecoveryCourse {
                goal,
                floor,
                rate: goal,
                total: Some(goal * table.over_share),
                climbs: Some(now),
                climb: table.climb,
                second: SecondCounts::starting_at(now),
                before: 0,
                proven: None,
                cut: Timestamp::default(),
            }
        });
        // A ceiling of zero would stall forever.
        let ceiling = ceiling.map(|ceiling| {
            let ceiling = ceiling.max(Rate(1)).per_second();
            // A second has what accumulated before it and what is added in it, together less than
            // one above the ceiling.
            ceiling + 1.0 - (ceiling * BURST.as_secs_f64()).max(1.0)
        });
        let bounded = course.is_some() || ceiling.is_some();
        let tokens = if ceiling.is_some() { 0.0 } else { 1.0 };
        bounded.then_some(Self {
            ceiling,
            course,
            bucket: TokenBucket::new(tokens, BURST, now),
            old_bucket: TokenBucket::new(tokens, BURST, now),
        })
    }

    /// The present rate of requests with old events, in requests per second.
    pub(super) fn current_rate(&self, now: Timestamp) -> f64 {
        self.cap_rate(self.course.as_ref().map(|course| course.current_rate(now)))
    }

    /// The present rate of all requests, in requests per second.
    fn total_rate(&self, now: Timestamp) -> f64 {
        self.cap_rate(self.course.as_ref().map(|course| course.total_rate(now)))
    }

    fn cap_rate(&self, rate: Option<f64>) -> f64 {
        let ceiling = self.ceiling.unwrap_or(f64::INFINITY);
        rate.map_or(ceiling, |rate| rate.min(ceiling))
    }

    /// Whether the bucket exists because of a probation, and not only because of the allowed rate.
    pub(super) fn has_course(&self) -> bool {
        self.course.is_some()
    }

    /// How many requests with events of this age may leave now.
    pub(super) fn free_requests(&self, age: EventAge, now: Timestamp) -> u32 {
        let free_count = self.bucket.whole_tokens(self.total_rate(now), now);
        match age {
            EventAge::Fresh => free_count,
            EventAge::Old => self
                .old_bucket
                .whole_tokens(self.current_rate(now), now)
                .min(free_count),
        }
    }

    /// When the next request with events of this age may leave.
    pub(super) fn next_token(&self, age: EventAge, now: Timestamp) -> Timestamp {
        let next = self.bucket.opens_at(1, self.total_rate(now), now);
        match age {
            EventAge::Fresh => next,
            EventAge::Old => self
                .old_bucket
                .opens_at(1, self.current_rate(now), now)
                .max(next),
        }
    }

    pub(super) fn take_token(&mut self, age: EventAge, now: Timestamp) {
        self.take_token_in_debt(age, now);
        self.bucket.forgive_debt();
        self.old_bucket.forgive_debt();
    }

    /// Takes a token that may be missing; then the next request waits for it, too.
    pub(super) fn take_token_in_debt(&mut self, age: EventAge, now: Timestamp) {
        self.bucket.take_tokens(1.0, self.total_rate(now), now);
        if age == EventAge::Old {
            self.old_bucket
                .take_tokens(1.0, self.current_rate(now), now);
        }
    }

    pub(super) fn record_success(&mut self, table: &PaceRules, now: Timestamp) {
        self.refill_tokens(now);
        if let Some(course) = &mut self.course {
            course.finish_second(table, now);
            course.second.accepted += 1;
        }
    }

    /// Notes that a request sent at `sent` failed.
    pub(super) fn record_failure(
        &mut self,
        failure: Failure,
        sent: Timestamp,
        table: &PaceRules,
        now: Timestamp,
    ) {
        self.refill_tokens(now);
        if let Some(course) = &mut self.course {
            course.finish_second(table, now);
            course.record_failure(failure, sent, table, now);
        }
    }

    /// Ends the course after a long time without failures; the ceiling stays. Returns false if
    /// there is none, so that no bucket is needed.
    pub(super) fn end_course(&mut self) -> bool {
        self.course = None;
        self.ceiling.is_some()
    }

    /// Adds the tokens accumulated until now at the present rates.
    fn refill_tokens(&mut self, now: Timestamp) {
        self.bucket.take_tokens(0.0, self.total_rate(now), now);
        self.old_bucket
            .take_tokens(0.0, self.current_rate(now), now);
    }
}

impl RecoveryCourse {
    fn current_rate(&self, now: Timestamp) -> f64 {
        let Some(since) = self.climbs else {
            return self.rate;
        };
        let way = (now.since(since).as_secs_f64() / self.climb.as_secs_f64()).min(1.0);
        self.floor + (self.goal - self.floor) * way
    }

    fn total_rate(&self, now: Timestamp) -> f64 {
        let rate = self.current_rate(now);
        self.total.map_or(rate, |total| total.max(rate))
    }

    /// Ends the current second if it is over. A second without failures lets the rate grow.
    fn finish_second(&mut self, table: &PaceRules, now: Timestamp) {
        let elapsed = now.since(self.second.began);
        if elapsed < SECOND {
            return;
        }
        let SecondCounts {
            accepted: successes,
            failed,
            clean,
            ..
        } = std::mem::replace(&mut self.second, SecondCounts::starting_at(now));
        self.before = successes + failed;
        let successes = f64::from(successes) / elapsed.as_secs_f64();
        let proven = self
            .proven
            .map_or(successes, |proven| f64::midpoint(proven, successes));
        self.proven = Some(proven);
        let most = table.over_share * proven.max(self.goal);
        let grown = |rate: f64| (rate * (1.0 + table.growth_share)).min(most);
        let grows = clean && successes > 0.0;
        if grows {
            self.total = self.total.map(|rate| grown(rate).max(rate));
        }
        if let Some(since) = self.climbs {
            // At the end of the climb the rate is the goal.
            self.climbs = Some(since).filter(|since| now.since(*since) < self.climb);
        } else if grows {
            // Below the last healthy rate it recovers within seconds, even after a cut.
            let back = (self.rate + self.floor).min(self.goal);
            self.rate = self.rate.max(grown(self.rate)).max(back);
        }
    }

    fn record_failure(
        &mut self,
        failure: Failure,
        sent: Timestamp,
        table: &PaceRules,
        now: Timestamp,
    ) {
        self.second.failed += 1;
        let requests = f64::from(self.before + self.second.accepted + self.second.failed);
        if failure != Failure::Busy
            && f64::from(self.second.failed) <= requests * table.tolerated_share
        {
            return;
        }
        self.second.clean = false;
        if sent < self.cut {
            return;
        }
        let rate = self.current_rate(now);
        let proven_rate = self.proven.map_or(rate, |proven| proven.min(rate));
        self.rate = (proven_rate * table.after_failure_share).max(self.floor);
        self.total = None;
        self.climbs = None;
        self.cut = now;
    }
}
