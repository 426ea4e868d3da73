//! How fast: a bucket of tokens, one for each request, for an endpoint that failed not long ago or said how much it takes.
//!
//! After probation a backlog and all that fell due meanwhile stand ready. The endpoint was healthy at some rate: the
//! bucket fills at a tenth of it first, climbs to it in seconds, and grows by little in each clean second then, as far as the
//! successes go along. A failure takes it to a share of what was accepted.
//!
//! Invariants:
//! - The rate is never above `over_share` times what was healthy before or is taken now, and never above the ceiling.
//! - It is never below `least`, unless the ceiling is: nothing stalls.
//! - A request that left before the last cut cuts nothing: what comes back in one volley is one failure.
//!
//! Absent on purpose: who draws. A token is one request, and whose turn it is, first attempts', a backlog's or retries',
//! is the sender's affair.

use std::time::Duration;

use crate::{
    event::Timestamp,
    policy::{edition::PaceRules, outcome::Outcome, record::Rate},
};

/// So much of the rate can gather while nobody draws: more would come down as a burst, less would be lost to the timer.
const BURST: Duration = Duration::from_millis(50);

/// Successes are judged second by second.
const SECOND: Duration = Duration::from_secs(1);

/// A token that is whole but for the error of its sum is whole.
const ROUNDING: f64 = 1e-6;

/// The bucket.
#[derive(Debug)]
pub(super) struct TokenBucket {
    ceiling: Option<f64>,
    course: Option<RecoveryCourse>,
    tokens: f64,
    filled: Timestamp,
}

/// How the rate goes after probation.
#[derive(Debug)]
struct RecoveryCourse {
    /// The last healthy rate.
    goal: f64,
    floor: f64,
    rate: f64,
    /// While it climbs: since when.
    climbs: Option<Timestamp>,
    climb: Duration,
    second: SecondCounts,
    /// Requests of the second before.
    before: u32,
    /// Successes in a second, the later ones more than the earlier ones.
    proven: Option<f64>,
    cut: Timestamp,
}

/// What came back in a second.
#[derive(Debug)]
struct SecondCounts {
    began: Timestamp,
    took: u32,
    failed: u32,
    clean: bool,
}

impl SecondCounts {
    fn begin(now: Timestamp) -> Self {
        Self { began: now, took: 0, failed: 0, clean: true }
    }
}

impl TokenBucket {
    /// A bucket with one token, or none where nothing bounds the rate: `healthy` is the last healthy rate of an endpoint
    /// that failed not long ago, `ceiling` what it said that it takes.
    pub(super) fn new(healthy: Option<Rate>, ceiling: Option<Rate>, table: &PaceRules, now: Timestamp) -> Option<Self> {
        let course = healthy.map(|healthy| {
            let goal = healthy.per_second().max(table.least);
            let floor = (goal * table.start_share).max(table.least);
            RecoveryCourse {
                goal,
                floor,
                rate: goal,
                climbs: Some(now),
                climb: table.climb,
                second: SecondCounts::begin(now),
                before: 0,
                proven: None,
                cut: Timestamp::default(),
            }
        });
        // A ceiling of nothing at all would stall for ever.
        let ceiling = ceiling.map(|ceiling| ceiling.max(Rate(1)).per_second());
        let bounded = course.is_some() || ceiling.is_some();
        bounded.then_some(Self { ceiling, course, tokens: 1.0, filled: now })
    }

    /// Requests in a second, now.
    pub(super) fn rate(&self, now: Timestamp) -> f64 {
        let course = self.course.as_ref().map_or(f64::INFINITY, |course| course.rate(now));
        self.ceiling.map_or(course, |ceiling| ceiling.min(course))
    }

    /// Whether it is there for a probation, and not only for what the endpoint allows.
    pub(super) fn has_course(&self) -> bool {
        self.course.is_some()
    }

    /// How many requests may leave now.
    pub(super) fn places(&self, now: Timestamp) -> u32 {
        // As many as fit: a burst is far below that.
        (self.tokens(now) + ROUNDING) as u32
    }

    /// When the next request may leave.
    pub(super) fn opens(&self, now: Timestamp) -> Timestamp {
        let lacking = 1.0 - ROUNDING - self.tokens(now);
        if lacking <= 0.0 {
            return now;
        }
        // Time has no parts of a microsecond: a moment later it is there for certain.
        now.after(Duration::from_secs_f64(lacking / self.rate(now))).after(Duration::from_micros(1))
    }

    /// A request leaves.
    pub(super) fn take(&mut self, now: Timestamp) {
        self.tokens = (self.tokens(now) - 1.0).max(0.0);
        self.filled = self.filled.max(now);
    }

    /// A request was taken.
    pub(super) fn took(&mut self, table: &PaceRules, now: Timestamp) {
        self.fill(now);
        if let Some(course) = &mut self.course {
            course.turn(table, now);
            course.second.took += 1;
        }
    }

    /// A request that left at `sent` failed.
    pub(super) fn failed(&mut self, outcome: Outcome, sent: Timestamp, table: &PaceRules, now: Timestamp) {
        self.fill(now);
        if let Some(course) = &mut self.course {
            course.turn(table, now);
            course.failed(outcome, sent, table, now);
        }
    }

    /// There was no failure for long: only the ceiling stays. False where there is none, and no bucket is needed.
    pub(super) fn forget(&mut self) -> bool {
        self.course = None;
        self.ceiling.is_some()
    }

    fn tokens(&self, now: Timestamp) -> f64 {
        let rate = self.rate(now);
        let most = (rate * BURST.as_secs_f64()).max(1.0);
        (self.tokens + rate * now.since(self.filled).as_secs_f64()).min(most)
    }

    /// What has run in until now did so at the rate that was.
    fn fill(&mut self, now: Timestamp) {
        self.tokens = self.tokens(now);
        self.filled = self.filled.max(now);
    }
}

impl RecoveryCourse {
    fn rate(&self, now: Timestamp) -> f64 {
        let Some(since) = self.climbs else { return self.rate };
        let way = (now.since(since).as_secs_f64() / self.climb.as_secs_f64()).min(1.0);
        self.floor + (self.goal - self.floor) * way
    }

    /// A second may be over: a clean one lets the rate grow.
    fn turn(&mut self, table: &PaceRules, now: Timestamp) {
        let took = now.since(self.second.began);
        if took < SECOND {
            return;
        }
        let SecondCounts { took: successes, failed, clean, .. } =
            std::mem::replace(&mut self.second, SecondCounts::begin(now));
        self.before = successes + failed;
        let successes = f64::from(successes) / took.as_secs_f64();
        let proven = self.proven.map_or(successes, |proven| f64::midpoint(proven, successes));
        self.proven = Some(proven);
        if let Some(since) = self.climbs {
            // The rate it has at the end of its climb is the goal.
            self.climbs = Some(since).filter(|since| now.since(*since) < self.climb);
        } else if clean && successes > 0.0 {
            let most = table.over_share * proven.max(self.goal);
            let grown = (self.rate * (1.0 + table.growth_share)).min(most);
            // What was healthy before is no news: after a cut it is back there in seconds, too.
            let back = (self.rate + self.floor).min(self.goal);
            self.rate = self.rate.max(grown).max(back);
        }
    }

    fn failed(&mut self, outcome: Outcome, sent: Timestamp, table: &PaceRules, now: Timestamp) {
        self.second.failed += 1;
        let lately = f64::from(self.before + self.second.took + self.second.failed);
        if outcome != Outcome::Busy && f64::from(self.second.failed) <= lately * table.tolerated_share {
            return;
        }
        self.second.clean = false;
        if sent < self.cut {
            return;
        }
        let rate = self.rate(now);
        let accepted = self.proven.map_or(rate, |proven| proven.min(rate));
        self.rate = (accepted * table.after_failure_share).max(self.floor);
        self.climbs = None;
        self.cut = now;
    }
}
