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
    event::{Obligor, PartitionId},
    policy::outcome::{Answer, Outcome},
};

/// What is done to an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mischief {
    /// It is lost, as with a connection that breaks.
    Drop,
    /// It comes so much later.
    Delay(Duration),
    /// It is no HTTP any more.
    Corrupt,
}

/// Whose answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Everybody's.
    All,
    /// Those of all subscriptions of a topic.
    Topic(PartitionId),
    /// One subscription's.
    Subscription(Obligor),
}

/// What is done to answers, and to which.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// What.
    pub mischief: Mischief,
    /// To whose.
    pub whose: Whose,
    /// To which share of them.
    pub rate: f64,
}

/// Answers that were disturbed, and the events of their requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Answers.
    pub answers: u64,
    /// Events.
    pub events: u64,
}

/// What was done, by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// [`Mischief::Drop`].
    pub dropped: Count,
    /// [`Mischief::Delay`].
    pub delayed: Count,
    /// [`Mischief::Corrupt`].
    pub corrupted: Count,
}

/// The rules that hold now.
#[derive(Debug, Default)]
pub struct Disturbance {
    armed: AtomicBool,
    rules: Mutex<Vec<(u64, Rule)>>,
    dropped: Tally,
    delayed: Tally,
    corrupted: Tally,
}

#[derive(Debug, Default)]
struct Tally {
    answers: AtomicU64,
    events: AtomicU64,
}

impl Tally {
    fn add(&self, events: usize) {
        self.answers.fetch_add(1, Ordering::Relaxed);
        self.events.fetch_add(events as u64, Ordering::Relaxed);
    }

    fn count(&self) -> Count {
        Count { answers: self.answers.load(Ordering::Relaxed), events: self.events.load(Ordering::Relaxed) }
    }
}

impl Disturbance {
    /// From now on `rule` holds, under this number.
    pub fn begin(&self, number: u64, rule: Rule) {
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
    pub fn counts(&self) -> Counts {
        Counts { dropped: self.dropped.count(), delayed: self.delayed.count(), corrupted: self.corrupted.count() }
    }

    /// What befalls an answer to this subscription's request of so many events. It is counted.
    pub(super) fn befalls(&self, obligor: Obligor, answer: &Answer, events: usize) -> Option<Mischief> {
        if !self.armed.load(Ordering::Acquire) || answer.status.is_none() {
            return None;
        }
        let chosen = self.rules().iter().find_map(|(_, rule)| {
            let meant = match rule.whose {
                Whose::All => true,
                Whose::Topic(partition) => obligor.partition == partition,
                Whose::Subscription(one) => obligor == one,
            };
            (meant && fastrand::f64() < rule.rate).then_some(rule.mischief)
        })?;
        match chosen {
            Mischief::Drop => self.dropped.add(events),
            Mischief::Delay(_) => self.delayed.add(events),
            Mischief::Corrupt => self.corrupted.add(events),
        }
        Some(chosen)
    }

    fn rules(&self) -> MutexGuard<'_, Vec<(u64, Rule)>> {
        self.rules.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is told in place of an answer that is lost.
pub(super) fn dropped(answer: &Answer) -> Answer {
    let detail = "the answer was dropped by chaos".to_owned();
    Answer { detail, latency: answer.latency, ..Answer::bare(Outcome::SocketError) }
}

/// What is told in place of an answer that is damaged.
pub(super) fn corrupted(answer: &Answer) -> Answer {
    let detail = "the answer is not understood: it was corrupted by chaos".to_owned();
    Answer { detail, latency: answer.latency, ..Answer::bare(Outcome::GenericError) }
}

/// What is told when the wait is over and a delayed answer has not come.
pub(super) fn delayed(wait: Duration) -> Answer {
    let detail = format!("no answer within {wait:?}: it was delayed by chaos");
    Answer { detail, latency: wait, ..Answer::bare(Outcome::TimedOut) }
}
