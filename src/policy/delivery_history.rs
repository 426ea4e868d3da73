//! What became of an event for one subscription: its lines of the ledger, told in order, and what they come to.
//!
//! A line that a filter stopped events speaks of a part of the log, and of what in it has no other line: whether this event
//! was among them, that version of the filter is asked again; where it is not known any more, nor the event, a line of an
//! attempt in the same lane says no.
//!
//! Invariant: what ended stays ended. A delivery is the last word, whatever a repeated attempt came to; else what was
//! written last is.
//!
//! Absent on purpose: what is still to come, which [`explain`](super::explain) foretells.

use std::{collections::BTreeMap, sync::Arc};

use crate::{
    event::{Lane, Seq, Timestamp},
    policy::{
        explain::EventState,
        filter,
        outcome::{Outcome, Reason},
        record::{Cursor, LedgerEvent, LedgerLine, lease::LeaseStep},
    },
};

/// What is known.
#[derive(Clone, Copy, Debug)]
pub struct HistoryInput<'a> {
    /// Which event.
    pub seq: Seq,
    /// The lines that speak of it, in any order.
    pub lines: &'a [LedgerLine],
    /// What the versions of the filter that lines speak of say of it, as far as they and the event are known.
    pub filters: &'a BTreeMap<u32, filter::FilterResult>,
    /// Where the event is, and how far the subscription has come; [`None`] where it was deleted.
    pub present: Option<(&'a EventState, &'a Cursor)>,
    /// When the oldest line of the subscription was written that is still there.
    pub oldest: Option<Timestamp>,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryHistory {
    /// What happened, in order.
    pub steps: Vec<LedgerLine>,
    /// What it comes to.
    pub verdict: HistoryEnd,
}

/// What a story comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HistoryEnd {
    /// The endpoint took it.
    Delivered {
        /// When.
        at: Timestamp,
        /// At which attempt.
        attempt: u32,
        /// Whether the answer came after the response wait.
        late: bool,
    },
    /// A filter stopped it.
    Filtered {
        /// Which version.
        version: u32,
    },
    /// It was given up.
    GivenUp {
        /// Why.
        reason: Reason,
        /// What became of it then.
        then: DeadLetterFate,
    },
    /// It was owed when the subscription was deleted.
    Canceled,
    /// It is on its way, or will be.
    Pending,
    /// It has not been read yet.
    Unread,
    /// It was published before the subscription was there.
    Before,
    /// It was not published yet.
    Unpublished,
    /// Nothing that says more is kept any more.
    Unknown {
        /// The oldest line of the subscription that is.
        ledger_from: Option<Timestamp>,
    },
}

/// What became of an event that was given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeadLetterFate {
    /// There is no place for dead letters.
    Dropped,
    /// It waits to be written as a dead letter.
    Waits,
    /// It is in this file.
    Filed(Arc<str>),
    /// The destination did not take it.
    Lost(Arc<str>),
}

/// Tells what became of an event.
pub fn delivery_history(known: HistoryInput<'_>) -> DeliveryHistory {
    let mut steps: Vec<LedgerLine> = known.lines.iter().filter(|line| is_about(line, &known)).cloned().collect();
    // What was given up stands behind the attempt that it follows, which was written with it.
    steps.sort_by_key(|line| (line.entry.at, line.lane, line.attempt, rank(&line.entry.what)));
    let verdict = verdict(&steps, &known);
    DeliveryHistory { steps, verdict }
}

fn rank(what: &LedgerEvent) -> u8 {
    match what {
        LedgerEvent::Filtered { .. } => 0,
        LedgerEvent::Lease(LeaseStep::Received { .. }) => 0,
        LedgerEvent::Attempted { .. } | LedgerEvent::Lease(LeaseStep::Renewed { .. }) => 1,
        LedgerEvent::Late { .. } => 2,
        LedgerEvent::Lease(LeaseStep::Acknowledged | LeaseStep::Released { .. } | LeaseStep::Expired) => 2,
        LedgerEvent::GivenUp { .. } => 3,
        LedgerEvent::Canceled => 4,
        LedgerEvent::Filed { .. } | LedgerEvent::Lost { .. } => 5,
        LedgerEvent::Redriven { .. } => 6,
    }
}

/// Whether a line speaks of the event itself.
fn is_about(line: &LedgerLine, known: &HistoryInput<'_>) -> bool {
    let LedgerEvent::Filtered { version } = line.entry.what else { return true };
    match known.filters.get(&version) {
        Some(verdict) => *verdict != filter::FilterResult::Match,
        None => {
            let other = |other: &LedgerLine| {
                other.lane == line.lane && !matches!(other.entry.what, LedgerEvent::Filtered { .. })
            };
            !known.lines.iter().any(other) && !known.present.is_some_and(|(state, _)| is_under_way(state))
        }
    }
}

fn is_under_way(state: &EventState) -> bool {
    match state {
        EventState::InFlight { .. } | EventState::Pending { .. } | EventState::Open | EventState::DeadLetter { .. } => {
            true
        }
        EventState::Locked { .. } | EventState::Released { .. } | EventState::Available { .. } => true,
        EventState::Unread { .. } | EventState::Filtered | EventState::Passed | EventState::Unpublished => false,
    }
}

fn verdict(steps: &[LedgerLine], known: &HistoryInput<'_>) -> HistoryEnd {
    let mut last = None;
    for LedgerLine { attempt, entry, .. } in steps {
        if matches!(last, Some(HistoryEnd::Delivered { .. })) {
            break;
        }
        let (at, attempt) = (entry.at, *attempt);
        let next = match (&entry.what, &last) {
            (LedgerEvent::Attempted { outcome: Outcome::Delivered, .. }, _) => {
                HistoryEnd::Delivered { at, attempt, late: false }
            }
            (LedgerEvent::Late { settled: true }, _) => HistoryEnd::Delivered { at, attempt, late: true },
            (LedgerEvent::Lease(LeaseStep::Acknowledged), _) => HistoryEnd::Delivered { at, attempt, late: false },
            (LedgerEvent::Attempted { .. } | LedgerEvent::Lease(_) | LedgerEvent::Redriven { .. }, _) => {
                HistoryEnd::Pending
            }
            (LedgerEvent::GivenUp { reason, put_aside }, _) => HistoryEnd::GivenUp {
                reason: *reason,
                then: if *put_aside { DeadLetterFate::Waits } else { DeadLetterFate::Dropped },
            },
            (LedgerEvent::Filed { file }, Some(HistoryEnd::GivenUp { reason, .. })) => {
                HistoryEnd::GivenUp { reason: *reason, then: DeadLetterFate::Filed(Arc::clone(file)) }
            }
            (LedgerEvent::Lost { why }, Some(HistoryEnd::GivenUp { reason, .. })) => {
                HistoryEnd::GivenUp { reason: *reason, then: DeadLetterFate::Lost(Arc::clone(why)) }
            }
            (LedgerEvent::Canceled, _) => HistoryEnd::Canceled,
            (LedgerEvent::Filtered { version }, None) => HistoryEnd::Filtered { version: *version },
            // A late answer changes nothing that ended, a filter nothing in another lane; and of a file whose giving up is
            // not kept any more the reason is not known.
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
        (Some(verdict @ (HistoryEnd::Delivered { .. } | HistoryEnd::GivenUp { .. } | HistoryEnd::Canceled)), _) => {
            verdict
        }
        (_, Some((state, _))) if is_under_way(state) => HistoryEnd::Pending,
        (Some(verdict @ HistoryEnd::Filtered { .. }), _) => verdict,
        (_, Some((EventState::Unpublished, _))) => HistoryEnd::Unpublished,
        (_, Some((_, cursor))) if known.seq < cursor.began => HistoryEnd::Before,
        (_, Some((_, cursor))) if is_unread(cursor, known.seq) => HistoryEnd::Unread,
        // What was on its way when the subscription was deleted has no line of its own.
        (Some(HistoryEnd::Pending), None) => HistoryEnd::Canceled,
        (_, _) => HistoryEnd::Unknown { ledger_from: known.oldest },
    }
}

fn is_unread(cursor: &Cursor, seq: Seq) -> bool {
    let reads = |lane: Lane| lane.0 < Lane::FIRST_JOB.0;
    cursor.lanes.iter().any(|lane| {
        reads(lane.lane)
            && lane.read <= seq
            && lane.end.is_none_or(|end| seq < end)
            && lane.done.binary_search(&seq).is_err()
    })
}
