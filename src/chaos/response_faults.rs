//! Responses that are dropped, delayed or corrupted on purpose, after `gridhook_deliver` received
//! them and before they reach the subscription: the endpoint accepted the events and the server
//! does not know.
//!
//! Requests without a response are not changed. Without a rule, a response costs one atomic read
//! and no lock.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::Mutex;

use gridhook_event::{PartitionId, SubscriptionKey};
use gridhook_policy::outcome::{Failure, RequestResult};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFault {
    /// The response is lost, as if the connection broke.
    Drop,
    /// The response arrives this much later.
    Delay(Duration),
    /// The response is not valid HTTP.
    Corrupt,
}

/// The subscriptions whose responses a rule applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultTarget {
    All,
    /// The subscriptions of a topic.
    Topic(PartitionId),
    Subscription(SubscriptionKey),
}

/// A rule: which fault is injected into which responses.
#[derive(Clone, Copy, Debug)]
pub struct FaultRule {
    pub faults: ResponseFault,
    pub owner: FaultTarget,
    pub rate: f64,
}

/// Responses into which a fault was injected, and the events of their requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCount {
    pub answers: u64,
    pub events: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    pub dropped: FaultCount,
    pub delayed: FaultCount,
    pub corrupted: FaultCount,
}

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

    fn to_count(&self) -> FaultCount {
        FaultCount {
            answers: self.answers.load(Ordering::Relaxed),
            events: self.events.load(Ordering::Relaxed),
        }
    }
}

impl FaultInjection {
    /// Adds a rule under this number.
    pub fn begin_rule(&self, number: u64, rule: FaultRule) {
        let mut rules = self.rules.lock();
        rules.push((number, rule));
        self.armed.store(true, Ordering::Release);
    }

    /// Removes the rule with this number.
    pub fn end_rule(&self, number: u64) {
        let mut rules = self.rules.lock();
        rules.retain(|(known, _)| *known != number);
        self.armed.store(!rules.is_empty(), Ordering::Release);
    }

    pub fn fault_counts(&self) -> FaultCounts {
        FaultCounts {
            dropped: self.dropped.to_count(),
            delayed: self.delayed.to_count(),
            corrupted: self.corrupted.to_count(),
        }
    }

    /// Chooses and counts the fault for a response to a request with `events` events.
    pub fn fault_for(
        &self,
        subscription_key: SubscriptionKey,
        result: &RequestResult,
        events: usize,
    ) -> Option<ResponseFault> {
        if !self.armed.load(Ordering::Acquire) || result.status.is_none() {
            return None;
        }
        let chosen = self.rules.lock().iter().find_map(|(_, rule)| {
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
}

/// The result in place of a dropped response.
pub fn dropped_result(result: &RequestResult) -> RequestResult {
    let detail = "chaos dropped the response".to_owned();
    RequestResult {
        detail,
        latency: result.latency,
        ..RequestResult::from_outcome(Failure::SocketError)
    }
}

/// The result in place of a corrupted response.
pub fn corrupted_result(result: &RequestResult) -> RequestResult {
    let detail = "the response is not valid HTTP: chaos corrupted it".to_owned();
    RequestResult {
        detail,
        latency: result.latency,
        ..RequestResult::from_outcome(Failure::GenericError)
    }
}

/// The result if a delayed response has not arrived at the timeout.
pub fn delayed_result(wait: Duration) -> RequestResult {
    let detail = format!("no response within {wait:?}: chaos delayed it");
    RequestResult {
        detail,
        latency: wait,
        ..RequestResult::from_outcome(Failure::TimedOut)
    }
}
