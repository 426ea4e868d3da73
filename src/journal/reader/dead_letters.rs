//! Reads of dead letters that wait to be written to their destination.

use std::ops::{ControlFlow, Range};

use super::ReaderPool;
use crate::{DeadLetterKey, Error, PendingResult};
use gridhook_event::{Event, SubscriptionKey, Timestamp};
use gridhook_policy::record::DeadLetterRecord;
use gridhook_store::{Family, Store, StoreError, keys, log::EventFinder, records::StoredRecord};

/// A dead letter that waits to be written to its destination.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the fields are named after their types")]
pub struct WaitingDeadLetter {
    pub key: DeadLetterKey,
    pub dead: DeadLetterRecord,
    /// The event; [`None`] if the store does not have it.
    pub event: Option<Event>,
}

impl ReaderPool {
    /// Reads a subscription's dead letters whose file is due by `by`, in order, or the first of
    /// them.
    pub fn read_dead_letters(
        &self,
        subscription_key: SubscriptionKey,
        by: Timestamp,
        max: usize,
        bytes_max: usize,
    ) -> PendingResult<Vec<WaitingDeadLetter>> {
        self.run(move |store| read_dead(store, subscription_key, None, by, max, bytes_max))
    }

    /// Reads a subscription's dead letters after `after`, in order, or the first of them. The
    /// result is empty only if there are no more.
    pub fn dead_after(
        &self,
        subscription_key: SubscriptionKey,
        after: Option<DeadLetterKey>,
        max: usize,
        bytes_max: usize,
    ) -> PendingResult<Vec<WaitingDeadLetter>> {
        self.run(move |store| {
            read_dead(
                store,
                subscription_key,
                after,
                Timestamp::NEVER,
                max,
                bytes_max,
            )
        })
    }

    /// Reads which subscriptions have dead letters waiting, and when the first of each is due.
    /// Blocks: only for the start.
    pub fn all_dead(&self) -> Result<Vec<(SubscriptionKey, Timestamp)>, Error> {
        scan_dead(&*self.store)
    }
}

fn read_dead(
    store: &dyn Store,
    subscription_key: SubscriptionKey,
    after: Option<DeadLetterKey>,
    by: Timestamp,
    max: usize,
    bytes_max: usize,
) -> Result<Vec<WaitingDeadLetter>, Error> {
    let mut records = Vec::new();
    let mut bad = None;
    let mut range = keys::dead_of(subscription_key);
    if let Some(DeadLetterKey { due, seq, lane }) = after {
        range.start = keys::dead(subscription_key, due, seq, lane);
        // The least key after it.
        range.start.push(0);
    }
    store.scan(Family::Dead, &range.start, &range.end, &mut |key, value| {
        let (Some((_, due, seq, lane)), Ok(dead)) =
            (keys::parse_dead(key), DeadLetterRecord::decode(value))
        else {
            bad = Some(StoreError::damaged(format!(
                "a dead letter of {subscription_key:?} cannot be decoded"
            )));
            return ControlFlow::Break(());
        };
        if due > by || records.len() == max {
            return ControlFlow::Break(());
        }
        records.push((DeadLetterKey { due, seq, lane }, dead));
        ControlFlow::Continue(())
    })?;
    if let Some(bad) = bad {
        return Err(bad.into());
    }
    let mut bytes = 0;
    let mut events = EventFinder::new(store, subscription_key.partition);
    let mut waiting = Vec::with_capacity(records.len());
    for (key, dead) in records {
        if bytes >= bytes_max && !waiting.is_empty() {
            break;
        }
        let event = events.find_if_readable(key.seq)?;
        bytes += event.as_ref().map_or(0, Event::wire_len);
        waiting.push(WaitingDeadLetter { key, dead, event });
    }
    Ok(waiting)
}

/// Needs one seek for each subscription with dead letters.
fn scan_dead(store: &dyn Store) -> Result<Vec<(SubscriptionKey, Timestamp)>, Error> {
    let mut dead_letters = Vec::new();
    let Range {
        start: mut from,
        end,
    } = keys::family_range(Family::Dead);
    loop {
        let mut first = None;
        store.scan(Family::Dead, &from, &end, &mut |key, _| {
            first =
                Some(keys::parse_dead(key).ok_or_else(|| {
                    StoreError::damaged("the key of a dead letter cannot be parsed")
                }));
            ControlFlow::Break(())
        })?;
        let Some(first) = first else {
            return Ok(dead_letters);
        };
        let (subscription_key, due, _, _) = first?;
        dead_letters.push((subscription_key, due));
        from = keys::dead_of(subscription_key).end;
    }
}
