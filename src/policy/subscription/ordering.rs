//! Order by key: an event is sent only once the one before it with the same key has ended.
//!
//! An event of a free key is sent from its lane. If it fails, the events behind it in its key are
//! held back: each gets a pending record that is due at [`HELD_BACK`], and the lane passes it, so
//! that other keys go on. When an event ends, the first one held back behind it is released. A key
//! in flight holds back nothing at first: its next events stay in the lane, unless they are so many
//! that other keys would not be read.
//!
//! Where the settings say so, an event that would be given up blocks its key instead (`blocking`).
//!
//! Invariants:
//! - Of a key either one request is in flight, or one event waits for a retry or is released. All
//!   others are held back or unread. The first in the order of the log goes first.
//! - Only keys with an event in flight, pending or held back are in memory, and their number is
//!   bounded: at the bound no event is sent for the first time.
//! - A released event is fetched only once its record is durable.
//! - An event leaves only once the earlier ones of its key were sent, or are given up by a durable
//!   write. Whatever crashes, no event is sent for the first time after a later one of its key. An
//!   attempt whose result was not durable may be repeated after a later event.
//! - Nothing is sent before the order is recovered ([`recovery`]).
//!
//! What it does not do: jobs keep no order by key. They send one request at a time.

mod recovery;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use self::recovery::Recovery;
pub(super) use self::recovery::RecoveryInput;
use super::{blocking::BlockedKeys, queue::WantedEvent};
use crate::{
    batch::{ReadyEvent, Turn},
    order::{OrderHash, OrderSettings},
    record::{BLOCKING, HELD_BACK, OrderView},
};
use gridhook_event::{Lane, Seq, Timestamp};

/// Events that wait in a lane for events in flight. Above this they are held back, so that other
/// keys are read.
pub(super) const LANE_WAITING_MAX: usize = 256;

/// Bytes of the events that wait in a lane for events in flight. Above this they are held back,
/// too.
pub(super) const WAITING_BYTES: usize = 1024 * 1024;

/// An event that is held back.
#[derive(Clone, Copy, Debug)]
struct HeldBack {
    lane: Lane,
    /// [`HELD_BACK`], or [`None`] for an event that was open at recovery and has no pending record.
    due: Option<Timestamp>,
    /// The write that makes it durable.
    write: u64,
}

/// The events of a key that have not ended, apart from those in the lane.
#[derive(Debug, Default)]
struct KeyState {
    /// In one request, or waiting for a retry, or released.
    going: BTreeSet<Seq>,
    held_back: BTreeMap<Seq, HeldBack>,
    /// Number of events that are given up by a write that is not durable.
    ending: usize,
    /// Whether an event of the key failed and has not ended.
    failed: bool,
}

#[derive(Debug)]
struct WriteNumbers {
    next: u64,
    in_progress: u64,
    durable: u64,
}

/// The order of a subscription.
#[derive(Debug)]
pub(super) struct Ordering {
    tracked_max: usize,
    blocking: BlockedKeys,
    keys: HashMap<OrderHash, KeyState>,
    tracked: HashMap<Seq, OrderHash>,
    /// Events that are held back.
    held_back: usize,
    /// Keys with events that are held back.
    holding_keys: usize,
    /// Released, but their record is not durable.
    released: Vec<(Seq, HeldBack)>,
    /// Keys of events that are given up, and the write that makes it durable.
    ending: Vec<(OrderHash, u64)>,
    writes: WriteNumbers,
    recovery: Option<Recovery>,
    one_of_a_key: bool,
}

/// The order by key of a subscription whose events have one. Boxed: most have none.
#[derive(Debug)]
pub(super) struct KeyOrder(Option<Box<Ordering>>);

impl KeyOrder {
    pub(super) fn new(ordering: Option<Box<Ordering>>) -> Self {
        Self(ordering)
    }

    pub(super) fn get(&self) -> Option<&Ordering> {
        self.0.as_deref()
    }

    pub(super) fn get_mut(&mut self) -> Option<&mut Ordering> {
        self.0.as_deref_mut()
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn is_recovering(&self) -> bool {
        self.get().is_some_and(Ordering::is_recovering)
    }

    /// The number of events that are held back.
    pub(super) fn held_back(&self) -> usize {
        self.get().map_or(0, Ordering::held_back)
    }

    /// Whether this event blocks its order key.
    pub(super) fn is_blocking(&self, seq: Seq) -> bool {
        self.get()
            .is_some_and(|ordering| ordering.blocking().contains_event(seq))
    }

    /// Whether this is the due time of an event that is held back or blocks its key.
    pub(super) fn is_held_back(&self, due: Timestamp) -> bool {
        self.is_enabled() && due >= BLOCKING
    }

    /// The order key of an event that has not ended. Events of jobs have none.
    pub(super) fn key_of(&self, (lane, seq): (Lane, Seq)) -> Option<OrderHash> {
        self.get().filter(|_| !lane.is_job())?.key_of(seq)
    }

    /// The due time of a delivery that the order holds back.
    pub(super) fn due_of(&self, (lane, seq): (Lane, Seq)) -> Option<Timestamp> {
        self.get().filter(|_| !lane.is_job())?.due_of(seq)
    }
}

impl Ordering {
    /// Nothing is known yet of the events with these keys and of those in the order of due times.
    pub(super) fn from_settings(
        order: &OrderSettings,
        one_of_a_key: bool,
        open: impl Iterator<Item = (Lane, Seq)>,
        detached_keys: impl Iterator<Item = (Seq, OrderHash)>,
        is_any_due: bool,
    ) -> Self {
        let recovery = Recovery::new(open.collect(), is_any_due);
        let mut ordering = Self {
            tracked_max: order.tracked_max,
            blocking: BlockedKeys::new(order.blocks),
            keys: HashMap::new(),
            tracked: HashMap::new(),
            held_back: 0,
            holding_keys: 0,
            released: Vec::new(),
            ending: Vec::new(),
            writes: WriteNumbers {
                next: 1,
                in_progress: 0,
                durable: 0,
            },
            recovery: Some(recovery).filter(|recovery| !recovery.is_read()),
            one_of_a_key,
        };
        detached_keys.for_each(|(seq, key)| ordering.mark_in_flight(seq, key));
        ordering
    }

    pub(super) fn blocking(&self) -> &BlockedKeys {
        &self.blocking
    }

    pub(super) fn blocking_mut(&mut self) -> &mut BlockedKeys {
        &mut self.blocking
    }

    /// The number of events that are held back.
    pub(super) fn held_back(&self) -> usize {
        self.held_back
    }

    /// Whether the end of the write in progress frees keys.
    pub(super) fn frees_keys(&self) -> bool {
        !self.ending.is_empty()
    }

    pub(super) fn view_order(&self) -> OrderView {
        let Self {
            holding_keys: keys,
            held_back: events,
            tracked_max,
            ..
        } = *self;
        let key_count = self.blocking.len();
        let first_blocking = self.blocking.first_seq();
        OrderView {
            keys,
            events,
            blocked: key_count,
            first_blocking,
            tracked: self.tracked.len(),
            tracked_max,
        }
    }

    /// Pending deliveries that are not attempted before another event ends or an operator decides.
    pub(super) fn count_waiting(&self) -> usize {
        self.held_back + self.blocking.len()
    }

    pub(super) fn is_recovering(&self) -> bool {
        self.recovery.is_some()
    }

    /// Whether an event may be held back on disk that is nowhere else in memory.
    pub(super) fn may_hold_back(&self) -> bool {
        self.count_waiting() > 0
            || !self.released.is_empty()
            || self
                .recovery
                .as_ref()
                .is_some_and(|recovery| recovery.is_any_due)
    }

    /// Decides for each event of a lane whether it is sent now. `crowded`: the lane has no room for
    /// events of other keys.
    pub(super) fn turn_for(&self, crowded: bool) -> impl FnMut(&ReadyEvent) -> Turn + '_ {
        let mut room = self.tracked_max.saturating_sub(self.tracked.len());
        let mut keys_in_batch: HashSet<OrderHash> = HashSet::new();
        move |ready| {
            let Some(key) = ready.order else {
                return Turn::Go;
            };
            if room == 0 {
                return Turn::Wait;
            }
            let turn = match self.keys.get(&key) {
                None if self.one_of_a_key && !keys_in_batch.insert(key) => return Turn::Wait,
                None => Turn::Go,
                Some(state) if state.failed || crowded => Turn::SetAside,
                Some(_) => return Turn::Wait,
            };
            room -= 1;
            turn
        }
    }

    /// An event leaves its lane for a request.
    pub(super) fn mark_in_flight(&mut self, seq: Seq, key: OrderHash) {
        self.tracked.insert(seq, key);
        self.keys.entry(key).or_default().going.insert(seq);
    }

    /// An event leaves its lane and is held back by the next write.
    pub(super) fn hold_back(
        &mut self,
        key: OrderHash,
        lane: Lane,
        seq: Seq,
        due: Option<Timestamp>,
    ) {
        self.tracked.insert(seq, key);
        let state = self.keys.entry(key).or_default();
        state.going.remove(&seq);
        self.holding_keys += usize::from(state.held_back.is_empty());
        self.held_back += usize::from(
            state
                .held_back
                .insert(
                    seq,
                    HeldBack {
                        lane,
                        due,
                        write: self.writes.next,
                    },
                )
                .is_none(),
        );
    }

    /// An event is to be tried again. Returns true if it is to be held back: an earlier one of its
    /// key goes first.
    pub(super) fn hold_back_retry(&mut self, lane: Lane, seq: Seq) -> bool {
        let Some(key) = self.tracked.get(&seq).copied() else {
            return false;
        };
        let state = self.keys.entry(key).or_default();
        state.failed = true;
        let waits = state.going.first().is_some_and(|first| *first < seq);
        if waits {
            self.hold_back(key, lane, seq, Some(HELD_BACK));
        }
        waits
    }

    /// An event has ended. Returns the event that is released and durable.
    pub(super) fn end_event(&mut self, seq: Seq) -> Option<WantedEvent> {
        let key = self.forget_event(seq)?;
        self.release_next_of_key(key)
    }

    /// An event is given up by the next write. The others of its key wait for that write: an
    /// incarnation that does not find it would send the event after them.
    pub(super) fn end_with_write(&mut self, seq: Seq) {
        let Some(key) = self.forget_event(seq) else {
            return;
        };
        self.keys.entry(key).or_default().ending += 1;
        self.ending.push((key, self.writes.next));
    }

    fn forget_event(&mut self, seq: Seq) -> Option<OrderHash> {
        // It may have no key any more.
        self.blocking.remove(seq);
        let key = self.tracked.remove(&seq)?;
        let state = self.keys.get_mut(&key)?;
        state.going.remove(&seq);
        if state.held_back.remove(&seq).is_some() {
            self.held_back -= 1;
            self.holding_keys -= usize::from(state.held_back.is_empty());
        }
        self.released.retain(|(released, _)| *released != seq);
        Some(key)
    }

    /// Releases the next event of a key, unless others go before it.
    fn release_next_of_key(&mut self, key: OrderHash) -> Option<WantedEvent> {
        let state = self.keys.get_mut(&key)?;
        if !state.going.is_empty() || state.ending > 0 {
            return None;
        }
        let Some((next, event)) = state.held_back.pop_first() else {
            self.keys.remove(&key);
            return None;
        };
        self.held_back -= 1;
        self.holding_keys -= usize::from(state.held_back.is_empty());
        state.going.insert(next);
        state.failed = !state.held_back.is_empty();
        if event.write > self.writes.durable {
            self.released.push((next, event));
            return None;
        }
        Some(WantedEvent {
            key: (event.lane, next),
            due: event.due,
        })
    }

    /// The order key of an event that has not ended.
    pub(super) fn key_of(&self, seq: Seq) -> Option<OrderHash> {
        self.tracked.get(&seq).copied()
    }

    /// The due time of an event that is held back or blocking, or released and not durable.
    pub(super) fn due_of(&self, seq: Seq) -> Option<Timestamp> {
        if self.blocking.contains_event(seq) {
            return Some(BLOCKING);
        }
        let key = self.tracked.get(&seq)?;
        let held_back = self
            .keys
            .get(key)
            .and_then(|state| state.held_back.get(&seq));
        if let Some(event) = held_back {
            return event.due;
        }
        let mut events = self.released.iter();
        let (_, event) = events.find(|(number, _)| *number == seq)?;
        event.due
    }

    /// Notes that all changes are in the write in progress.
    pub(super) fn begin_write(&mut self) {
        self.writes.in_progress = self.writes.next;
        self.writes.next += 1;
    }

    /// Notes that the write in progress is durable; returns the events that are released by it.
    pub(super) fn finish_write(&mut self) -> Vec<WantedEvent> {
        let durable = self.writes.in_progress;
        self.writes.durable = durable;
        let durable_events = self
            .released
            .extract_if(.., |(_, event)| event.write <= durable);
        let mut wanted_events: Vec<_> = durable_events
            .map(|(seq, event)| WantedEvent {
                key: (event.lane, seq),
                due: event.due,
            })
            .collect();
        let durable_keys: Vec<_> = self
            .ending
            .extract_if(.., |(_, write)| *write <= durable)
            .collect();
        for (key, _) in durable_keys {
            self.keys.entry(key).and_modify(|state| state.ending -= 1);
            wanted_events.extend(self.release_next_of_key(key));
        }
        wanted_events
    }
}
