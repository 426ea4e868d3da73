//! Finds an event in a topic's log and collects its delivery history for all current and deleted
//! subscriptions.
//!
//! An event is looked up by its sequence or searched by its id: first among the events that are
//! kept from before the beginning of the log, then block by block in the log. The id filters
//! exclude most blocks. A response covers a maximum of blocks and of subscriptions, and has a token
//! to continue.

use std::{collections::BTreeMap, fmt, ops::Range, str::FromStr, sync::Arc};

use super::{Registry, SubscriptionHandle, TopicHandle};
use crate::{
    control::filter_version::{self, Versions},
    insight::{
        event_finder::EventSelector,
        trace::{self, SubscriptionTrace, TraceQuery},
    },
};
use gridhook_event::{Event, Seq, SubscriptionId, SubscriptionKey, Timestamp};
use gridhook_journal as journal;
use gridhook_policy::record::{Excerpt, ExcerptKey, LedgerEntry, LedgerLine};
use gridhook_store::{
    keys,
    records::{IdDigest, PublishedId},
};

/// Maximum searches for a response: about 100 million events, or 256 MiB of events that a filter
/// did not exclude.
const LOOKUPS_MAX: usize = 32;

/// The position at which a trace continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceToken {
    /// The event, or the first one found behind it.
    pub seq: Seq,
    /// The last subscription of the previous response.
    pub behind: Option<SubscriptionId>,
}

impl fmt::Display for TraceToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.behind {
            Some(behind) => write!(f, "{}.{}", self.seq.0, behind.0),
            None => write!(f, "{}", self.seq.0),
        }
    }
}

impl FromStr for TraceToken {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(match text.split_once('.') {
            Some((seq, behind)) => Self {
                seq: Seq(seq.parse()?),
                behind: Some(SubscriptionId(behind.parse()?)),
            },
            None => Self {
                seq: Seq(text.parse()?),
                behind: None,
            },
        })
    }
}

/// A page of a trace.
#[derive(Clone, Debug, Default)]
pub struct TraceResult {
    /// The events, in order. An id may have been published more than once.
    pub occurrences: Vec<EventOccurrence>,
    /// The beginning and the end of the log.
    pub log: Range<Seq>,
    /// The position at which to continue, if there is more.
    pub next: Option<TraceToken>,
}

/// An event and its deliveries.
#[derive(Clone, Debug)]
pub struct EventOccurrence {
    pub seq: Seq,
    /// The event; [`None`] if the store no longer has it.
    pub event: Option<Event>,
    /// The record of the event's id, if the topic had duplicate detection and the store still has
    /// the record.
    pub published: Option<PublishedId>,
    /// The event's delivery history for each subscription.
    pub subscriptions: Vec<SubscriptionTrace>,
}

/// A subscription of a topic.
struct Subscriber {
    number: SubscriptionId,
    /// The handle; [`None`] if the subscription was deleted.
    handle: Option<Arc<SubscriptionHandle>>,
    /// The versions of the subscription's filter.
    versions: Versions,
}

/// The events with an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdMatches {
    pub sequences: Vec<Seq>,
    /// The lookups that were made.
    pub lookups: usize,
    /// Whether the whole log was searched, and not a part because of the limit of lookups.
    pub is_whole: bool,
}

impl TopicHandle {
    /// Traces an event, for at most `max` subscriptions.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn trace_event(
        &self,
        wanted: &EventSelector,
        from: Option<TraceToken>,
        max: usize,
        now: Timestamp,
    ) -> Result<TraceResult, journal::Error> {
        let reads = self.journal.reader_pool();
        let end = self.log_end().ok_or(journal::Error::Unknown)?;
        let floor = reads
            .read_floor(self.partition())
            .await?
            .ok_or(journal::Error::Unknown)?;
        let mut traces = TraceResult {
            occurrences: Vec::new(),
            log: floor..end,
            next: None,
        };
        let mut left = max;
        let mut token = from.unwrap_or(TraceToken {
            seq: Seq::FIRST,
            behind: None,
        });
        for _ in 0..LOOKUPS_MAX {
            let (seqs, upto) = self.search_section(wanted, token.seq, floor, end).await?;
            for seq in seqs {
                let behind = token.behind.filter(|_| seq == token.seq);
                let (occurrence, more) = self.event_history(seq, behind, left, end, now).await?;
                left -= occurrence.subscriptions.len();
                let last = occurrence
                    .subscriptions
                    .last()
                    .map(|traced| traced.subscription_key.subscription);
                traces.occurrences.push(occurrence);
                if more {
                    traces.next = Some(TraceToken {
                        seq,
                        behind: last.or(behind),
                    });
                    return Ok(traces);
                }
            }
            let Some(upto) = upto else { return Ok(traces) };
            token = TraceToken {
                seq: upto,
                behind: None,
            };
        }
        traces.next = Some(token);
        Ok(traces)
    }

    /// The sequences of the events with an id, with at most this number of lookups.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn find_event_id(
        &self,
        id: &str,
        lookups_max: usize,
    ) -> Result<IdMatches, journal::Error> {
        let Range { start: floor, end } = self.log_range().await?;
        let selector = EventSelector::Id(id.into());
        let mut matches = IdMatches {
            sequences: Vec::new(),
            lookups: 0,
            is_whole: false,
        };
        let mut from = Seq::FIRST;
        while matches.lookups < lookups_max.min(LOOKUPS_MAX) {
            let (sequences, upto) = self.search_section(&selector, from, floor, end).await?;
            matches.sequences.extend(sequences);
            matches.lookups += 1;
            let Some(upto) = upto else {
                matches.is_whole = true;
                break;
            };
            from = upto;
        }
        Ok(matches)
    }

    /// Searches one section of the log from `from`. Returns the events that were found, and the
    /// position of the next section.
    async fn search_section(
        &self,
        wanted: &EventSelector,
        from: Seq,
        floor: Seq,
        end: Seq,
    ) -> Result<(Vec<Seq>, Option<Seq>), journal::Error> {
        let id = match wanted {
            EventSelector::Seq(seq) => return Ok((vec![*seq], None)),
            EventSelector::Id(id) => id,
        };
        let reads = self.journal.reader_pool();
        let ids = if from < floor {
            reads
                .find_carried_id(self.partition(), id.clone(), from, floor)
                .await?
        } else {
            reads
                .find_id(self.partition(), id.clone(), from, end)
                .await?
        };
        Ok((ids.seqs, Some(ids.upto).filter(|upto| *upto < end)))
    }

    async fn event_history(
        &self,
        seq: Seq,
        mut behind: Option<SubscriptionId>,
        max: usize,
        end: Seq,
        now: Timestamp,
    ) -> Result<(EventOccurrence, bool), journal::Error> {
        let reads = self.journal.reader_pool();
        let event = reads.read_event(self.partition(), seq).await?;
        let publication = match &event {
            Some(event) => {
                reads
                    .published_id(self.partition(), IdDigest::from_event(event))
                    .await?
            }
            None => None,
        };
        // A later event may have the same id.
        let publication = publication.filter(|publication| publication.seq == seq);
        let mut subscriptions = Vec::new();
        let has_more = 'all: loop {
            // The last one is read only to find whether there is another page.
            let (subscribers, next) = self
                .next_subscribers(behind, max - subscriptions.len() + 1)
                .await?;
            for Subscriber {
                number,
                handle,
                versions,
            } in &subscribers
            {
                if subscriptions.len() == max {
                    break 'all true;
                }
                let subscription_key = SubscriptionKey {
                    partition: self.partition(),
                    subscription: *number,
                };
                let state = handle.as_ref().map(|handle| &*handle.shared);
                let query = TraceQuery {
                    subscription_key,
                    shared: state,
                    versions,
                    seq,
                    event: event.as_ref(),
                    end,
                    now,
                };
                let event_trace = trace::trace_subscription(reads, query).await?;
                if !trace::is_nothing(&event_trace) {
                    subscriptions.push(event_trace);
                }
            }
            if next.is_none() {
                break false;
            }
            behind = next;
        };
        let occurrence = EventOccurrence {
            seq,
            event,
            published: publication,
            subscriptions,
        };
        Ok((occurrence, has_more))
    }

    /// The subscriptions behind `behind`: the next `max` that have a filter version, deleted ones
    /// included, and the current ones up to the last of these. Also where the ones after them
    /// begin, if there may be more.
    async fn next_subscribers(
        &self,
        behind: Option<SubscriptionId>,
        max: usize,
    ) -> Result<(Vec<Subscriber>, Option<SubscriptionId>), journal::Error> {
        let filters =
            filter_version::next_version(&self.journal, self.partition(), behind, max).await?;
        let last = filters
            .keys()
            .next_back()
            .map(|key| key.subscription)
            .filter(|_| filters.len() == max);
        let mut subscribers: BTreeMap<SubscriptionId, Subscriber> = BTreeMap::new();
        for (SubscriptionKey { subscription, .. }, versions) in filters {
            let subscriber = Subscriber {
                number: subscription,
                handle: None,
                versions,
            };
            subscribers.insert(subscription, subscriber);
        }
        for handle in self.list_children() {
            let number = handle.number();
            if behind.is_none_or(|behind| number > behind) && last.is_none_or(|last| number <= last)
            {
                let without_version = Subscriber {
                    number,
                    handle: None,
                    versions: Versions::new(),
                };
                subscribers.entry(number).or_insert(without_version).handle = Some(handle);
            }
        }
        Ok((subscribers.into_values().collect(), last))
    }
}

/// A page of a subscription's ledger.
#[derive(Clone, Debug, Default)]
pub struct LedgerPeriod {
    /// The lines, in the order that was asked for.
    pub lines: Vec<LedgerLine>,
    /// Excerpts of the endpoint's responses.
    pub excerpts: BTreeMap<ExcerptKey, Excerpt>,
    /// The time of the oldest stored line.
    pub oldest: Option<Timestamp>,
    /// The position at which to continue, if there may be more.
    pub next: Option<Vec<u8>>,
}

impl TopicHandle {
    /// A page of a subscription's ledger: the `wanted` lines of `period`, beginning at `cursor`,
    /// `max` at most.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn read_ledger(
        &self,
        subscription: SubscriptionId,
        period: Range<Timestamp>,
        cursor: Option<Vec<u8>>,
        max: usize,
        wanted: impl Fn(&LedgerEntry) -> bool + Clone + Send + 'static,
    ) -> Result<LedgerPeriod, journal::Error> {
        let reads = self.journal.reader_pool();
        let subscription_key = SubscriptionKey {
            partition: self.partition(),
            subscription,
        };
        let mut range = keys::ledger_between(subscription_key, period.start, period.end);
        // A cursor outside this ledger is ignored.
        range.start = cursor.map_or(range.start.clone(), |cursor| cursor.max(range.start));
        let mut period_lines = LedgerPeriod::default();
        for _ in 0..LOOKUPS_MAX {
            let page = reads
                .lines_between(
                    range.clone(),
                    max - period_lines.lines.len(),
                    wanted.clone(),
                )
                .await?;
            period_lines.lines.extend(page.lines);
            period_lines.next = page.next;
            match &period_lines.next {
                Some(next) if period_lines.lines.len() < max => range.start.clone_from(next),
                Some(_) | None => break,
            }
        }
        let LedgerPeriod { lines, next, .. } = period_lines;
        self.with_excerpts(subscription, lines, next).await
    }

    /// Makes a page of these lines of a subscription's ledger, with their excerpts.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn with_excerpts(
        &self,
        subscription: SubscriptionId,
        lines: Vec<LedgerLine>,
        next: Option<Vec<u8>>,
    ) -> Result<LedgerPeriod, journal::Error> {
        let reads = self.journal.reader_pool();
        let subscription_key = SubscriptionKey {
            partition: self.partition(),
            subscription,
        };
        let keys = lines.iter().filter_map(LedgerLine::excerpt_key).collect();
        let excerpts = reads.read_excerpts(subscription_key, keys).await?;
        let oldest = reads.oldest_line(subscription_key).await?;
        Ok(LedgerPeriod {
            lines,
            excerpts,
            oldest,
            next,
        })
    }
}

/// Subscriptions whose lines are read in one go.
const SUBSCRIPTIONS: usize = 500;

impl Registry {
    /// Lines of many subscriptions in a period, in no order. [`None`] if it has too many lines.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn lines_of_all(
        &self,
        subscriptions: &[SubscriptionKey],
        period: Range<Timestamp>,
        wanted: impl Fn(&LedgerEntry) -> bool + Clone + Send + 'static,
    ) -> Result<Option<Vec<(SubscriptionKey, LedgerLine)>>, journal::Error> {
        let mut all = Vec::new();
        for some in subscriptions.chunks(SUBSCRIPTIONS) {
            match self
                .journal
                .reader_pool()
                .lines_of_all(some.to_vec(), period.clone(), wanted.clone())
                .await?
            {
                Some(lines) => all.extend(lines),
                None => return Ok(None),
            }
        }
        Ok(Some(all))
    }
}
