//! Reads all records about one event of one subscription at once, to explain the event's state.

use std::ops::ControlFlow;

use super::ReaderPool;
use crate::{Error, PendingResult};
use gridhook_event::{Event, Lane, Seq, SubscriptionKey, Timestamp};
use gridhook_policy::record::{Cursor, DeadLetterRecord, PendingDelivery};
use gridhook_store::{Family, Store, StoreError, keys, log::EventFinder, records::StoredRecord};

/// The maximum number of dead letters that are searched: there is no index by event. 10,000 keys
/// take less than 10 ms.
const DEAD_MAX: usize = 10_000;

/// The records about an event.
#[derive(Clone, Debug)]
pub struct EventRecords {
    /// The cursor of the whole subscription.
    pub cursor: Cursor,
    /// The pending deliveries of the event, by lane.
    pub pending: Vec<(Lane, PendingDelivery)>,
    /// Whether the event waits as a dead letter.
    pub is_dead: bool,
    /// The dead letter and the due time of its file, if it is among the first that wait.
    pub dead: Option<(DeadLetterRecord, Timestamp)>,
    /// The event; [`None`] if the store does not have it.
    pub event: Option<Event>,
}

impl ReaderPool {
    /// Reads the records about an event. [`Error::Unknown`] if there is no such subscription.
    pub fn event_records(
        &self,
        subscription_key: SubscriptionKey,
        seq: Seq,
    ) -> PendingResult<EventRecords> {
        self.run(move |store| read(store, subscription_key, seq))
    }

    /// Reads the cursor of a subscription. [`Error::Unknown`] if there is no such subscription.
    pub fn read_cursor(&self, subscription_key: SubscriptionKey) -> PendingResult<Cursor> {
        self.run(move |store| read_cursor(store, subscription_key))
    }
}

fn read_cursor(store: &dyn Store, subscription_key: SubscriptionKey) -> Result<Cursor, Error> {
    let cursor = store
        .get(Family::Cursor, &keys::cursor(subscription_key))?
        .ok_or(Error::Unknown)?;
    Ok(Cursor::decode(&cursor).map_err(StoreError::damaged)?)
}

fn read(
    store: &dyn Store,
    subscription_key: SubscriptionKey,
    seq: Seq,
) -> Result<EventRecords, Error> {
    let SubscriptionKey {
        partition,
        subscription,
    } = subscription_key;
    let cursor = read_cursor(store, subscription_key)?;
    let lanes = [Lane(0), Lane(u16::MAX)];
    let mut pending = Vec::new();
    let mut bad = None;
    let [from, upper] = lanes.map(|lane| keys::pending(partition, seq, subscription, lane));
    store.scan(Family::Pending, &from, &upper, &mut |key, value| match (
        keys::parse_pending(key),
        PendingDelivery::decode(value),
    ) {
        (Some((_, _, _, lane)), Ok(record)) => {
            pending.push((lane, record));
            ControlFlow::Continue(())
        }
        (key, record) => {
            bad = Some(StoreError::damaged(format!(
                "a pending delivery cannot be decoded: {key:?} {record:?}"
            )));
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
    let dead = if is_dead {
        find_dead(store, subscription_key, seq)?
    } else {
        None
    };
    Ok(EventRecords {
        cursor,
        pending,
        is_dead,
        dead,
        event: EventFinder::new(store, partition).find_event(seq)?,
    })
}

fn find_dead(
    store: &dyn Store,
    subscription_key: SubscriptionKey,
    wanted: Seq,
) -> Result<Option<(DeadLetterRecord, Timestamp)>, Error> {
    let mut looks = 0;
    let mut dead_letter = None;
    let range = keys::dead_of(subscription_key);
    store.scan(Family::Dead, &range.start, &range.end, &mut |key, value| {
        if let Some((_, due, seq, _)) =
            keys::parse_dead(key).filter(|(_, _, seq, _)| *seq == wanted)
        {
            dead_letter = Some(
                DeadLetterRecord::decode(value)
                    .map(|dead| (dead, due))
                    .map_err(|error| StoreError::damaged(format!("{seq:?}: {error}"))),
            );
        }
        looks += 1;
        if dead_letter.is_some() || looks == DEAD_MAX {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })?;
    Ok(dead_letter.transpose()?)
}
