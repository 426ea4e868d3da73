//! The recovery of the order. It reads all pending deliveries, because only their events tell their
//! keys. Meanwhile nothing is sent, and outcomes wait.

use std::collections::{BTreeMap, VecDeque};

use super::super::{Subscription, blocking::BlockingEvent, queue::WantedEvent};
use crate::{
    Effect, Input,
    order::OrderHash,
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

    /// Whether all is read.
    pub(super) fn is_read(&self) -> bool {
        self.from.is_none() && self.wanted.is_empty() && !self.asked
    }
}

impl Subscription {
    /// Whether the input is absorbed by the recovery of the order, or waits for its end.
    pub(in crate::subscription) fn recovers_order(&mut self, input: Input) -> Option<Input> {
        let Some(recovery) = self
            .ordering
            .as_mut()
            .and_then(|ordering| ordering.recovery.as_mut())
        else {
            return Some(input);
        };
        match input {
            Input::DueRead {
                of: Traffic::Live,
                keys,
                all,
            } if recovery.asked => {
                recovery.asked = false;
                recovery.from = if all {
                    None
                } else {
                    keys.last().map(|last| last.next()).or(recovery.from)
                };
                recovery
                    .wanted
                    .extend(keys.iter().map(|key| (key.lane, key.seq)));
            }
            Input::Fetched(fetched) if recovery.asked => {
                recovery.asked = false;
                let order = self.settings.order.as_deref();
                for FetchedPending {
                    lane,
                    seq,
                    pending,
                    event,
                } in fetched
                {
                    let Some(index) = recovery
                        .wanted
                        .iter()
                        .take(FETCH)
                        .position(|wanted| *wanted == (lane, seq))
                    else {
                        continue;
                    };
                    recovery.wanted.remove(index);
                    let key = event
                        .as_ref()
                        .and_then(|event| order.and_then(|order| order.hash(event)));
                    let appended = event.map(|event| event.appended).unwrap_or_default();
                    recovery.found.insert(
                        seq,
                        FoundPending {
                            lane,
                            key,
                            appended,
                            pending,
                        },
                    );
                }
            }
            Input::Finished { .. }
            | Input::Late { .. }
            | Input::Claim(_)
            | Input::Quarantine(_) => {
                self.postponed.push_back(input);
            }
            other => return Some(other),
        }
        None
    }

    /// What recovery asks next.
    pub(in crate::subscription) fn ask_for_order(&mut self, effects: &mut Vec<Effect>) {
        let Some(recovery) = self
            .ordering
            .as_mut()
            .and_then(|ordering| ordering.recovery.as_mut())
        else {
            return;
        };
        if recovery.asked || recovery.is_read() {
            return;
        }
        recovery.asked = true;
        match recovery.from {
            Some(from) if recovery.wanted.is_empty() => effects.push(Effect::ReadDue {
                of: Traffic::Live,
                from,
            }),
            _ => effects.push(Effect::Fetch(
                recovery.wanted.iter().take(FETCH).copied().collect(),
            )),
        }
    }

    /// Ends the recovery once all is read and what has another place in the order is written, a
    /// part with each write.
    pub(in crate::subscription) fn finish_recovery(&mut self) {
        let Some(ordering) = &mut self.ordering else {
            return;
        };
        let Some(mut recovery) = ordering.recovery.take_if(|recovery| recovery.is_read()) else {
            return;
        };
        for item in self
            .requests
            .iter_items()
            .filter(|item| !item.lane.is_job())
        {
            if let Some(key) = recovery.found.remove(&item.seq).and_then(|found| found.key) {
                ordering.mark_in_flight(item.seq, key);
            }
        }
        while let Some((
            seq,
            FoundPending {
                lane,
                key,
                appended,
                pending,
            },
        )) = recovery.found.pop_first()
        {
            if self.pending_write.may_give_up(1) == 0 {
                recovery.found.insert(
                    seq,
                    FoundPending {
                        lane,
                        key,
                        appended,
                        pending,
                    },
                );
                ordering.recovery = Some(recovery);
                return;
            }
            let is_lost = self.live.is_lost((lane, seq));
            let due = pending.as_ref().map(|pending| pending.due);
            if !is_lost && due.is_none() {
                continue;
            }
            let is_held_back = due == Some(HELD_BACK);
            let blocking = pending.clone().filter(|pending| pending.due == BLOCKING);
            let Some(key) = key else {
                if is_held_back {
                    self.live.release_event(WantedEvent {
                        key: (lane, seq),
                        due,
                    });
                }
                if let Some(pending) = blocking {
                    // It no longer has an order.
                    ordering.blocking.insert(
                        seq,
                        BlockingEvent {
                            lane,
                            appended,
                            pending,
                        },
                    );
                    ordering.blocking.retry_event(seq);
                }
                continue;
            };
            let state = ordering.keys.entry(key).or_default();
            state.failed = true;
            if state.going.is_empty() {
                ordering.mark_in_flight(seq, key);
                match blocking {
                    Some(pending) => {
                        ordering.blocking.insert(
                            seq,
                            BlockingEvent {
                                lane,
                                appended,
                                pending,
                            },
                        );
                        if !ordering.blocking.is_enabled() {
                            ordering.blocking.retry_event(seq);
                        }
                    }
                    None if is_held_back => self.live.release_event(WantedEvent {
                        key: (lane, seq),
                        due,
                    }),
                    None => {}
                }
                continue;
            }
            ordering.hold_back(key, lane, seq, due.map(|_| HELD_BACK));
            match pending {
                Some(pending) if !is_held_back => {
                    // It was pending before the subscription had an order, or had another one.
                    let was_due = pending.due;
                    if was_due != BLOCKING {
                        self.live.due.remove_pending(DueKey {
                            due: was_due,
                            lane,
                            seq,
                        });
                    }
                    let pending = PendingDelivery {
                        due: HELD_BACK,
                        ..pending
                    };
                    self.pending_write.reserve_ended(1);
                    self.pending_write.push_change(RecordChange::Defer {
                        lane,
                        seq,
                        pending,
                        was_due: Some(was_due),
                    });
                }
                Some(_) | None => {
                    if let Some(event) = ordering
                        .keys
                        .get_mut(&key)
                        .and_then(|state| state.held_back.get_mut(&seq))
                    {
                        event.write = 0;
                    }
                    self.live.forget_lost((lane, seq));
                }
            }
        }
        if !ordering.tracked.is_empty() {
            // What is held back is seen in the state that a write publishes.
            self.pending_write.write_cursor_now();
        }
    }
}
