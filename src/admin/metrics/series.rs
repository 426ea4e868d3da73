//! Whose series stand by themselves, where not everybody's can.
//!
//! A scrape has a bound that does not grow with what there is: so many topics, so many subscriptions, of these so many of
//! one topic. Those with most to do are named; the rest of each topic is told as one, and so are all topics beyond the
//! bound. What one *does* is what is matched for it, what waits for it and the requests it costs, half of it forgotten
//! every ten minutes; whoever is named stays until another has twice as much to do, so that names do not come and go.
//!
//! Invariant: what is counted of a rest never falls, though some leave it: to be named, or for good. To those who collect
//! it a count that falls is a restart, and all of it would count again.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::figures::{Merge, SubscriptionCounters, SubscriptionFigures, TopicCounters};
use crate::event::{PartitionId, SubscriptionKey, Timestamp};

/// Half of what somebody did is forgotten after so long.
const HALF_LIFE_SECONDS: f64 = 600.0;

/// Whoever is named has to be outdone by so much.
const LEAD: f64 = 2.0;

/// How many have series of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesLimits {
    /// Subscriptions of all topics.
    pub subscriptions: usize,
    /// Subscriptions of one topic.
    pub subscriptions_per_topic: usize,
    /// Topics.
    pub topics: usize,
}

/// What one has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Activity {
    pub(super) who: SubscriptionKey,
    pub(super) total: u64,
}

/// Who was named so far, and what everybody had done.
#[derive(Debug, Default)]
pub(super) struct SeriesSelection {
    seen: HashMap<SubscriptionKey, LastActivity>,
    looked: Option<Timestamp>,
    named: HashSet<SubscriptionKey>,
    topics: HashSet<PartitionId>,
    /// What was told last of those who are named …
    told: HashMap<SubscriptionKey, SubscriptionCounters>,
    /// … and of each rest, by the name of its topic.
    rests: BTreeMap<String, RestCounters<SubscriptionCounters>>,
    /// Likewise, of the topics beyond the bound.
    topics_rest: RestCounters<TopicCounters>,
}

#[derive(Clone, Copy, Debug)]
struct LastActivity {
    total: u64,
    score: f64,
}

/// What is counted of a rest beside those who are in it.
#[derive(Debug, Default)]
struct RestCounters<T> {
    /// Of those who left it.
    plus: T,
    /// Of those who came, before they did.
    minus: T,
    last: Option<T>,
}

impl SeriesSelection {
    /// Names those with most to do, and the topics that they may be named with: of all, in their order.
    pub(super) fn choose(&mut self, all: &[Activity], topics: &[PartitionId], bounds: SeriesLimits, now: Timestamp) {
        let passed = self.looked.map_or(0.0, |looked| now.since(looked).as_secs_f64());
        let kept = 0.5_f64.powf(passed / HALF_LIFE_SECONDS);
        let mut seen = HashMap::with_capacity(all.len());
        let mut ranks = Vec::with_capacity(all.len());
        for Activity { who, total } in all {
            let score =
                self.seen.get(who).map_or(0.0, |seen| seen.score * kept + total.saturating_sub(seen.total) as f64);
            seen.insert(*who, LastActivity { total: *total, score });
            let lead = if self.named.contains(who) { LEAD } else { 1.0 };
            ranks.push((score * lead, *total, *who));
        }
        (self.seen, self.looked) = (seen, Some(now));
        // Before anybody was seen to do anything it counts what they have done in all.
        ranks.sort_unstable_by(|one, other| {
            other.0.total_cmp(&one.0).then(other.1.cmp(&one.1)).then(one.2.cmp(&other.2))
        });
        self.choose_topics(ranks.iter().map(|(_, _, who)| who.partition).chain(topics.iter().copied()), topics, bounds);
        let (mut of_topic, mut named) = (HashMap::new(), HashSet::new());
        for (_, _, who) in ranks {
            let of_topic: &mut usize = of_topic.entry(who.partition).or_default();
            if named.len() < bounds.subscriptions
                && *of_topic < bounds.subscriptions_per_topic
                && self.topics.contains(&who.partition)
            {
                *of_topic += 1;
                named.insert(who);
            }
        }
        self.named = named;
    }

    /// A topic that is named stays so while it is there.
    fn choose_topics(&mut self, ranked: impl Iterator<Item = PartitionId>, all: &[PartitionId], bounds: SeriesLimits) {
        let there: HashSet<&PartitionId> = all.iter().collect();
        self.topics.retain(|topic| there.contains(topic));
        for topic in ranked {
            if self.topics.len() >= bounds.topics {
                return;
            }
            self.topics.insert(topic);
        }
    }

    /// Whether a subscription has series of its own.
    pub(super) fn is_named(&self, who: SubscriptionKey) -> bool {
        self.named.contains(&who)
    }

    /// Whether a topic has.
    pub(super) fn is_topic_named(&self, topic: PartitionId) -> bool {
        self.topics.contains(&topic)
    }

    /// Those that are told by name: who was so and is not any more has come to its rest, which `rest_of` names.
    pub(super) fn report_named(
        &mut self,
        named: &[(SubscriptionKey, &SubscriptionFigures)],
        rest_of: impl Fn(SubscriptionKey) -> Option<String>,
    ) {
        let told = named.iter().map(|(who, figures)| (*who, figures.sums.clone())).collect();
        for (who, sums) in std::mem::replace(&mut self.told, told) {
            if !self.told.contains_key(&who)
                && let Some(rest) = rest_of(who)
            {
                self.rests.entry(rest).or_default().minus.merge(&sums, u64::saturating_add);
            }
        }
    }

    /// What is told of a rest.
    pub(super) fn report_rest(&mut self, topic: &str, figures: &mut SubscriptionFigures) {
        self.rests.entry(topic.to_owned()).or_default().report(&mut figures.sums);
    }

    /// The same, of the topics beyond the bound.
    pub(super) fn report_topics_rest(&mut self, sums: &mut TopicCounters) {
        self.topics_rest.report(sums);
    }

    /// There are no more rests than these.
    pub(super) fn keep_rests(&mut self, of: impl Fn(&str) -> bool) {
        self.rests.retain(|topic, _| of(topic));
    }
}

impl<T: Merge> RestCounters<T> {
    /// What those who are in it have now is told so that it never falls.
    fn report(&mut self, sums: &mut T) {
        sums.merge(&self.plus, u64::saturating_add);
        sums.merge(&self.minus, u64::saturating_sub);
        if let Some(mut gone) = self.last.take() {
            gone.merge(sums, u64::saturating_sub);
            self.plus.merge(&gone, u64::saturating_add);
            sums.merge(&gone, u64::saturating_add);
        }
        self.last = Some(sums.clone());
    }
}
