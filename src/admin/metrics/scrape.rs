//! Collects all figures at one moment from shared state, without a message to an actor.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, PoisonError},
    time::Duration,
};

use super::{
    Exposition,
    figures::{Merge, SubscriptionFigures, TopicCounters, by_end},
    process::ProcessFigures,
    series::{Activity, SeriesLimits},
};
use gridhook_dead_letter::totals::DeadLetterTotals;
use gridhook_engine::control::registry::{Registry, TopicHandle};
use gridhook_event::{PartitionId, Seq, SubscriptionKey, Timestamp};
use gridhook_journal as journal;
use gridhook_journal::CrowdedPartition;
use gridhook_policy::record::Cursor;
use gridhook_store::keys::MetaKind;

/// Label value of everything without series of its own. No resource name contains an underscore.
pub(super) const OTHER: &str = "_other";

/// Maximum number of topics of one rest whose oldest unread event is looked up in the log: those
/// with the largest backlogs.
const LOOKUPS_MAX: usize = 256;

/// Time limit of the lookups of unread events; an age that is not known by then is omitted.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);

/// The figures of a topic, or of all topics without series of their own.
#[derive(Debug, Default)]
pub(super) struct TopicFigures {
    pub(super) name: String,
    pub(super) sums: TopicCounters,
    pub(super) subscriptions: u64,
    pub(super) full: u64,
}

/// The figures of an event subscription, or of a topic's event subscriptions without series of
/// their own.
#[derive(Debug)]
pub(super) struct NamedSubscription {
    pub(super) topic: String,
    pub(super) subscription: String,
    pub(super) figures: SubscriptionFigures,
}

/// All figures of one scrape.
#[derive(Debug)]
pub(super) struct Scrape {
    pub(super) now: Timestamp,
    pub(super) topics: Vec<TopicFigures>,
    pub(super) topics_there: u64,
    pub(super) subscriptions: Vec<NamedSubscription>,
    pub(super) journal: Option<(journal::JournalState, journal::figures::JournalFigures)>,
    pub(super) process: ProcessFigures,
}

/// A scrape whose ages are not looked up yet.
pub(super) struct ScrapedSubscription {
    scrape: Scrape,
    /// Index in `scrape.subscriptions`, and the oldest unread event to look up for it.
    unread: Vec<(usize, Arc<TopicHandle>, Seq)>,
}

/// The oldest unread event of each topic in a rest, and the largest backlog of one of the topic's
/// event subscriptions.
#[derive(Default)]
struct UnreadOfRest(BTreeMap<PartitionId, (u64, Arc<TopicHandle>, Seq)>);

impl Exposition {
    /// Collects everything but ages. Blocks: it reads the dead-letter totals and RocksDB's
    /// properties.
    ///
    /// It visits the subscriptions twice. What it keeps of one without series of its own is its
    /// activity; its figures are added to those of a rest at once.
    pub(super) fn find_scraped(&self, registry: &Registry, now: Timestamp) -> ScrapedSubscription {
        let topics = registry.list_topics();
        // Read before the cursors: see `SubscriptionFigures::from_census`.
        let dead_letters = self.dead_letters();
        let none = DeadLetterTotals::default();
        let mut selection = self
            .selection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let all_activities = list_activities(&topics);
        let partitions: Vec<PartitionId> = topics.iter().map(|topic| topic.partition()).collect();
        selection.choose_series(&all_activities, &partitions, self.bounds, now);

        let names: HashMap<PartitionId, String> = topics
            .iter()
            .map(|topic| (topic.partition(), topic.record().key()))
            .collect();
        let label = |partition: PartitionId| match names.get(&partition)? {
            name if selection.is_topic_named(partition) => Some(name.clone()),
            _ => Some(OTHER.to_owned()),
        };
        let mut named = Vec::new();
        let mut rests = BTreeMap::<String, (SubscriptionFigures, UnreadOfRest)>::new();
        let mut unread = Vec::new();
        for topic in &topics {
            let partition = topic.partition();
            let topic_label = label(partition).unwrap_or_default();
            topic.visit_subscriptions(|counted| {
                let key = SubscriptionKey {
                    partition,
                    subscription: counted.number,
                };
                let dead_letters = dead_letters
                    .get(&DeadLetterTotals::name(key))
                    .unwrap_or(&none);
                let first = counted.unread;
                let backlog = counted.backlog;
                if selection.is_named(key) {
                    unread.extend(first.map(|seq| (named.len(), Arc::clone(topic), seq)));
                    let topic = topic_label.clone();
                    let subscription = counted.record.key();
                    let figures = SubscriptionFigures::from_census(counted, dead_letters);
                    named.push((
                        key,
                        NamedSubscription {
                            topic,
                            subscription,
                            figures,
                        },
                    ));
                } else {
                    let figures = SubscriptionFigures::from_census(counted, dead_letters);
                    let (rest, rest_unread) = match rests.get_mut(&topic_label) {
                        Some(rest) => rest,
                        None => rests.entry(topic_label.clone()).or_default(),
                    };
                    rest.add(&figures);
                    if let Some(seq) = first {
                        rest_unread.add(topic, seq, backlog);
                    }
                }
            });
        }
        let labels: HashMap<PartitionId, String> = names
            .keys()
            .filter_map(|partition| Some((*partition, label(*partition)?)))
            .collect();
        let by_subscription: Vec<(SubscriptionKey, &SubscriptionFigures)> = named
            .iter()
            .map(|(key, named)| (*key, &named.figures))
            .collect();
        selection.report_named(&by_subscription, |key| labels.get(&key.partition).cloned());
        selection.keep_rests(|name| name == OTHER || names.values().any(|known| known == name));
        let mut subscriptions: Vec<NamedSubscription> =
            named.into_iter().map(|(_, named)| named).collect();
        for (topic, (mut figures, rest_unread)) in rests {
            selection.report_rest(&topic, &mut figures);
            unread.extend(
                rest_unread
                    .into_lookups()
                    .map(|(topic, seq)| (subscriptions.len(), topic, seq)),
            );
            subscriptions.push(NamedSubscription {
                topic,
                subscription: OTHER.to_owned(),
                figures,
            });
        }
        let mut by_topic: BTreeMap<String, TopicFigures> = BTreeMap::new();
        for topic in &topics {
            let name = labels.get(&topic.partition()).cloned().unwrap_or_default();
            let of = by_topic
                .entry(name.clone())
                .or_insert_with(|| TopicFigures {
                    name,
                    ..TopicFigures::default()
                });
            of.sums
                .merge_with(&TopicCounters::from_topic(topic), u64::saturating_add);
            of.subscriptions += topic.subscription_count() as u64;
            of.full += u64::from(
                topic
                    .crowded_partition()
                    .is_some_and(|CrowdedPartition { is_full, .. }| is_full),
            );
        }
        if let Some(rest) = by_topic.get_mut(OTHER) {
            selection.report_topics_rest(&mut rest.sums);
        }
        let scrape = Scrape {
            now,
            topics: by_topic.into_values().collect(),
            topics_there: topics.len() as u64,
            subscriptions,
            journal: self
                .sources
                .journal
                .as_ref()
                .map(|journal| (journal.writer_state(), journal.read_figures())),
            process: ProcessFigures::read(),
        };
        ScrapedSubscription { scrape, unread }
    }

    /// The dead-letter totals of all event subscriptions that have some, by the names of their
    /// records.
    fn dead_letters(&self) -> HashMap<String, DeadLetterTotals> {
        let Some(journal) = &self.sources.journal else {
            return HashMap::new();
        };
        let mut totals = HashMap::new();
        for record in journal.reader_pool().all_meta(MetaKind::DeadLetters) {
            match record {
                Ok((name, value)) => {
                    totals.extend(DeadLetterTotals::decode(&value).map(|total| (name, total)));
                }
                Err(error) => {
                    tracing::warn!(%error, "dead-letter totals cannot be read");
                    return HashMap::new();
                }
            }
        }
        totals
    }
}

impl ScrapedSubscription {
    /// Looks up the ages in the log.
    pub(super) async fn with_ages(self) -> Scrape {
        let Self { mut scrape, unread } = self;
        let lookups = async {
            for (index, topic, seq) in unread {
                // Damage is reported by the reads that need the event.
                let appended = topic.appended_at(seq).await.ok().flatten();
                let since = &mut scrape.subscriptions[index].figures.state.unread_since;
                *since = since.iter().copied().chain(appended).min();
            }
        };
        tokio::time::timeout(LOOKUP_TIMEOUT, lookups).await.ok();
        scrape
    }
}

/// Activity of each event subscription: matched events, backlog and requests.
fn list_activities(topics: &[Arc<TopicHandle>]) -> Vec<Activity> {
    let mut activities = Vec::new();
    for topic in topics {
        topic.visit_cursors(
            |subscription,
             Cursor {
                 counters, replayed, ..
             },
             backlog| {
                let key = SubscriptionKey {
                    partition: topic.partition(),
                    subscription,
                };
                let total = counters.matched + backlog + counters.requests + replayed.requests;
                activities.push(Activity { key, total });
            },
        );
    }
    activities
}

impl UnreadOfRest {
    fn add(&mut self, topic: &Arc<TopicHandle>, seq: Seq, backlog: u64) {
        let (largest, _, first) = self
            .0
            .entry(topic.partition())
            .or_insert_with(|| (0, Arc::clone(topic), seq));
        (*largest, *first) = ((*largest).max(backlog), (*first).min(seq));
    }

    /// The events to look up.
    fn into_lookups(self) -> impl Iterator<Item = (Arc<TopicHandle>, Seq)> {
        let mut firsts: Vec<_> = self.0.into_values().collect();
        firsts.sort_unstable_by_key(|(backlog, ..)| std::cmp::Reverse(*backlog));
        firsts
            .into_iter()
            .take(LOOKUPS_MAX)
            .map(|(_, topic, seq)| (topic, seq))
    }
}

/// The series limits, as `gridhook_metrics_named_limit` shows them.
pub(super) fn bounds_of(bounds: SeriesLimits) -> [(&'static str, u64); 3] {
    [
        ("subscriptions", bounds.subscriptions as u64),
        (
            "subscriptions_per_topic",
            bounds.subscriptions_per_topic as u64,
        ),
        ("topics", bounds.topics as u64),
    ]
}

impl TopicFigures {
    /// Restarts of the actor by the end of the previous incarnation.
    pub(super) fn restarts_by_end(&self) -> [(&'static str, u64); 4] {
        by_end(self.sums.ends)
    }
}
