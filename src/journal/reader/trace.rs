//! What the store knows of an event that somebody traces, and of a subscription's time: lines of the ledger, what endpoints
//! said, versions of filters, and where an id is.

use std::{collections::BTreeMap, ops::ControlFlow};

use bytes::Bytes;

use super::{Reads, damaged};
use crate::{
    event::{Event, Obligor, PartitionId, Seq, Timestamp},
    journal::{
        Promise, ids,
        keys::{self, MetaKind},
        ledger::{self, Page},
        reader::Finder,
        records::{Floor, Record},
        store::Family,
    },
    policy::record::{Entry, Excerpt, ExcerptKey, What},
};

/// So many lines are looked at in one go: some 10 ms.
const LOOKS: usize = 16_384;

impl Reads {
    /// The lines of the ledger that speak of an event, from `from` on, or a part of them.
    pub fn lines_of(&self, obligor: Obligor, seq: Seq, from: Option<Vec<u8>>) -> Promise<Page> {
        self.ask(move |store| ledger::of_event(store, obligor, seq, from, LOOKS))
    }

    /// The lines of a subscription in a range of keys ([`keys::ledger_between`]) that are `wanted`, up to `max`, or a part of
    /// them.
    pub fn lines_between(
        &self,
        range: std::ops::Range<Vec<u8>>,
        max: usize,
        wanted: impl Fn(&Entry) -> bool + Send + 'static,
    ) -> Promise<Page> {
        self.ask(move |store| ledger::between(store, &range, max, LOOKS, wanted))
    }

    /// When the oldest line of a subscription was written that is still there.
    pub fn oldest_line(&self, obligor: Obligor) -> Promise<Option<Timestamp>> {
        self.ask(move |store| ledger::oldest(store, obligor))
    }

    /// Which version of a filter the oldest line speaks of that says that one stopped events; [`None`] also where that is not
    /// among the first lines.
    pub fn oldest_filter(&self, obligor: Obligor) -> Promise<Option<u32>> {
        let range = keys::ledger_between(obligor, Timestamp::default(), Timestamp::NEVER);
        self.ask(move |store| {
            let page = ledger::between(store, &range, 1, LOOKS, |entry| matches!(entry.what, What::Filtered { .. }))?;
            Ok(page.lines.first().and_then(|line| match line.entry.what {
                What::Filtered { version } => Some(version),
                _ => None,
            }))
        })
    }

    /// What an endpoint said, as far as it is still there.
    pub fn excerpts(&self, obligor: Obligor, wanted: Vec<ExcerptKey>) -> Promise<BTreeMap<ExcerptKey, Excerpt>> {
        self.ask(move |store| {
            let mut found = BTreeMap::new();
            for key in wanted {
                if let Some(value) = store.get(Family::Excerpt, &keys::excerpt(obligor, key))? {
                    found.insert(key, Excerpt::decode(&value).map_err(damaged)?);
                }
            }
            Ok(found)
        })
    }

    /// The event at a place of the log, or held below it; [`None`] where the store does not have it any more.
    pub fn event(&self, partition: PartitionId, seq: Seq) -> Promise<Option<Event>> {
        self.ask(move |store| Ok(Finder::new(store, partition).find(seq)?))
    }

    /// Where the log of `partition` begins; [`None`] where there is none.
    pub fn floor(&self, partition: PartitionId) -> Promise<Option<Seq>> {
        self.ask(move |store| {
            let record = store.get(Family::Meta, &keys::floor(partition))?;
            Ok(record.map(|record| Floor::decode(&record)).transpose().map_err(damaged)?.map(|record| record.floor))
        })
    }

    /// Where in the log of `partition` events with this id are, from `from` up to `end` or as far as one look goes.
    pub fn find_id(&self, partition: PartitionId, id: String, from: Seq, end: Seq) -> Promise<ids::Found> {
        self.ask(move |store| Ok(ids::find(store, partition, &id, from, end)?))
    }

    /// The same among the events that are held below `floor`.
    pub fn find_held_id(&self, partition: PartitionId, id: String, from: Seq, floor: Seq) -> Promise<ids::Found> {
        self.ask(move |store| Ok(ids::find_held(store, partition, &id, from, floor)?))
    }

    /// The records of the control plane of a kind whose names begin so.
    pub fn meta_from(&self, kind: MetaKind, prefix: String) -> Promise<Vec<(String, Bytes)>> {
        self.ask(move |store| {
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
