//! The delivery history of an event for one subscription: its ledger entries in order, and the
//! final or present state.
//!
//! An entry of filtered events covers a part of the log, except the events that have another entry
//! of the lane. Whether it covers this event is decided by that version of the filter. If the
//! filter or the event is no longer known, an entry of an attempt in the same lane proves that it
//! does not.
//!
//! Invariant: a final state stays. A delivery is final whatever a repeated attempt resulted in;
//! otherwise the last entry counts.
//!
//! What it does not do: it predicts nothing. [`explain`](super::explain) does.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    explain::EventState,
    filter,
    outcome::{Outcome, Reason},
    record::{Cursor, LedgerEvent, LedgerLine, lease::LeaseStep},
};
use gridhook_event::{Seq, Timestamp};

/// The facts that a delivery history is made of.
#[derive(Clone, Copy, Debug)]
pub struct HistoryInput<'a> {
    /// The event whose history it is.
    pub seq: Seq,
    /// The ledger entries that mention it, in any order.
    pub lines: &'a [LedgerLine],
    /// The results of the filter versions that entries mention, as far as they and the event are
    /// known.
    pub filters: &'a BTreeMap<u32, filter::FilterResult>,
    /// The event's state and the subscription's cursor; [`None`] if the subscription was deleted.
    pub present: Option<(&'a EventState, &'a Cursor)>,
    /// When the oldest remaining ledger entry of the subscription was written.
    pub oldest: Option<Timestamp>,
}

/// The delivery history of one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryHistory {
    /// From the first entry to the last.
    pub steps: Vec<LedgerLine>,
    /// The final or present state.
    pub verdict: HistoryEnd,
}

/// The final or present state of a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HistoryEnd {
    /// The endpoint accepted it, or a client acknowledged it.
    Delivered {
        /// When the outcome was decided.
        at: Timestamp,
        /// The number of the attempt.
        attempt: u32,
        /// Whether the response came after the response timeout.
        late: bool,
    },
    /// This version of the filter rejected it.
    Filtered {
        /// The version of the filter.
        version: u32,
    },
    /// No attempt follows.
    GivenUp {
        /// Which limit or failure ended it.
        reason: Reason,
        /// The state of its dead letter.
        then: DeadLetterState,
    },
    /// Pending when the subscription was deleted.
    Canceled,
    /// In flight, or to be tried again.
    Pending,
    /// The subscription has not read the log up to it.
    Unread,
    /// Published before the subscription existed.
    Before,
    /// The log ends before this position.
    Unpublished,
    /// The ledger no longer covers it.
    Unknown {
        /// The oldest remaining ledger entry of the subscription.
        ledger_from: Option<Timestamp>,
    },
}

/// The state of the dead letter of an event that was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeadLetterState {
    /// There is no dead-letter destination.
    Dropped,
    /// It waits to be written to the destination.
    Waits,
    /// It is in this file.
    Filed(Arc<str>),
    /// The destination did not accept it.
    Lost(Arc<str>),
}

/// Derives the delivery history of an event.
pub fn delivery_history(known: HistoryInput<'_>) -> DeliveryHistory {
    let mut steps: Vec<LedgerLine> = known
        .lines
        .iter()
        .filter(|line| is_about(line, &known))
        .cloned()
        .collect();
    // Giving up follows the attempt that was written with it.
    steps.sort_by_key(|line| {
        (
            line.entry.at,
            line.lane,
            line.attempt,
            order_rank(&line.entry.what),
        )
    });
    let verdict = find_end(&steps, &known);
    DeliveryHistory { steps, verdict }
}

fn order_rank(what: &LedgerEvent) -> u8 {
    match what {
        LedgerEvent::Filtered { .. } => 0,
        LedgerEvent::Lease(LeaseStep::Received { .. }) => 0,
        LedgerEvent::Attempted { .. } | LedgerEvent::Lease(LeaseStep::Renewed { .. }) => 1,
        LedgerEvent::Late { .. } => 2,
        LedgerEvent::Lease(
            LeaseStep::Acknowledged | LeaseStep::Released { .. } | LeaseStep::Expired,
        ) => 2,
        LedgerEvent::GivenUp { .. } => 3,
        LedgerEvent::Canceled => 4,
        LedgerEvent::Filed { .. } | LedgerEvent::Lost { .. } => 5,
        LedgerEvent::Redriven { .. } => 6,
    }
}

/// Whether an entry is about the event itself.
fn is_about(line: &LedgerLine, known: &HistoryInput<'_>) -> bool {
    let LedgerEvent::Filtered { version } = line.entry.what else {
        return true;
    };
    match known.filters.get(&version) {
        Some(verdict) => *verdict != filter::FilterResult::Match,
        None => {
            let other = |other: &LedgerLine| {
                other.lane == line.lane && !matches!(other.entry.what, LedgerEvent::Filtered { .. })
            };
            !known.lines.iter().any(other)
                && !known.present.is_some_and(|(state, _)| is_under_way(state))
        }
    }
}

fn is_under_way(state: &EventState) -> bool {
    match state {
        EventState::InFlight { .. }
        | EventState::Pending { .. }
        | EventState::Open
        | EventState::DeadLetter { .. } => true,
        EventState::HeldBack { .. }
        | EventState::Blocking { .. }
        | EventState::Locked { .. }
        | EventState::Released { .. }
        | EventState::Available { .. } => true,
        EventState::Unread { .. }
        | EventState::Filtered
        | EventState::Passed
        | EventState::Unpublished => false,
    }
}

fn find_end(steps: &[LedgerLine], known: &HistoryInput<'_>) -> HistoryEnd {
    let mut last = None;
    for LedgerLine { attempt, entry, .. } in steps {
        if matches!(last, Some(HistoryEnd::Delivered { .. })) {
            break;
        }
        let at = entry.at;
        let attempt = *attempt;
        let next = match (&entry.what, &last) {
            (
                LedgerEvent::Attempted {
                    outcome: Outcome::Delivered,
                    ..
                },
                _,
            ) => HistoryEnd::Delivered {
                at,
                attempt,
                late: false,
            },
            (LedgerEvent::Late { settled: true }, _) => HistoryEnd::Delivered {
                at,
                attempt,
                late: true,
            },
            (LedgerEvent::Lease(LeaseStep::Acknowledged), _) => HistoryEnd::Delivered {
                at,
                attempt,
                late: false,
            },
            (
                LedgerEvent::Attempted { .. }
                | LedgerEvent::Lease(_)
                | LedgerEvent::Redriven { .. },
                _,
            ) => HistoryEnd::Pending,
            (
                LedgerEvent::GivenUp {
                    reason,
                    dead_lettered,
                },
                _,
            ) => HistoryEnd::GivenUp {
                reason: *reason,
                then: if *dead_lettered {
                    DeadLetterState::Waits
                } else {
                    DeadLetterState::Dropped
                },
            },
            (LedgerEvent::Filed { file }, Some(HistoryEnd::GivenUp { reason, .. })) => {
                HistoryEnd::GivenUp {
                    reason: *reason,
                    then: DeadLetterState::Filed(Arc::clone(file)),
                }
            }
            (LedgerEvent::Lost { why }, Some(HistoryEnd::GivenUp { reason, .. })) => {
                HistoryEnd::GivenUp {
                    reason: *reason,
                    then: DeadLetterState::Lost(Arc::clone(why)),
                }
            }
            (LedgerEvent::Canceled, _) => HistoryEnd::Canceled,
            (LedgerEvent::Filtered { version }, None) => HistoryEnd::Filtered { version: *version },
            // A late response, or a filter in another lane, changes nothing that ended. If the
            // entry of giving up is gone, the reason of a dead-letter file is unknown.
            (
                LedgerEvent::Late { settled: false }
                | LedgerEvent::Filtered { .. }
                | LedgerEvent::Filed { .. }
                | LedgerEvent::Lost { .. },
                _,
            ) => {
                continue;
            }
        };
        last = Some(next);
    }
    match (last, known.present) {
        (
            Some(
                verdict @ (HistoryEnd::Delivered { .. }
                | HistoryEnd::GivenUp { .. }
                | HistoryEnd::Canceled),
            ),
            _,
        ) => verdict,
        (_, Some((state, _))) if is_under_way(state) => HistoryEnd::Pending,
        (Some(verdict @ HistoryEnd::Filtered { .. }), _) => verdict,
        (_, Some((EventState::Unpublished, _))) => HistoryEnd::Unpublished,
        (_, Some((_, cursor))) if known.seq < cursor.began => HistoryEnd::Before,
        (_, Some((_, cursor))) if is_unread(cursor, known.seq) => HistoryEnd::Unread,
        // Requests in flight when the subscription was deleted have no ledger entry.
        (Some(HistoryEnd::Pending), None) => HistoryEnd::Canceled,
        (_, _) => HistoryEnd::Unknown {
            ledger_from: known.oldest,
        },
    }
}

fn is_unread(cursor: &Cursor, seq: Seq) -> bool {
    cursor.own_lanes().any(|lane| lane.is_unread(seq))
}
