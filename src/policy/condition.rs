//! The condition of an event subscription: one word for how it is, the same in the API, the
//! commands, the metrics and the dashboard.
//!
//! What it does not do: it keeps no state and has no effect. [`crate::endpoint`] decides about
//! suspensions.

use std::fmt;

use crate::record::{Health, HeldBy};

/// Number of windows over which a condition is judged, the shortest first.
pub const WINDOWS: usize = 3;

/// A window with fewer requests is skipped, unless all have fewer.
const REQUESTS_MIN: u32 = 3;

/// The least share of good outcomes that is healthy.
const GOOD_SHARE_MIN: f64 = 0.9;

/// The least share of good outcomes that is healthy, for fewer outcomes than [`REQUESTS_MIN`].
const FEW_GOOD_SHARE_MIN: f64 = 0.5;

/// A condition, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Condition {
    /// Requests fail, or events are given up.
    Failing,
    /// The endpoint is suspended, or a probe of it is in flight.
    Suspended,
    /// Nothing is sent until an operator resumes it.
    Held,
    /// Events wait for a client, and no client receives.
    Waiting,
    /// Events wait to be read for longer than the shortest window.
    Slow,
    /// Requests succeed, or none has ended in the windows while events wait.
    Healthy,
    /// Nothing was sent and nothing waits.
    Idle,
}

impl Condition {
    /// All of them, the worst first.
    pub const ALL: [Self; 7] = [
        Self::Failing,
        Self::Suspended,
        Self::Held,
        Self::Waiting,
        Self::Slow,
        Self::Healthy,
        Self::Idle,
    ];

    /// The name in responses, commands and metrics: lower case, one word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Failing => "failing",
            Self::Suspended => "suspended",
            Self::Held => "held",
            Self::Waiting => "waiting",
            Self::Slow => "slow",
            Self::Healthy => "healthy",
            Self::Idle => "idle",
        }
    }

    /// Whether an operator has to look at it.
    pub fn is_sick(self) -> bool {
        self < Self::Healthy
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What became of requests and events in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WindowOutcomes {
    /// Requests, or events that clients received.
    pub requests: u32,
    /// Of the requests, those without success.
    pub failed: u32,
    /// Events that the endpoint accepted or a client acknowledged.
    pub delivered: u32,
    /// Events that were dead-lettered or dropped.
    pub given_up: u32,
}

impl WindowOutcomes {
    /// Requests or ended events, whichever are more: events that are given up without a request
    /// count, too.
    fn count_ended(self) -> u32 {
        self.requests
            .max(self.delivered.saturating_add(self.given_up))
    }

    /// The share of good outcomes: of requests or of ended events, whichever is smaller. [`None`]
    /// without outcomes.
    pub fn good_share(self) -> Option<f64> {
        let share =
            |bad: u32, all: u32| (all > 0).then(|| 1.0 - f64::from(bad.min(all)) / f64::from(all));
        let of_requests = share(self.failed, self.requests);
        let of_events = share(self.given_up, self.delivered.saturating_add(self.given_up));
        of_requests.into_iter().chain(of_events).reduce(f64::min)
    }
}

/// The facts from which a condition follows.
#[derive(Clone, Copy, Debug)]
pub struct ConditionFacts {
    /// Whether the endpoint is called, suspended or probed.
    pub health: Health,
    /// Whether it is held, and why.
    pub held: Option<HeldBy>,
    /// Whether clients pull from it, and none has received or waits since the shortest window
    /// began.
    pub lacks_receiver: bool,
    /// Events that are unread, pending or in flight.
    pub waiting: u64,
    /// Whether an event is unread that was published before the shortest window began.
    pub is_late: bool,
    /// Outcomes of the windows, the shortest first.
    pub windows: [WindowOutcomes; WINDOWS],
}

/// A condition and its window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after their types")]
pub struct ConditionVerdict {
    pub condition: Condition,
    /// The window whose outcomes were looked at; [`None`] if no window has any.
    pub window: Option<usize>,
}

/// A hold comes before a suspension, then failures, waiting for clients and lateness.
pub fn judge_condition(facts: &ConditionFacts) -> ConditionVerdict {
    let window = judged_window(&facts.windows);
    let condition = if facts.held.is_some() {
        Condition::Held
    } else if !matches!(facts.health, Health::Healthy { .. }) {
        Condition::Suspended
    } else if window.is_some_and(|window| is_failing(facts.windows[window])) {
        Condition::Failing
    } else if facts.lacks_receiver && facts.waiting > 0 {
        Condition::Waiting
    } else if facts.is_late {
        Condition::Slow
    } else if window.is_none() && facts.waiting == 0 {
        Condition::Idle
    } else {
        Condition::Healthy
    };
    ConditionVerdict { condition, window }
}

/// The shortest window with enough outcomes, so that a mend shows soon; else the longest with any.
fn judged_window(windows: &[WindowOutcomes; WINDOWS]) -> Option<usize> {
    let has_enough = windows
        .iter()
        .position(|window| window.count_ended() >= REQUESTS_MIN);
    has_enough.or_else(|| windows.iter().rposition(|window| window.count_ended() > 0))
}

fn is_failing(window: WindowOutcomes) -> bool {
    let least = if window.count_ended() >= REQUESTS_MIN {
        GOOD_SHARE_MIN
    } else {
        FEW_GOOD_SHARE_MIN
    };
    window.good_share().is_some_and(|share| share < least)
}
