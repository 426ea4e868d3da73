//! Reads for tracing an event and for a subscription's history: ledger lines, response excerpts,
//! filter versions, and searches for event ids.

use std::{
    cell::Cell,
    collections::BTreeMap,
    ops::{ControlFlow, Range},
};

use bytes::Bytes;

use super::ReaderPool;
use crate::PendingResult;
use gridhook_event::{Event, PartitionId, Seq, SubscriptionId, SubscriptionKey, Timestamp};
use gridhook_policy::record::{Excerpt, ExcerptKey, LedgerEntry, LedgerEvent, LedgerLine};
use gridhook_store::{
    Family, Store, StoreError, id_filter,
    keys::{self, MetaKind},
    ledger::{self, LedgerPage},
    log::EventFinder,
    records::{FloorRecord, IdDigest, PublishedId, StoredRecord},
};

/// The maximum number of lines that one call reads: about 10 ms.
const LOOKS: usize = 16_384;

impl ReaderPool {
    /// Reads the ledger lines that cover an event, from `from` on, or a part of them.
    pub fn lines_of(
        &self,
        subscription_key: SubscriptionKey,
        seq: Seq,
        from: Option<Vec<u8>>,
    ) -> PendingResult<LedgerPage> {
        self.run(move |store| {
            Ok(ledger::read_event_lines(
                store,
                subscription_key,
                seq,
                from,
                LOOKS,
            )?)
        })
    }

    /// Reads the lines in a range of keys ([`keys::ledger_between`]) for which `wanted` returns
    /// true, up to `max`, or a part of them.
    pub fn lines_between(
        &self,
        range: Range<Vec<u8>>,
        max: usize,
        wanted: impl Fn(&LedgerEntry) -> bool + Send + 'static,
    ) -> PendingResult<LedgerPage> {
        self.run(move |store| Ok(ledger::read_lines(store, &range, max, LOOKS, wanted)?))
    }

    /// Reads the lines of many subscriptions in a range of time for which `wanted` returns true, in
    /// no order. [`None`] if the range has too many lines: the caller asks for a shorter one.
    pub fn lines_of_all(
        &self,
        subscriptions: Vec<SubscriptionKey>,
        period: Range<Timestamp>,
        wanted: impl Fn(&LedgerEntry) -> bool + Send + 'static,
    ) -> PendingResult<Option<Vec<(SubscriptionKey, LedgerLine)>>> {
        self.run(move |store| {
            let looks = Cell::new(0);
            let is_wanted = |entry: &LedgerEntry| {
                looks.set(looks.get() + 1);
                wanted(entry)
            };
            let mut lines = Vec::new();
            for key in subscriptions {
                let range = keys::ledger_between(key, period.start, period.end);
                // The last record of the subscription before may have exceeded the limit.
                let left = LOOKS.saturating_sub(looks.get());
                let page = ledger::read_lines(store, &range, usize::MAX, left, is_wanted)?;
                lines.extend(page.lines.into_iter().map(|line| (key, line)));
                if page.next.is_some() {
                    return Ok(None);
                }
            }
            Ok(Some(lines))
        })
    }

    /// Reads the time of a subscription's oldest line.
    pub fn oldest_line(
        &self,
        subscription_key: SubscriptionKey,
    ) -> PendingResult<Option<Timestamp>> {
        self.run(move |store| Ok(ledger::oldest_line_time(store, subscription_key)?))
    }

    /// Reads the filter version of the oldest line about filtered-out events; [`None`] if that line
    /// is not among the first lines.
    pub fn oldest_filter(&self, subscription_key: SubscriptionKey) -> PendingResult<Option<u32>> {
        let range = keys::ledger_between(subscription_key, Timestamp::default(), Timestamp::NEVER);
        self.run(move |store| {
            let page = ledger::read_lines(store, &range, 1, LOOKS, |entry| {
                matches!(entry.what, LedgerEvent::Filtered { .. })
            })?;
            Ok(page.lines.first().and_then(|line| match line.entry.what {
                LedgerEvent::Filtered { version } => Some(version),
                _ => None,
            }))
        })
    }

    /// Reads response excerpts that are still stored.
    pub fn read_excerpts(
        &self,
        subscription_key: SubscriptionKey,
        wanted: Vec<ExcerptKey>,
    ) -> PendingResult<BTreeMap<ExcerptKey, Excerpt>> {
        self.run(move |store| {
            let mut excerpts = BTreeMap::new();
            for key in wanted {
                if let Some(value) =
                    store.get(Family::Excerpt, &keys::excerpt(subscription_key, key))?
                {
                    excerpts.insert(key, Excerpt::decode(&value).map_err(StoreError::damaged)?);
                }
            }
            Ok(excerpts)
        })
    }

    /// Reads the event at a sequence, from the log or from the carried events; [`None`] if the
    /// store no longer has it.
    pub fn read_event(&self, partition: PartitionId, seq: Seq) -> PendingResult<Option<Event>> {
        self.run(move |store| Ok(EventFinder::new(store, partition).find_event(seq)?))
    }

    /// Reads the beginning of the log of `partition`; [`None`] if the partition does not exist.
    pub fn read_floor(&self, partition: PartitionId) -> PendingResult<Option<Seq>> {
        self.run(move |store| {
            let record = store.get(Family::Meta, &keys::floor_key(partition))?;
            Ok(record
                .map(|record| FloorRecord::decode(&record))
                .transpose()
                .map_err(StoreError::damaged)?
                .map(|record| record.floor))
        })
    }

    /// Reads the record of an id that was published to a topic with duplicate detection.
    pub fn published_id(
        &self,
        partition: PartitionId,
        digest: IdDigest,
    ) -> PendingResult<Option<PublishedId>> {
        self.run(move |store| {
            let record = store.get(Family::PublishedIds, &keys::published_id(partition, digest))?;
            Ok(record
                .map(|record| PublishedId::decode(&record))
                .transpose()
                .map_err(StoreError::damaged)?)
        })
    }

    /// Searches the log of `partition` for events with this id, from `from` to `end`, or to the
    /// limits of one search.
    pub fn find_id(
        &self,
        partition: PartitionId,
        id: String,
        from: Seq,
        end: Seq,
    ) -> PendingResult<id_filter::FoundIds> {
        self.run(move |store| Ok(id_filter::find_id(store, partition, &id, from, end)?))
    }

    /// Like [`ReaderPool::find_id`], among the events that are carried below `floor`.
    pub fn find_carried_id(
        &self,
        partition: PartitionId,
        id: String,
        from: Seq,
        floor: Seq,
    ) -> PendingResult<id_filter::FoundIds> {
        self.run(move |store| Ok(id_filter::find_carried(store, partition, &id, from, floor)?))
    }

    /// Reads the control plane's records of a kind whose names start with `prefix`.
    pub fn meta_from(&self, kind: MetaKind, prefix: String) -> PendingResult<Vec<(String, Bytes)>> {
        self.run(move |store| {
            let mut entries = Vec::new();
            scan_meta(store, kind, &prefix, &prefix, |name, value| {
                entries.push((name.to_owned(), Bytes::copy_from_slice(value)));
                ControlFlow::Continue(())
            })?;
            Ok(entries)
        })
    }

    /// Reads the names of all filter versions, also those of deleted subscriptions, without filling
    /// the block cache.
    pub fn filter_names(&self) -> PendingResult<Vec<String>> {
        self.run(move |store| {
            let range = keys::meta_of(MetaKind::Filter);
            let mut names = Vec::new();
            store.scan_uncached(
                Family::Meta,
                &range.start,
                &range.end,
                &mut |key, _value| {
                    let name = keys::parse_meta(key).map(|(_, name)| name);
                    names.extend(name.map(|name| String::from_utf8_lossy(name).into_owned()));
                    ControlFlow::Continue(())
                },
            )?;
            Ok(names)
        })
    }

    /// Reads the filter versions of the next `max` subscriptions of a partition, those behind
    /// `behind`. Deleted ones are included.
    pub fn next_filters(
        &self,
        partition: PartitionId,
        behind: Option<SubscriptionId>,
        max: usize,
    ) -> PendingResult<Vec<(String, Bytes)>> {
        self.run(move |store| {
            let mut entries = Vec::new();
            // Behind the last number there are none.
            let Some(first) = behind.map_or(Some(0), |behind| behind.0.checked_add(1)) else {
                return Ok(entries);
            };
            let from = keys::filters_of(SubscriptionKey {
                partition,
                subscription: SubscriptionId(first),
            });
            let mut count = 0;
            let mut last = None;
            scan_meta(
                store,
                MetaKind::Filter,
                &from,
                &keys::filters_of_partition(partition),
                |name, value| {
                    let number = keys::parse_filter_name(name).map(|(key, _)| key.subscription);
                    if number.is_some() && number != last {
                        if count == max {
                            return ControlFlow::Break(());
                        }
                        count += 1;
                        last = number;
                    }
                    entries.push((name.to_owned(), Bytes::copy_from_slice(value)));
                    ControlFlow::Continue(())
                },
            )?;
            Ok(entries)
        })
    }
}

/// Visits the records whose names start with `prefix`, from the name `from`.
fn scan_meta(
    store: &dyn Store,
    kind: MetaKind,
    from: &str,
    prefix: &str,
    mut visit: impl FnMut(&str, &[u8]) -> ControlFlow<()>,
) -> Result<(), StoreError> {
    let begin = keys::meta_key(kind, from.as_bytes());
    store.scan(
        Family::Meta,
        &begin,
        &keys::meta_of(kind).end,
        &mut |key, value| {
            let name = keys::parse_meta(key).map(|(_, name)| String::from_utf8_lossy(name));
            match name.filter(|name| name.starts_with(prefix)) {
                Some(name) => visit(&name, value),
                None => ControlFlow::Break(()),
            }
        },
    )
}
