//! Answers of endpoints that are lost, late or damaged on purpose, between [`deliver`](crate::deliver), which heard them,
//! and the slot, which is told: the endpoint took its events, and the server does not know.
//!
//! Nothing is disturbed that was no answer anyway. While nothing is on, an answer costs one atomic read, and no lock.

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use crate::{
    event::{PartitionId, SubscriptionKey},
    policy::outcome::{Outcome, RequestResult},
};

/// What is done to an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFault {
    /// It is lost, as with a connection that breaks.
    Drop,
    /// It comes so much later.
    Delay(Duration),
    /// It is no HTTP any more.
    Corrupt,
}

/// Whose answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultTarget {
    /// Everybody's.
    All,
    /// Those of all subscriptions of a topic.
    Topic(PartitionId),
    /// One subscription's.
    Subscription(SubscriptionKey),
}

/// What is done to answers, and to which.
#[derive(Clone, Copy, Debug)]
pub struct FaultRule {
    /// What.
    pub faults: ResponseFault,
    /// To whose.
    pub owner: FaultTarget,
    /// To which share of them.
    pub rate: f64,
}

/// Answers that were disturbed, and the events of their requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCount {
    /// Answers.
    pub answers: u64,
    /// Events.
    pub events: u64,
}

/// What was done, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// [`ResponseFault::Drop`].
    pub dropped: FaultCount,
    /// [`ResponseFault::Delay`].
    pub delayed: FaultCount,
    /// [`ResponseFault::Corrupt`].
    pub corrupted: FaultCount,
}

/// The rules that hold now.
#[derive(Debug, Default)]
pub struct FaultInjection {
    armed: AtomicBool,
    rules: Mutex<Vec<(u64, FaultRule)>>,
    dropped: FaultTally,
    delayed: FaultTally,
    corrupted: FaultTally,
}

#[derive(Debug, Default)]
struct FaultTally {
    answers: AtomicU64,
    events: AtomicU64,
}

impl FaultTally {
    fn add(&self, events: usize) {
        self.answers.fetch_add(1, Ordering::Relaxed);
        self.events.fetch_add(events as u64, Ordering::Relaxed);
    }

    fn count(&self) -> FaultCount {
        FaultCount { answers: self.answers.load(Ordering::Relaxed), events: self.events.load(Ordering::Relaxed) }
    }
}

impl FaultInjection {
    /// From now on `rule` holds, under this number.
    pub fn begin(&self, number: u64, rule: FaultRule) {
        let mut rules = self.rules();
        rules.push((number, rule));
        self.armed.store(true, Ordering::Release);
    }

    /// The rule with this number holds no more.
    pub fn end(&self, number: u64) {
        let mut rules = self.rules();
        rules.retain(|(known, _)| *known != number);
        self.armed.store(!rules.is_empty(), Ordering::Release);
    }

    /// What was done so far.
    pub fn counts(&self) -> FaultCounts {
        FaultCounts { dropped: self.dropped.count(), delayed: self.delayed.count(), corrupted: self.corrupted.count() }
    }

    /// What befalls an answer to this subscription's request of so many events. It is counted.
    pub(crate) fn befalls(
        &self,
        subscription_key: SubscriptionKey,
        answer: &RequestResult,
        events: usize,
    ) -> Option<ResponseFault> {
        if !self.armed.load(Ordering::Acquire) || answer.status.is_none() {
            return None;
        }
        let chosen = self.rules().iter().find_map(|(_, rule)| {
            let meant = match rule.owner {
                FaultTarget::All => true,
                FaultTarget::Topic(partition) => subscription_key.partition == partition,
                FaultTarget::Subscription(one) => subscription_key == one,
            };
            (meant && fastrand::f64() < rule.rate).then_some(rule.faults)
        })?;
        match chosen {
            ResponseFault::Drop => self.dropped.add(events),
            ResponseFault::Delay(_) => self.delayed.add(events),
            ResponseFault::Corrupt => self.corrupted.add(events),
        }
        Some(chosen)
    }

    fn rules(&self) -> MutexGuard<'_, Vec<(u64, FaultRule)>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is told in place of an answer that is lost.
pub(crate) fn dropped(answer: &RequestResult) -> RequestResult {
    let detail = "the answer was dropped by chaos".to_owned();
    RequestResult { detail, latency: answer.latency, ..RequestResult::bare(Outcome::SocketError) }
}

/// What is told in place of an answer that is damaged.
pub(crate) fn corrupted(answer: &RequestResult) -> RequestResult {
    let detail = "the answer is not understood: it was corrupted by chaos".to_owned();
    RequestResult { detail, latency: answer.latency, ..RequestResult::bare(Outcome::GenericError) }
}

/// What is told when the wait is over and a delayed answer has not come.
pub(crate) fn delayed(wait: Duration) -> RequestResult {
    let detail = format!("no answer within {wait:?}: it was delayed by chaos");
    RequestResult { detail, latency: wait, ..RequestResult::bare(Outcome::TimedOut) }
}
