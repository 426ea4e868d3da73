//! Selects the topics and event subscriptions that have series of their own.
//!
//! The size of a scrape is bounded by the number of named topics, named event subscriptions, and
//! named event subscriptions of one topic. The most active ones are named. The others of each topic
//! are summed in one *rest*, and so are all topics beyond the limit. Activity is matched events,
//! backlog and requests, with a half-life of ten minutes. A named one is replaced only by one that
//! is twice as active, so that series do not come and go.
//!
//! Invariant: the counters of a rest never fall, although members leave it because they are named
//! or deleted. Prometheus takes a falling counter for a restart and would count all of it again.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::figures::{CombineCounts, SubscriptionCounters, SubscriptionFigures, TopicCounters};
use gridhook_event::{PartitionId, SubscriptionKey, Timestamp};

const HALF_LIFE_SECONDS: f64 = 600.0;

/// Factor by which another event subscription has to be more active to replace one with series of
/// its own.
pub(crate) const LEAD: f64 = 2.0;

/// Maximum numbers with series of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesLimits {
    /// Event subscriptions of all topics.
    pub subscriptions: usize,
    /// Event subscriptions of one topic.
    pub subscriptions_per_topic: usize,
    pub topics: usize,
}

/// Total activity of an event subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Activity {
    pub(crate) key: SubscriptionKey,
    pub(crate) total: u64,
}

/// The event subscriptions and topics with series of their own, and what is needed to select them
/// again.
#[derive(Debug, Default)]
pub(crate) struct SeriesSelection {
    activities: HashMap<SubscriptionKey, LastActivity>,
    last_scrape: Option<Timestamp>,
    named: HashSet<SubscriptionKey>,
    topics: HashSet<PartitionId>,
    /// Counters of the event subscriptions with series of their own at the last scrape.
    last_named: HashMap<SubscriptionKey, SubscriptionCounters>,
    /// Counters of each rest at the last scrape, by the name of its topic.
    rests: BTreeMap<String, RestCounters<SubscriptionCounters>>,
    /// The rest of topics beyond the limit.
    topics_rest: RestCounters<TopicCounters>,
}

#[derive(Clone, Copy, Debug)]
struct LastActivity {
    total: u64,
    score: f64,
}

/// Corrections to the sum of a rest's members.
#[derive(Debug, Default)]
struct RestCounters<T> {
    /// Counters of members that left.
    plus: T,
    /// Counters that members had before they joined.
    minus: T,
    last: Option<T>,
}

impl SeriesSelection {
    /// Selects the most active event subscriptions, and the topics to name.
    pub(crate) fn choose_series(
        &mut self,
        all: &[Activity],
        topics: &[PartitionId],
        bounds: SeriesLimits,
        now: Timestamp,
    ) {
        let elapsed_seconds = self
            .last_scrape
            .map_or(0.0, |last_scrape| now.since(last_scrape).as_secs_f64());
        let decay = 0.5_f64.powf(elapsed_seconds / HALF_LIFE_SECONDS);
        let mut activities = HashMap::with_capacity(all.len());
        let mut ranks = Vec::with_capacity(all.len());
        for Activity { key, total } in all {
            let score = self.activities.get(key).map_or(0.0, |last| {
                last.score * decay + total.saturating_sub(last.total) as f64
            });
            activities.insert(
                *key,
                LastActivity {
                    total: *total,
                    score,
                },
            );
            let lead = if self.named.contains(key) { LEAD } else { 1.0 };
            ranks.push((score * lead, *total, *key));
        }
        self.activities = activities;
        self.last_scrape = Some(now);
        // Before the second scrape there is no recent activity: the total decides.
        ranks.sort_unstable_by(|one, other| {
            other
                .0
                .total_cmp(&one.0)
                .then(other.1.cmp(&one.1))
                .then(one.2.cmp(&other.2))
        });
        self.choose_topics(
            ranks
                .iter()
                .map(|(_, _, key)| key.partition)
                .chain(topics.iter().copied()),
            topics,
            bounds,
        );
        let mut counts_by_topic: HashMap<PartitionId, usize> = HashMap::new();
        let mut named = HashSet::new();
        for (_, _, key) in ranks {
            let topic_count = counts_by_topic.entry(key.partition).or_default();
            if named.len() < bounds.subscriptions
                && *topic_count < bounds.subscriptions_per_topic
                && self.topics.contains(&key.partition)
            {
                *topic_count += 1;
                named.insert(key);
            }
        }
        self.named = named;
    }

    /// A named topic stays named as long as it exists.
    fn choose_topics(
        &mut self,
        ranked: impl Iterator<Item = PartitionId>,
        all: &[PartitionId],
        bounds: SeriesLimits,
    ) {
        let existing: HashSet<&PartitionId> = all.iter().collect();
        self.topics.retain(|topic| existing.contains(topic));
        for topic in ranked {
            if self.topics.len() >= bounds.topics {
                return;
            }
            self.topics.insert(topic);
        }
    }

    /// Whether an event subscription has series of its own.
    pub(crate) fn is_named(&self, key: SubscriptionKey) -> bool {
        self.named.contains(&key)
    }

    /// The recent activity of an event subscription.
    pub(crate) fn score(&self, key: SubscriptionKey) -> f64 {
        self.activities.get(&key).map_or(0.0, |last| last.score)
    }

    /// Whether a topic has series of its own.
    pub(crate) fn is_topic_named(&self, topic: PartitionId) -> bool {
        self.topics.contains(&topic)
    }

    /// Records the event subscriptions that have series of their own at this scrape. One that no
    /// longer has them has joined the rest that `rest_of` returns.
    pub(super) fn report_named(
        &mut self,
        named: &[(SubscriptionKey, &SubscriptionFigures)],
        rest_of: impl Fn(SubscriptionKey) -> Option<String>,
    ) {
        let current = named
            .iter()
            .map(|(key, figures)| (*key, figures.sums.clone()))
            .collect();
        for (key, sums) in std::mem::replace(&mut self.last_named, current) {
            if !self.last_named.contains_key(&key)
                && let Some(rest) = rest_of(key)
            {
                self.rests
                    .entry(rest)
                    .or_default()
                    .minus
                    .combine_with(&sums, u64::saturating_add);
            }
        }
    }

    /// Corrects the counters of the rest of a topic.
    pub(super) fn report_rest(&mut self, topic: &str, figures: &mut SubscriptionFigures) {
        self.rests
            .entry(topic.to_owned())
            .or_default()
            .report_sums(&mut figures.sums);
    }

    /// Corrects the counters of the rest of topics.
    pub(super) fn report_topics_rest(&mut self, sums: &mut TopicCounters) {
        self.topics_rest.report_sums(sums);
    }

    /// Removes the rests of topics that do not exist any more.
    pub(super) fn keep_rests(&mut self, exists: impl Fn(&str) -> bool) {
        self.rests.retain(|topic, _| exists(topic));
    }
}

impl<T: CombineCounts + Clone> RestCounters<T> {
    /// Turns the sum of the present members into counters that never fall.
    fn report_sums(&mut self, sums: &mut T) {
        sums.combine_with(&self.plus, u64::saturating_add);
        sums.combine_with(&self.minus, u64::saturating_sub);
        if let Some(mut difference) = self.last.take() {
            difference.combine_with(sums, u64::saturating_sub);
            self.plus.combine_with(&difference, u64::saturating_add);
            sums.combine_with(&difference, u64::saturating_add);
        }
        self.last = Some(sums.clone());
    }
}
