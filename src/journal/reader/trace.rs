//! What the store knows of an event that somebody traces, and of a subscription's time: lines of the ledger, what endpoints
//! said, versions of filters, and where an id is.

use std::{collections::BTreeMap, ops::ControlFlow};

use bytes::Bytes;

use super::ReaderPool;
use crate::{
    event::{Event, PartitionId, Seq, SubscriptionKey, Timestamp},
    journal::PendingResult,
    policy::record::{Excerpt, ExcerptKey, LedgerEntry, LedgerEvent},
    store::{
        Family, StoreError, id_filter,
        keys::{self, MetaKind},
        ledger::{self, LedgerPage},
        log::EventFinder,
        records::{FloorRecord, StoredRecord},
    },
};

/// So many lines are looked at in one go: some 10 ms.
const LOOKS: usize = 16_384;

impl ReaderPool {
    /// The lines of the ledger that speak of an event, from `from` on, or a part of them.
    pub fn lines_of(
        &self,
        subscription_key: SubscriptionKey,
        seq: Seq,
        from: Option<Vec<u8>>,
    ) -> PendingResult<LedgerPage> {
        self.run(move |store| Ok(ledger::of_event(store, subscription_key, seq, from, LOOKS)?))
    }

    /// The lines of a subscription in a range of keys ([`keys::ledger_between`]) that are `wanted`, up to `max`, or a part of
    /// them.
    pub fn lines_between(
        &self,
        range: std::ops::Range<Vec<u8>>,
        max: usize,
        wanted: impl Fn(&LedgerEntry) -> bool + Send + 'static,
    ) -> PendingResult<LedgerPage> {
        self.run(move |store| Ok(ledger::between(store, &range, max, LOOKS, wanted)?))
    }

    /// When the oldest line of a subscription was written that is still there.
    pub fn oldest_line(&self, subscription_key: SubscriptionKey) -> PendingResult<Option<Timestamp>> {
        self.run(move |store| Ok(ledger::oldest(store, subscription_key)?))
    }

    /// Which version of a filter the oldest line speaks of that says that one stopped events; [`None`] also where that is not
    /// among the first lines.
    pub fn oldest_filter(&self, subscription_key: SubscriptionKey) -> PendingResult<Option<u32>> {
        let range = keys::ledger_between(subscription_key, Timestamp::default(), Timestamp::NEVER);
        self.run(move |store| {
            let page =
                ledger::between(store, &range, 1, LOOKS, |entry| matches!(entry.what, LedgerEvent::Filtered { .. }))?;
            Ok(page.lines.first().and_then(|line| match line.entry.what {
                LedgerEvent::Filtered { version } => Some(version),
                _ => None,
            }))
        })
    }

    /// What an endpoint said, as far as it is still there.
    pub fn excerpts(
        &self,
        subscription_key: SubscriptionKey,
        wanted: Vec<ExcerptKey>,
    ) -> PendingResult<BTreeMap<ExcerptKey, Excerpt>> {
        self.run(move |store| {
            let mut found = BTreeMap::new();
            for key in wanted {
                if let Some(value) = store.get(Family::Excerpt, &keys::excerpt(subscription_key, key))? {
                    found.insert(key, Excerpt::decode(&value).map_err(StoreError::damaged)?);
                }
            }
            Ok(found)
        })
    }

    /// The event at a place of the log, or held below it; [`None`] where the store does not have it any more.
    pub fn event(&self, partition: PartitionId, seq: Seq) -> PendingResult<Option<Event>> {
        self.run(move |store| Ok(EventFinder::new(store, partition).find(seq)?))
    }

    /// Where the log of `partition` begins; [`None`] where there is none.
    pub fn floor(&self, partition: PartitionId) -> PendingResult<Option<Seq>> {
        self.run(move |store| {
            let record = store.get(Family::Meta, &keys::floor(partition))?;
            Ok(record
                .map(|record| FloorRecord::decode(&record))
                .transpose()
                .map_err(StoreError::damaged)?
                .map(|record| record.floor))
        })
    }

    /// Where in the log of `partition` events with this id are, from `from` up to `end` or as far as one look goes.
    pub fn find_id(
        &self,
        partition: PartitionId,
        id: String,
        from: Seq,
        end: Seq,
    ) -> PendingResult<id_filter::FoundIds> {
        self.run(move |store| Ok(id_filter::find(store, partition, &id, from, end)?))
    }

    /// The same among the events that are held below `floor`.
    pub fn find_held_id(
        &self,
        partition: PartitionId,
        id: String,
        from: Seq,
        floor: Seq,
    ) -> PendingResult<id_filter::FoundIds> {
        self.run(move |store| Ok(id_filter::find_held(store, partition, &id, from, floor)?))
    }

    /// The records of the control plane of a kind whose names begin so.
    pub fn meta_from(&self, kind: MetaKind, prefix: String) -> PendingResult<Vec<(String, Bytes)>> {
        self.run(move |store| {
            let mut found = Vec::new();
            let begin = keys::meta(kind, prefix.as_bytes());
            store.scan(Family::Meta, &begin, &keys::meta_of(kind).end, &mut |key, value| {
                let name = keys::parse_meta(key).map(|(_, name)| String::from_utf8_lossy(name).into_owned());
                match name.filter(|name| name.starts_with(&prefix)) {
                    Some(name) => {
                        found.push((name, Bytes::copy_from_slice(value)));
                        ControlFlow::Continue(())
                    }
                    None => ControlFlow::Break(()),
                }
            })?;
            Ok(found)
        })
    }
}
