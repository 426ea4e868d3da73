//! What there is at one moment, gathered from where it stands: no actor is asked, and nobody waits for one.

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
use crate::{
    control::registry::{Registry, SubscriptionCensus, TopicHandle},
    dead_letter::totals::DeadLetterTotals,
    event::{PartitionId, Seq, SubscriptionKey, Timestamp},
    journal::{self, CrowdedPartition},
    store::keys::MetaKind,
};

/// What stands in a label for all those who have no series of their own. No name has an underscore.
pub(super) const OTHER: &str = "_other";

/// Of so many topics at the most it is looked up how old the oldest event is that a rest has not passed: of those with the
/// longest backlog.
const LOOKS_MAX: usize = 256;

/// And for no longer than this: what the store has not said by then is not told.
const LOOKS_WAIT: Duration = Duration::from_secs(2);

/// A topic, or the rest of them.
#[derive(Debug, Default)]
pub(super) struct TopicFigures {
    pub(super) name: String,
    pub(super) sums: TopicCounters,
    pub(super) subscriptions: u64,
    pub(super) full: u64,
}

/// A subscription, or the rest of a topic's.
#[derive(Debug)]
pub(super) struct NamedSubscription {
    pub(super) topic: String,
    pub(super) subscription: String,
    pub(super) figures: SubscriptionFigures,
}

/// All that is told.
#[derive(Debug)]
pub(super) struct Scrape {
    pub(super) now: Timestamp,
    pub(super) topics: Vec<TopicFigures>,
    pub(super) topics_there: u64,
    pub(super) subscriptions: Vec<NamedSubscription>,
    pub(super) journal: Option<(journal::JournalState, journal::figures::JournalFigures)>,
    pub(super) process: ProcessFigures,
}

/// What was found before it was looked up how old it is.
pub(super) struct ScrapedSubscription {
    scrape: Scrape,
    /// Whose oldest event is at which place: by the place of the figures.
    unread: Vec<(usize, Arc<TopicHandle>, Seq)>,
}

/// One subscription with what it needs to be told.
struct SubscriptionSource {
    who: SubscriptionKey,
    topic: Arc<TopicHandle>,
    counted: SubscriptionCensus,
    account: DeadLetterTotals,
}

impl Exposition {
    /// Everything but ages. Blocks: the accounts of dead letters are read, and RocksDB is asked.
    pub(super) fn find(&self, registry: &Registry, now: Timestamp) -> ScrapedSubscription {
        let topics = registry.topics();
        let all = self.all(&topics);
        let mut board = self.board.lock().unwrap_or_else(PoisonError::into_inner);
        let done: Vec<Activity> = all.iter().map(|one| Activity { who: one.who, total: total(&one.counted) }).collect();
        let partitions: Vec<PartitionId> = topics.iter().map(|topic| topic.partition()).collect();
        board.choose(&done, &partitions, self.bounds, now);

        let names: HashMap<PartitionId, String> =
            topics.iter().map(|topic| (topic.partition(), topic.record().key())).collect();
        let label = |partition: PartitionId| {
            let name = names.get(&partition)?;
            Some(if board.is_topic_named(partition) { name.clone() } else { OTHER.to_owned() })
        };
        let (mut named, mut rests, mut unread) =
            (Vec::new(), BTreeMap::<String, (SubscriptionFigures, Vec<_>)>::new(), Vec::new());
        for SubscriptionSource { who, topic, counted, account } in all {
            let figures = SubscriptionFigures::of(&counted, &account);
            let topic_label = label(who.partition).unwrap_or_default();
            if board.is_named(who) {
                unread.extend(counted.unread.map(|seq| (named.len(), topic, seq)));
                named
                    .push((who, NamedSubscription { topic: topic_label, subscription: counted.record.key(), figures }));
            } else {
                let (rest, places) =
                    rests.entry(topic_label).or_insert_with(|| (SubscriptionFigures::none(), Vec::new()));
                rest.add(&figures);
                places.extend(counted.unread.map(|seq| (topic, seq, counted.backlog)));
            }
        }
        let labels: HashMap<PartitionId, String> =
            names.keys().filter_map(|partition| Some((*partition, label(*partition)?))).collect();
        let told: Vec<(SubscriptionKey, &SubscriptionFigures)> =
            named.iter().map(|(who, named)| (*who, &named.figures)).collect();
        board.report_named(&told, |who| labels.get(&who.partition).cloned());
        board.keep_rests(|name| name == OTHER || names.values().any(|known| known == name));
        let mut subscriptions: Vec<NamedSubscription> = named.into_iter().map(|(_, named)| named).collect();
        for (topic, (mut figures, places)) in rests {
            board.report_rest(&topic, &mut figures);
            unread.extend(firsts(places).into_iter().map(|(topic, seq)| (subscriptions.len(), topic, seq)));
            subscriptions.push(NamedSubscription { topic, subscription: OTHER.to_owned(), figures });
        }
        let mut told: BTreeMap<String, TopicFigures> = BTreeMap::new();
        for topic in &topics {
            let name = labels.get(&topic.partition()).cloned().unwrap_or_default();
            let of = told.entry(name.clone()).or_insert_with(|| TopicFigures { name, ..TopicFigures::default() });
            of.sums.merge(&TopicCounters::of(topic), u64::saturating_add);
            of.subscriptions += topic.subscriptions().len() as u64;
            of.full += u64::from(topic.crowd().is_some_and(|CrowdedPartition { is_full, .. }| is_full));
        }
        if let Some(rest) = told.get_mut(OTHER) {
            board.report_topics_rest(&mut rest.sums);
        }
        let scrape = Scrape {
            now,
            topics: told.into_values().collect(),
            topics_there: topics.len() as u64,
            subscriptions,
            journal: self.sources.journal.as_ref().map(|journal| (journal.state(), journal.figures())),
            process: ProcessFigures::read(),
        };
        ScrapedSubscription { scrape, unread }
    }

    fn all(&self, topics: &[Arc<TopicHandle>]) -> Vec<SubscriptionSource> {
        let accounts = self.accounts();
        let mut all = Vec::new();
        for topic in topics {
            for counted in topic.census() {
                let who = SubscriptionKey { partition: topic.partition(), subscription: counted.number() };
                let account = accounts.get(&DeadLetterTotals::name(who)).cloned().unwrap_or_default();
                all.push(SubscriptionSource { who, topic: Arc::clone(topic), counted, account });
            }
        }
        all
    }

    /// The accounts of all who ever had dead letters, by the names of their records.
    fn accounts(&self) -> HashMap<String, DeadLetterTotals> {
        let Some(journal) = &self.sources.journal else { return HashMap::new() };
        let records = match journal.reads().all_meta(MetaKind::DeadLetters) {
            Ok(records) => records,
            Err(error) => {
                tracing::warn!(%error, "the accounts of dead letters cannot be read");
                return HashMap::new();
            }
        };
        let read = |(name, record): (String, bytes::Bytes)| Some((name, DeadLetterTotals::decode(&record).ok()?));
        records.into_iter().filter_map(read).collect()
    }
}

impl ScrapedSubscription {
    /// The same with ages, which the store has to be asked for.
    pub(super) async fn with_ages(self) -> Scrape {
        let Self { mut scrape, unread } = self;
        let asked = async {
            for (place, topic, seq) in unread {
                // What cannot be read is told where it is needed, and not here.
                let taken = topic.appended_at(seq).await.ok().flatten();
                let since = &mut scrape.subscriptions[place].figures.state.unread_since;
                *since = since.iter().copied().chain(taken).min();
            }
        };
        tokio::time::timeout(LOOKS_WAIT, asked).await.ok();
        scrape
    }
}

/// What somebody has done, and what waits for him.
fn total(counted: &SubscriptionCensus) -> u64 {
    let (counters, replayed) = (&counted.cursor.counters, &counted.cursor.replayed);
    counters.matched + counted.backlog + counters.requests + replayed.requests
}

/// The first of these places in each topic: in a log what is earlier is older.
fn firsts(places: Vec<(Arc<TopicHandle>, Seq, u64)>) -> Vec<(Arc<TopicHandle>, Seq)> {
    let mut firsts: BTreeMap<PartitionId, (u64, Arc<TopicHandle>, Seq)> = BTreeMap::new();
    for (topic, seq, backlog) in places {
        let first = firsts.entry(topic.partition()).or_insert((0, topic, seq));
        *first = (first.0.max(backlog), Arc::clone(&first.1), first.2.min(seq));
    }
    let mut firsts: Vec<_> = firsts.into_values().collect();
    firsts.sort_unstable_by_key(|(backlog, ..)| std::cmp::Reverse(*backlog));
    firsts.into_iter().take(LOOKS_MAX).map(|(_, topic, seq)| (topic, seq)).collect()
}

/// How many have series of their own, as the scrape itself tells it.
pub(super) fn bounds_of(bounds: SeriesLimits) -> [(&'static str, u64); 3] {
    [
        ("subscriptions", bounds.subscriptions as u64),
        ("subscriptions_per_topic", bounds.subscriptions_per_topic as u64),
        ("topics", bounds.topics as u64),
    ]
}

impl TopicFigures {
    /// How often its actor was built again, by how the life before had ended.
    pub(super) fn restarts(&self) -> [(&'static str, u64); 4] {
        by_end(self.sums.ends)
    }
}
