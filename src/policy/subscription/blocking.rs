//! Blocked keys: where the settings say so, an event that would be given up blocks the later ones
//! of its order key until an operator decides.
//!
//! It keeps its pending record, due at [`BLOCKING`], and stays the one of its key that goes first.
//! An operator has it given up, or attempted once more: then it is due at [`ASKED`], whatever its
//! age and the number of its attempts. A late success ends it like any other pending delivery.
//!
//! Invariants:
//! - A decision changes the record. It is durable before the command returns, and no crash
//!   takes it back.
//! - A command about many keys is spread over several writes, each of a bounded number of events.
//! - In memory, only events that block a key are kept, without their content.

use std::collections::{BTreeMap, VecDeque};

use super::{ordering::Ordering, settlement::Settlement};
use crate::{
    SendItem,
    batch::LastAttempt,
    order::OrderHash,
    outcome::{LastOutcome, Outcome, Reason, RequestResult},
    record::{ASKED, BLOCKING, PendingDelivery},
    retry::{self, FailedAttempt, Jitter, RetryDecision},
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

    /// Whether decisions wait for the next write.
    pub(super) fn is_any_decided(&self) -> bool {
        !self.decided.is_empty()
    }

    /// Takes the next decision, and its event unless a late success has ended it meanwhile.
    fn next_decided(&mut self) -> Option<(Decision, Option<BlockingEvent>)> {
        let decision = self.decided.pop_front()?;
        let event = self.events.get(&decision.seq).cloned();
        if decision.retry {
            self.events.remove(&decision.seq);
        }
        Some((decision, event))
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

impl Ordering {
    /// The events that block this key, or any key.
    pub(super) fn blocking_events(&self, key: Option<OrderHash>) -> Vec<Seq> {
        let blocking = self.blocking().events.keys().copied();
        blocking
            .filter(|seq| key.is_none_or(|key| self.key_of(*seq) == Some(key)))
            .collect()
    }

    /// An operator decides about blocked keys.
    pub(super) fn decide_blocked_keys(&mut self, key: Option<OrderHash>, retry: bool) {
        let decisions = self.blocking_events(key).into_iter().map(|seq| Decision {
            seq,
            retry,
            commanded: true,
        });
        let decisions: Vec<Decision> = decisions.collect();
        self.blocking_mut().decided.extend(decisions);
    }
}

/// Whether decisions wait for the next write.
pub(super) fn is_unblocking(settlement: &Settlement) -> bool {
    settlement
        .order
        .get()
        .is_some_and(|ordering| ordering.blocking().is_any_decided())
}

/// Carries out as many decisions as fit into a write. Returns the number of deliveries that
/// commands moved.
pub(super) fn carry_out_decisions(settlement: &mut Settlement, now: Timestamp) -> u64 {
    let mut moved_count = 0;
    while is_unblocking(settlement)
        && settlement.pending_write.limit_give_ups(1) > 0
        && let Some((decision, event)) = settlement
            .order
            .get_mut()
            .and_then(|ordering| ordering.blocking_mut().next_decided())
    {
        settlement.pending_write.write_cursor_now();
        let Some(event) = event else {
            continue;
        };
        settlement.pending_write.reserve_ended(1);
        moved_count += u64::from(decision.commanded);
        if decision.retry {
            attempt_again(settlement, decision.seq, event);
        } else {
            end_blocking(settlement, decision.seq, event, now);
        }
    }
    moved_count
}

/// Has an event that blocked its key attempted once more.
fn attempt_again(settlement: &mut Settlement, seq: Seq, event: BlockingEvent) {
    // A client's lock has its full time again.
    let first_lock = event
        .pending
        .received
        .filter(|_| !settlement.settings.is_pulled());
    let pending = PendingDelivery {
        received: first_lock,
        ..event.pending
    };
    settlement.move_due_time(event.lane, seq, pending, ASKED);
}

/// Gives up an event that blocked its key.
fn end_blocking(settlement: &mut Settlement, seq: Seq, event: BlockingEvent, now: Timestamp) {
    let reason = reason_to_end(settlement, &event, now);
    let BlockingEvent {
        lane,
        appended,
        pending,
    } = event;
    let last = LastAttempt::from(&pending);
    let last = if settlement.settings.is_pulled() {
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
    settlement.end_with_give_up(item, reason, Some(last).filter(|_| attempts > 0), now);
}

/// Why an event that blocked its key was not attempted again.
fn reason_to_end(
    settlement: &Settlement,
    BlockingEvent {
        appended, pending, ..
    }: &BlockingEvent,
    now: Timestamp,
) -> Reason {
    let edition = &settlement.settings.edition;
    let terms = edition
        .rules_for(settlement.settings.destination)
        .terms_for(settlement.settings.dead_letter);
    let last_attempt = pending.tried;
    let failure = FailedAttempt {
        number: pending.attempts,
        first: last_attempt,
        sent: last_attempt,
        ended: last_attempt,
    };
    let outcome = match pending.last {
        LastOutcome::Attempted(outcome) => outcome,
        LastOutcome::Probation | LastOutcome::Delivering => Outcome::Aborted,
    };
    let result = RequestResult {
        status: pending.status,
        ..RequestResult::from_outcome(outcome)
    };
    match retry::judge_failure(
        edition,
        terms,
        settlement.settings.attempts_max,
        failure,
        &result,
        Jitter(0.0),
    ) {
        RetryDecision::Never(reason) => reason,
        RetryDecision::Again(_) if settlement.settings.expiry_of(*appended) <= now => {
            Reason::TimeToLiveExceeded
        }
        RetryDecision::Again(_) if settlement.settings.is_pulled() => Reason::Rejected,
        RetryDecision::Again(_) => Reason::ProbationCausedByClientError,
    }
}
