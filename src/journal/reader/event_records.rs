//! All that the store has about one event, for one subscription: whoever explains an event asks for it at once.

use std::ops::ControlFlow;

use super::ReaderPool;
use crate::{
    event::{Event, Lane, Seq, SubscriptionKey, Timestamp},
    journal::{Error, PendingResult},
    policy::record::{Cursor, DeadLetterRecord, PendingDelivery},
    store::{Family, Store, StoreError, keys, log::EventFinder, records::StoredRecord},
};

/// A dead letter is found by its event only by looking at those that wait: at 10,000 keys, less than 10 ms.
const DEAD_MAX: usize = 10_000;

/// What the store has about an event.
#[derive(Clone, Debug)]
pub struct EventRecords {
    /// How far the subscription has come.
    pub cursor: Cursor,
    /// What it owes of the event, by lane.
    pub pending: Vec<(Lane, PendingDelivery)>,
    /// Whether the event waits as a dead letter.
    pub is_dead: bool,
    /// Its dead letter and when the file is due, if it is among the first that wait.
    pub dead: Option<(DeadLetterRecord, Timestamp)>,
    /// The event; [`None`] where the store does not have it.
    pub event: Option<Event>,
}

impl ReaderPool {
    /// What the store has about an event. [`Error::Unknown`] where there is no such subscription.
    pub fn event_records(&self, subscription_key: SubscriptionKey, seq: Seq) -> PendingResult<EventRecords> {
        self.run(move |store| read(store, subscription_key, seq))
    }
}

fn read(store: &dyn Store, subscription_key: SubscriptionKey, seq: Seq) -> Result<EventRecords, Error> {
    let SubscriptionKey { partition, subscription } = subscription_key;
    let cursor = store.get(Family::Cursor, &keys::cursor(subscription_key))?.ok_or(Error::Unknown)?;
    let cursor = Cursor::decode(&cursor).map_err(StoreError::damaged)?;
    let lanes = [Lane(0), Lane(u16::MAX)];
    let mut owed = Vec::new();
    let mut bad = None;
    let [from, upper] = lanes.map(|lane| keys::pending(partition, seq, subscription, lane));
    store.scan(Family::Pending, &from, &upper, &mut |key, value| match (
        keys::parse_pending(key),
        PendingDelivery::decode(value),
    ) {
        (Some((_, _, _, lane)), Ok(record)) => {
            owed.push((lane, record));
            ControlFlow::Continue(())
        }
        (key, record) => {
            bad = Some(StoreError::damaged(format!("an owed record: {key:?} {record:?}")));
            ControlFlow::Break(())
        }
    })?;
    if let Some(bad) = bad {
        return Err(bad.into());
    }
    let [from, upper] = lanes.map(|lane| keys::pin(partition, seq, subscription, lane));
    let mut is_dead = false;
    store.scan(Family::Pin, &from, &upper, &mut |_, _| {
        is_dead = true;
        ControlFlow::Break(())
    })?;
    let dead = if is_dead { find_dead(store, subscription_key, seq)? } else { None };
    Ok(EventRecords { cursor, pending: owed, is_dead, dead, event: EventFinder::new(store, partition).find(seq)? })
}

fn find_dead(
    store: &dyn Store,
    subscription_key: SubscriptionKey,
    wanted: Seq,
) -> Result<Option<(DeadLetterRecord, Timestamp)>, Error> {
    let mut looked = 0;
    let mut found = None;
    let range = keys::dead_of(subscription_key);
    store.scan(Family::Dead, &range.start, &range.end, &mut |key, value| {
        if let Some((_, due, seq, _)) = keys::parse_dead(key).filter(|(_, _, seq, _)| *seq == wanted) {
            found = Some(
                DeadLetterRecord::decode(value)
                    .map(|dead| (dead, due))
                    .map_err(|error| StoreError::damaged(format!("{seq:?}: {error}"))),
            );
        }
        looked += 1;
        if found.is_some() || looked == DEAD_MAX { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(found.transpose()?)
}
