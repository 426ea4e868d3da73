//! The recovery of the order. It reads all pending deliveries, because only their events tell their
//! keys. Meanwhile nothing is sent, and outcomes wait.

use std::collections::{BTreeMap, VecDeque};

use super::{
    super::{
        blocking::BlockingEvent,
        in_flight::InFlight,
        pending_write::PendingWrite,
        queue::{SendQueue, WantedEvent},
    },
    Ordering,
};
use crate::{
    Effect, Input,
    order::{OrderHash, OrderSettings},
    record::{BLOCKING, DueKey, FetchedPending, HELD_BACK, PendingDelivery, RecordChange, Traffic},
};
use gridhook_event::{Lane, Seq, Timestamp};

/// Pending deliveries that recovery fetches at once.
const FETCH: usize = 256;

/// A pending or open delivery that recovery has read.
#[derive(Debug)]
struct FoundPending {
    lane: Lane,
    key: Option<OrderHash>,
    appended: Timestamp,
    pending: Option<PendingDelivery>,
}

/// What recovery has read so far.
#[derive(Debug)]
pub(super) struct Recovery {
    /// The next due key to read; [`None`] if all are read.
    from: Option<DueKey>,
    wanted: VecDeque<(Lane, Seq)>,
    found: BTreeMap<Seq, FoundPending>,
    asked: bool,
    pub(super) is_any_due: bool,
}

impl Recovery {
    /// `open` events were open at the end of the previous incarnation.
    pub(super) fn new(open: VecDeque<(Lane, Seq)>, is_any_due: bool) -> Self {
        let from = is_any_due.then(|| DueKey::first_at(Timestamp::default()));
        Self {
            from,
            wanted: open,
            found: BTreeMap::new(),
            asked: false,
            is_any_due,
        }
    }

    /// Takes keys in the order of their due times.
    fn add_keys(&mut self, keys: &[DueKey], all: bool) {
        self.asked = false;
        self.from = if all {
            None
        } else {
            keys.last().map(|last| last.next()).or(self.from)
        };
        self.wanted
            .extend(keys.iter().map(|key| (key.lane, key.seq)));
    }

    /// Takes an event that was fetched, if it is wanted.
    fn add_fetched(&mut self, fetched: FetchedPending, order: Option<&OrderSettings>) {
        let FetchedPending {
            lane,
            seq,
            pending,
            event,
        } = fetched;
        let mut requests = self.wanted.iter().take(FETCH);
        let Some(index) = requests.position(|request| *request == (lane, seq)) else {
            return;
        };
        self.wanted.remove(index);
        let key = event
            .as_ref()
            .and_then(|event| order.and_then(|order| order.hash(event)));
        let pending = FoundPending {
            lane,
            key,
            appended: event.map(|event| event.appended).unwrap_or_default(),
            pending,
        };
        self.found.insert(seq, pending);
    }

    pub(super) fn is_read(&self) -> bool {
        self.from.is_none() && self.wanted.is_empty() && !self.asked
    }
}

/// What becomes of an input while the order is recovered.
pub(in crate::subscription) enum RecoveryInput {
    /// It is part of the recovery.
    Absorbed,
    /// It waits for the end of the recovery.
    Postponed(Input),
    /// It does not depend on the order, and is processed at once.
    Other(Input),
}

impl Ordering {
    /// Takes an input, if it is for the recovery of the order.
    pub(in crate::subscription) fn recover_with(
        &mut self,
        input: Input,
        order: Option<&OrderSettings>,
    ) -> RecoveryInput {
        let Some(recovery) = &mut self.recovery else {
            return RecoveryInput::Other(input);
        };
        match input {
            Input::DueRead {
                traffic: Traffic::Live,
                keys,
                all,
            } if recovery.asked => {
                recovery.add_keys(&keys, all);
                RecoveryInput::Absorbed
            }
            Input::Fetched(fetched) if recovery.asked => {
                recovery.asked = false;
                for fetched in fetched {
                    recovery.add_fetched(fetched, order);
                }
                RecoveryInput::Absorbed
            }
            Input::Finished { .. }
            | Input::Late { .. }
            | Input::Claim(_)
            | Input::Quarantine(_) => RecoveryInput::Postponed(input),
            other => RecoveryInput::Other(other),
        }
    }

    pub(in crate::subscription) fn next_recovery_effect(&mut self) -> Option<Effect> {
        let recovery = self.recovery.as_mut()?;
        if recovery.asked || recovery.is_read() {
            return None;
        }
        recovery.asked = true;
        let effect = match recovery.from {
            Some(from) if recovery.wanted.is_empty() => Effect::ReadDue {
                traffic: Traffic::Live,
                from,
            },
            _ => Effect::Fetch(recovery.wanted.iter().take(FETCH).copied().collect()),
        };
        Some(effect)
    }

    /// Ends the recovery once all is read and what has another place in the order is written, a
    /// part with each write.
    pub(in crate::subscription) fn finish_recovery(
        &mut self,
        requests: &InFlight,
        live: &mut SendQueue,
        pending_write: &mut PendingWrite,
    ) {
        let Some(mut recovery) = self.recovery.take_if(|recovery| recovery.is_read()) else {
            return;
        };
        for item in requests.iter_items().filter(|item| !item.lane.is_job()) {
            if let Some(key) = recovery.found.remove(&item.seq).and_then(|found| found.key) {
                self.mark_in_flight(item.seq, key);
            }
        }
        while let Some((seq, found)) = recovery.found.pop_first() {
            if pending_write.limit_give_ups(1) == 0 {
                recovery.found.insert(seq, found);
                self.recovery = Some(recovery);
                return;
            }
            self.place_found(seq, found, live, pending_write);
        }
        if !self.tracked.is_empty() {
            // What is held back is seen in the state that a write publishes.
            pending_write.write_cursor_now();
        }
    }

    /// Places a delivery that recovery has read in the order of its key.
    fn place_found(
        &mut self,
        seq: Seq,
        found: FoundPending,
        live: &mut SendQueue,
        pending_write: &mut PendingWrite,
    ) {
        let FoundPending {
            lane,
            key,
            appended,
            pending,
        } = found;
        let due = pending.as_ref().map(|pending| pending.due);
        if due.is_none() && !live.is_lost((lane, seq)) {
            return;
        }
        let is_held_back = due == Some(HELD_BACK);
        let released_event = WantedEvent {
            key: (lane, seq),
            due,
        };
        let blocking = pending
            .clone()
            .filter(|pending| pending.due == BLOCKING)
            .map(|pending| BlockingEvent {
                lane,
                appended,
                pending,
            });
        let Some(key) = key else {
            // It no longer has an order.
            if is_held_back {
                live.release_event(released_event);
            }
            if let Some(event) = blocking {
                self.blocking.insert(seq, event);
                self.blocking.retry_event(seq);
            }
            return;
        };
        let state = self.keys.entry(key).or_default();
        state.failed = true;
        if state.going.is_empty() {
            self.mark_in_flight(seq, key);
            if let Some(event) = blocking {
                self.blocking.insert(seq, event);
                if !self.blocking.is_enabled() {
                    self.blocking.retry_event(seq);
                }
            } else if is_held_back {
                live.release_event(released_event);
            }
            return;
        }
        self.hold_back(key, lane, seq, due.map(|_| HELD_BACK));
        if let Some(pending) = pending.filter(|_| !is_held_back) {
            // It was pending before the subscription had an order, or had another one.
            move_behind(lane, seq, pending, live, pending_write);
            return;
        }
        let state = self.keys.get_mut(&key);
        if let Some(event) = state.and_then(|state| state.held_back.get_mut(&seq)) {
            event.write = 0;
        }
        live.forget_lost((lane, seq));
    }
}

/// Holds back a delivery that is pending otherwise.
fn move_behind(
    lane: Lane,
    seq: Seq,
    pending: PendingDelivery,
    live: &mut SendQueue,
    pending_write: &mut PendingWrite,
) {
    let was_due = pending.due;
    if was_due != BLOCKING {
        live.window_mut().remove_pending(DueKey {
            due: was_due,
            lane,
            seq,
        });
    }
    pending_write.reserve_ended(1);
    pending_write.push_change(RecordChange::Defer {
        lane,
        seq,
        pending: PendingDelivery {
            due: HELD_BACK,
            ..pending
        },
        was_due: Some(was_due),
    });
}
