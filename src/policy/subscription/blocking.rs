//! Blocked keys: where the settings say so, an event that would be given up blocks the later ones
//! of its order key until an operator decides.
//!
//! It keeps its pending record, due at [`BLOCKING`], and stays the one of its key that goes first.
//! An operator has it given up, or attempted once more: then it is due at [`ASKED`], whatever its
//! age and the number of its attempts. A late success ends it like any other pending delivery.
//!
//! Invariants:
//! - A decision changes the record. It is durable before the command is answered, and no crash
//!   takes it back.
//! - A command about many keys is spread over several writes, each of a bounded number of events.
//! - In memory, only events that block a key are kept, without their content.

use std::collections::{BTreeMap, VecDeque};

use super::Subscription;
use crate::{
    SendItem,
    batch::LastAttempt,
    order::OrderHash,
    outcome::{LastOutcome, Outcome, Reason, RequestResult},
    record::{ASKED, BLOCKING, CommandRefused, PendingDelivery},
    retry::{self, Failed, Jitter, RetryDecision},
};
use gridhook_event::{Lane, Seq, Timestamp};

/// An event that blocks its key.
#[derive(Clone, Debug)]
pub(super) struct BlockingEvent {
    pub(super) lane: Lane,
    /// When the event was appended.
    pub(super) appended: Timestamp,
    pub(super) pending: PendingDelivery,
}

/// A decision about an event that blocks its key.
#[derive(Clone, Copy, Debug)]
struct Decision {
    seq: Seq,
    /// Whether the event is attempted once more.
    retry: bool,
    /// Whether a command decided it, and not a change of the settings.
    commanded: bool,
}

/// The events that block their key.
#[derive(Debug)]
pub(super) struct BlockedKeys {
    /// Whether events that would be given up block their key.
    enabled: bool,
    events: BTreeMap<Seq, BlockingEvent>,
    decided: VecDeque<Decision>,
}

impl BlockedKeys {
    pub(super) fn new(enabled: bool) -> Self {
        Self {
            enabled,
            events: BTreeMap::new(),
            decided: VecDeque::new(),
        }
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.enabled
    }

    pub(super) fn len(&self) -> usize {
        self.events.len()
    }

    pub(super) fn first_seq(&self) -> Option<Seq> {
        self.events.first_key_value().map(|(seq, _)| *seq)
    }

    pub(super) fn contains_event(&self, seq: Seq) -> bool {
        self.events.contains_key(&seq)
    }

    pub(super) fn insert(&mut self, seq: Seq, event: BlockingEvent) {
        self.events.insert(seq, event);
    }

    pub(super) fn remove(&mut self, seq: Seq) {
        self.events.remove(&seq);
    }

    /// Has an event attempted once more, because it no longer blocks a key.
    pub(super) fn retry_event(&mut self, seq: Seq) {
        self.decided.push_back(Decision {
            seq,
            retry: true,
            commanded: false,
        });
    }
}

impl Subscription {
    /// Whether an event that is to be given up blocks its key instead. Events that cannot be read
    /// and events that end actors do not: they cannot be attempted again. Nor does an event that
    /// expired before its first attempt: it waited behind another one.
    pub(super) fn blocks_key(&self, item: &SendItem, reason: Reason) -> bool {
        let may_block = match reason {
            Reason::Missing | Reason::Quarantined => false,
            Reason::TimeToLiveExceeded => item.attempts > 0,
            _ => true,
        };
        let is_enabled = self
            .ordering
            .as_ref()
            .is_some_and(|ordering| ordering.blocking.is_enabled());
        may_block && is_enabled && self.order_key(item.key()).is_some()
    }

    /// Why no key can be unblocked.
    pub(super) fn refuses_unblock(&self, key: Option<OrderHash>) -> Option<CommandRefused> {
        if self.is_recovering() {
            return Some(CommandRefused::Recovering);
        }
        self.blocking_events(key)
            .is_empty()
            .then_some(CommandRefused::NotBlocked)
    }

    /// The events that block this key, or any key.
    fn blocking_events(&self, key: Option<OrderHash>) -> Vec<Seq> {
        let Some(ordering) = &self.ordering else {
            return Vec::new();
        };
        let blocking = ordering.blocking.events.keys().copied();
        blocking
            .filter(|seq| key.is_none_or(|key| ordering.key_of(*seq) == Some(key)))
            .collect()
    }

    /// An operator decides about blocked keys.
    pub(super) fn decide_blocked_keys(&mut self, key: Option<OrderHash>, retry: bool) {
        let events = self.blocking_events(key);
        if let Some(ordering) = &mut self.ordering {
            ordering
                .blocking
                .decided
                .extend(events.into_iter().map(|seq| Decision {
                    seq,
                    retry,
                    commanded: true,
                }));
        }
    }

    /// Whether decisions wait for the next write.
    pub(super) fn is_unblocking(&self) -> bool {
        self.ordering
            .as_ref()
            .is_some_and(|ordering| !ordering.blocking.decided.is_empty())
    }

    /// Carries out as many decisions as fit into a write.
    pub(super) fn carry_out_decisions(&mut self, now: Timestamp) {
        while self.is_unblocking() && self.pending_write.may_give_up(1) > 0 {
            let Some(blocking) = self
                .ordering
                .as_mut()
                .map(|ordering| &mut ordering.blocking)
            else {
                return;
            };
            let Some(Decision {
                seq,
                retry,
                commanded,
            }) = blocking.decided.pop_front()
            else {
                return;
            };
            self.pending_write.write_cursor_now();
            // A late success may have ended it meanwhile.
            let Some(event) = blocking.events.get(&seq).cloned() else {
                continue;
            };
            self.pending_write.reserve_ended(1);
            self.commanded += u64::from(commanded);
            if retry {
                blocking.remove(seq);
                // A client's lock has its full time again.
                let first_lock = event.pending.received.filter(|_| !self.is_pulled());
                self.move_due_time(
                    event.lane,
                    seq,
                    PendingDelivery {
                        received: first_lock,
                        ..event.pending
                    },
                    ASKED,
                );
                continue;
            }
            let reason = self.reason_of(&event, now);
            let BlockingEvent {
                lane,
                appended,
                pending,
            } = event;
            let last = LastAttempt::from(&pending);
            let last = if self.is_pulled() {
                LastAttempt {
                    outcome: LastOutcome::Delivering,
                    ..last
                }
            } else {
                last
            };
            let attempts = pending.attempts;
            let since = pending.received;
            let item = SendItem {
                lane,
                seq,
                appended,
                attempts,
                due: Some(BLOCKING),
                since,
            };
            self.end_given_up(item, reason, Some(last).filter(|_| attempts > 0), now);
        }
    }

    /// Why an event that blocked its key was not attempted again.
    fn reason_of(
        &self,
        BlockingEvent {
            appended, pending, ..
        }: &BlockingEvent,
        now: Timestamp,
    ) -> Reason {
        let edition = &self.settings.edition;
        let terms = edition
            .rules_for(self.settings.destination)
            .terms_for(self.settings.dead_letter);
        let last_attempt = pending.tried;
        let failure = Failed {
            number: pending.attempts,
            first: last_attempt,
            sent: last_attempt,
            ended: last_attempt,
        };
        let outcome = match pending.last {
            LastOutcome::Attempted(outcome) => outcome,
            LastOutcome::Probation | LastOutcome::Delivering => Outcome::Aborted,
        };
        let answer = RequestResult {
            status: pending.status,
            ..RequestResult::from_outcome(outcome)
        };
        match retry::judge_failure(
            edition,
            terms,
            self.settings.attempts_max,
            failure,
            &answer,
            Jitter(0.0),
        ) {
            RetryDecision::Never(reason) => reason,
            RetryDecision::Again(_) if self.settings.expiry_of(*appended) <= now => {
                Reason::TimeToLiveExceeded
            }
            RetryDecision::Again(_) if self.is_pulled() => Reason::Rejected,
            RetryDecision::Again(_) => Reason::ProbationCausedByClientError,
        }
    }
}
