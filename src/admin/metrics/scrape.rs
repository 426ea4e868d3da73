//! Collects all figures at one moment from shared state, without a message to an actor.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use parking_lot::MutexGuard;

use super::{
    Exposition,
    figures::{CombineCounts, SubscriptionFigures, TopicCounters},
    process::ProcessFigures,
    series::{Activity, SeriesLimits, SeriesSelection},
};
use gridhook_dead_letter::totals::DeadLetterTotals;
use gridhook_engine::control::registry::{Registry, SubscriptionCensus, TopicHandle};
use gridhook_event::{PartitionId, Seq, SubscriptionKey, Timestamp};
use gridhook_journal as journal;
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
pub(super) struct PendingScrape {
    scrape: Scrape,
    lookups: Vec<AgeLookup>,
}

/// An event in the log whose age is that of an entry of `Scrape::subscriptions`.
struct AgeLookup {
    /// Index of the entry.
    index: usize,
    topic: Arc<TopicHandle>,
    sequence: Seq,
}

/// The figures of event subscriptions, by the series that show them.
#[derive(Default)]
struct SubscriptionSeries {
    named: Vec<(SubscriptionKey, NamedSubscription)>,
    /// The sums of the others, by the label of their topic.
    rests: BTreeMap<String, RestFigures>,
    /// Lookups for `named`.
    lookups: Vec<AgeLookup>,
}

#[derive(Default)]
struct RestFigures {
    sum: SubscriptionFigures,
    unread: UnreadOfRest,
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
    pub(super) fn collect_figures(&self, registry: &Registry, now: Timestamp) -> PendingScrape {
        let topics = registry.list_topics();
        // Before the cursors, see `SubscriptionFigures::from_census`.
        let dead_letters = self.read_dead_letter_totals();
        let mut selection = self.select_series(&topics, now);
        let labels = label_topics(&topics, &selection);
        let mut series = SubscriptionSeries::default();
        for topic in &topics {
            let label = &labels[&topic.partition()];
            series.add_topic(topic, label, &selection, &dead_letters);
        }
        let names: HashSet<String> = topics.iter().map(|topic| topic.record().key()).collect();
        series.record_named(&mut selection, &labels);
        selection.keep_rests(|name| name == OTHER || names.contains(name));
        let (subscriptions, lookups) = series.into_subscriptions(&mut selection);

        let mut topic_figures = sum_topics(&topics, &labels);
        if let Some(rest) = topic_figures.get_mut(OTHER) {
            selection.report_topics_rest(&mut rest.sums);
        }
        let journal = self.sources.journal.as_ref();
        let scrape = Scrape {
            now,
            topics: topic_figures.into_values().collect(),
            topics_there: topics.len() as u64,
            subscriptions,
            journal: journal.map(|journal| (journal.writer_state(), journal.read_figures())),
            process: ProcessFigures::read(),
        };
        PendingScrape { scrape, lookups }
    }

    /// Selects what has series of its own, here and in the history.
    pub(crate) fn select_series(
        &self,
        topics: &[Arc<TopicHandle>],
        now: Timestamp,
    ) -> MutexGuard<'_, SeriesSelection> {
        let activities = list_activities(topics);
        let partitions: Vec<PartitionId> = topics.iter().map(|topic| topic.partition()).collect();
        let mut selection = self.selection.lock();
        selection.choose_series(&activities, &partitions, self.bounds, now);
        selection
    }

    /// The dead-letter totals of all event subscriptions that have some, by the names of their
    /// records.
    fn read_dead_letter_totals(&self) -> HashMap<String, DeadLetterTotals> {
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

impl PendingScrape {
    /// Looks up the ages in the log.
    pub(super) async fn look_up_ages(self) -> Scrape {
        let Self {
            mut scrape,
            lookups,
        } = self;
        let look_up_all = async {
            for lookup in lookups {
                // Damage is reported by the reads that need the event.
                let published = lookup
                    .topic
                    .appended_at(lookup.sequence)
                    .await
                    .ok()
                    .flatten();
                let state = &mut scrape.subscriptions[lookup.index].figures.state;
                state.unread_since = state.unread_since.into_iter().chain(published).min();
            }
        };
        tokio::time::timeout(LOOKUP_TIMEOUT, look_up_all).await.ok();
        scrape
    }
}

impl SubscriptionSeries {
    /// Adds the event subscriptions of a topic.
    fn add_topic(
        &mut self,
        topic: &Arc<TopicHandle>,
        label: &str,
        selection: &SeriesSelection,
        dead_letters: &HashMap<String, DeadLetterTotals>,
    ) {
        let none = DeadLetterTotals::default();
        topic.visit_subscriptions(|census| {
            let key = SubscriptionKey {
                partition: topic.partition(),
                subscription: census.number,
            };
            let totals = dead_letters.get(&DeadLetterTotals::name(key));
            let totals = totals.unwrap_or(&none);
            if selection.is_named(key) {
                self.add_named(key, topic, label, census, totals);
            } else {
                self.add_to_rest(topic, label, census, totals);
            }
        });
    }

    fn add_named(
        &mut self,
        key: SubscriptionKey,
        topic: &Arc<TopicHandle>,
        label: &str,
        census: SubscriptionCensus<'_>,
        dead_letters: &DeadLetterTotals,
    ) {
        if let Some(sequence) = census.unread {
            self.lookups.push(AgeLookup {
                index: self.named.len(),
                topic: Arc::clone(topic),
                sequence,
            });
        }
        let named = NamedSubscription {
            topic: label.to_owned(),
            subscription: census.record.key(),
            figures: SubscriptionFigures::from_census(census, dead_letters),
        };
        self.named.push((key, named));
    }

    fn add_to_rest(
        &mut self,
        topic: &Arc<TopicHandle>,
        label: &str,
        census: SubscriptionCensus<'_>,
        dead_letters: &DeadLetterTotals,
    ) {
        // Without a copy of the label for each subscription.
        let rest = match self.rests.get_mut(label) {
            Some(rest) => rest,
            None => self.rests.entry(label.to_owned()).or_default(),
        };
        if let Some(sequence) = census.unread {
            rest.unread.add(topic, sequence, census.backlog);
        }
        let figures = SubscriptionFigures::from_census(census, dead_letters);
        rest.sum.add(figures);
    }

    /// Records the counters of those that are named now.
    fn record_named(&self, selection: &mut SeriesSelection, labels: &HashMap<PartitionId, String>) {
        let figures: Vec<(SubscriptionKey, &SubscriptionFigures)> = self
            .named
            .iter()
            .map(|(key, named)| (*key, &named.figures))
            .collect();
        selection.report_named(&figures, |key| labels.get(&key.partition).cloned());
    }

    /// The figures of each series, the rests with counters that never fall, and the ages to look
    /// up.
    fn into_subscriptions(
        self,
        selection: &mut SeriesSelection,
    ) -> (Vec<NamedSubscription>, Vec<AgeLookup>) {
        let mut subscriptions: Vec<NamedSubscription> =
            self.named.into_iter().map(|(_, named)| named).collect();
        let mut lookups = self.lookups;
        for (topic, RestFigures { mut sum, unread }) in self.rests {
            selection.report_rest(&topic, &mut sum);
            lookups.extend(unread.into_lookups(subscriptions.len()));
            subscriptions.push(NamedSubscription {
                topic,
                subscription: OTHER.to_owned(),
                figures: sum,
            });
        }
        (subscriptions, lookups)
    }
}

/// The label of each topic: its name if it has series of its own.
fn label_topics(
    topics: &[Arc<TopicHandle>],
    selection: &SeriesSelection,
) -> HashMap<PartitionId, String> {
    let mut labels = HashMap::with_capacity(topics.len());
    for topic in topics {
        let partition = topic.partition();
        let label = if selection.is_topic_named(partition) {
            topic.record().key()
        } else {
            OTHER.to_owned()
        };
        labels.insert(partition, label);
    }
    labels
}

/// The figures of topics, by label.
fn sum_topics(
    topics: &[Arc<TopicHandle>],
    labels: &HashMap<PartitionId, String>,
) -> BTreeMap<String, TopicFigures> {
    let mut figures_by_label = BTreeMap::new();
    for topic in topics {
        let name = labels[&topic.partition()].clone();
        let figures: &mut TopicFigures =
            figures_by_label
                .entry(name.clone())
                .or_insert_with(|| TopicFigures {
                    name,
                    ..TopicFigures::default()
                });
        let counters = TopicCounters::from_topic(topic);
        figures.sums.combine_with(&counters, u64::saturating_add);
        figures.subscriptions += topic.subscription_count() as u64;
        let crowded_partition = topic.crowded_partition();
        figures.full += u64::from(crowded_partition.is_some_and(|partition| partition.is_full));
    }
    figures_by_label
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
    fn add(&mut self, topic: &Arc<TopicHandle>, sequence: Seq, backlog: u64) {
        let (largest, _, oldest) = self
            .0
            .entry(topic.partition())
            .or_insert_with(|| (0, Arc::clone(topic), sequence));
        *largest = (*largest).max(backlog);
        *oldest = (*oldest).min(sequence);
    }

    /// The events to look up for the entry at `index`.
    fn into_lookups(self, index: usize) -> impl Iterator<Item = AgeLookup> {
        let mut topics: Vec<_> = self.0.into_values().collect();
        topics.sort_unstable_by_key(|(backlog, ..)| Reverse(*backlog));
        topics
            .into_iter()
            .take(LOOKUPS_MAX)
            .map(move |(_, topic, sequence)| AgeLookup {
                index,
                topic,
                sequence,
            })
    }
}

/// The series limits, as `gridhook_metrics_named_limit` shows them.
pub(super) fn list_limits(limits: SeriesLimits) -> [(&'static str, u64); 3] {
    [
        ("subscriptions", limits.subscriptions as u64),
        (
            "subscriptions_per_topic",
            limits.subscriptions_per_topic as u64,
        ),
        ("topics", limits.topics as u64),
    ]
}
