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
        explain::State,
        filter,
        outcome::{Outcome, Reason},
        record::{Cursor, Line, What, lease::LeaseStep},
    },
};

/// What is known.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// Which event.
    pub seq: Seq,
    /// The lines that speak of it, in any order.
    pub lines: &'a [Line],
    /// What the versions of the filter that lines speak of say of it, as far as they and the event are known.
    pub filters: &'a BTreeMap<u32, filter::Verdict>,
    /// Where the event is, and how far the subscription has come; [`None`] where it was deleted.
    pub present: Option<(&'a State, &'a Cursor)>,
    /// When the oldest line of the subscription was written that is still there.
    pub oldest: Option<Timestamp>,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Story {
    /// What happened, in order.
    pub steps: Vec<Line>,
    /// What it comes to.
    pub verdict: Verdict,
}

/// What a story comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
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
        then: Aside,
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
pub enum Aside {
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
pub fn tell(known: Known<'_>) -> Story {
    let mut steps: Vec<Line> = known.lines.iter().filter(|line| is_about(line, &known)).cloned().collect();
    // What was given up stands behind the attempt that it follows, which was written with it.
    steps.sort_by_key(|line| (line.entry.at, line.lane, line.attempt, rank(&line.entry.what)));
    let verdict = verdict(&steps, &known);
    Story { steps, verdict }
}

fn rank(what: &What) -> u8 {
    match what {
        What::Filtered { .. } => 0,
        What::Lease(LeaseStep::Received { .. }) => 0,
        What::Attempted { .. } | What::Lease(LeaseStep::Renewed { .. }) => 1,
        What::Late { .. } => 2,
        What::Lease(LeaseStep::Acknowledged | LeaseStep::Released { .. } | LeaseStep::Expired) => 2,
        What::GivenUp { .. } => 3,
        What::Canceled => 4,
        What::Filed { .. } | What::Lost { .. } => 5,
        What::Redriven { .. } => 6,
    }
}

/// Whether a line speaks of the event itself.
fn is_about(line: &Line, known: &Known<'_>) -> bool {
    let What::Filtered { version } = line.entry.what else { return true };
    match known.filters.get(&version) {
        Some(verdict) => *verdict != filter::Verdict::Match,
        None => {
            let other = |other: &Line| other.lane == line.lane && !matches!(other.entry.what, What::Filtered { .. });
            !known.lines.iter().any(other) && !known.present.is_some_and(|(state, _)| is_under_way(state))
        }
    }
}

fn is_under_way(state: &State) -> bool {
    match state {
        State::InFlight { .. } | State::Owed { .. } | State::Open | State::DeadLetter { .. } => true,
        State::Locked { .. } | State::Released { .. } | State::Available { .. } => true,
        State::Unread { .. } | State::Filtered | State::Passed | State::Unpublished => false,
    }
}

fn verdict(steps: &[Line], known: &Known<'_>) -> Verdict {
    let mut last = None;
    for Line { attempt, entry, .. } in steps {
        if matches!(last, Some(Verdict::Delivered { .. })) {
            break;
        }
        let (at, attempt) = (entry.at, *attempt);
        let next = match (&entry.what, &last) {
            (What::Attempted { outcome: Outcome::Delivered, .. }, _) => Verdict::Delivered { at, attempt, late: false },
            (What::Late { settled: true }, _) => Verdict::Delivered { at, attempt, late: true },
            (What::Lease(LeaseStep::Acknowledged), _) => Verdict::Delivered { at, attempt, late: false },
            (What::Attempted { .. } | What::Lease(_) | What::Redriven { .. }, _) => Verdict::Pending,
            (What::GivenUp { reason, put_aside }, _) => {
                Verdict::GivenUp { reason: *reason, then: if *put_aside { Aside::Waits } else { Aside::Dropped } }
            }
            (What::Filed { file }, Some(Verdict::GivenUp { reason, .. })) => {
                Verdict::GivenUp { reason: *reason, then: Aside::Filed(Arc::clone(file)) }
            }
            (What::Lost { why }, Some(Verdict::GivenUp { reason, .. })) => {
                Verdict::GivenUp { reason: *reason, then: Aside::Lost(Arc::clone(why)) }
            }
            (What::Canceled, _) => Verdict::Canceled,
            (What::Filtered { version }, None) => Verdict::Filtered { version: *version },
            // A late answer changes nothing that ended, a filter nothing in another lane; and of a file whose giving up is
            // not kept any more the reason is not known.
            (What::Late { settled: false } | What::Filtered { .. } | What::Filed { .. } | What::Lost { .. }, _) => {
                continue;
            }
        };
        last = Some(next);
    }
    match (last, known.present) {
        (Some(verdict @ (Verdict::Delivered { .. } | Verdict::GivenUp { .. } | Verdict::Canceled)), _) => verdict,
        (_, Some((state, _))) if is_under_way(state) => Verdict::Pending,
        (Some(verdict @ Verdict::Filtered { .. }), _) => verdict,
        (_, Some((State::Unpublished, _))) => Verdict::Unpublished,
        (_, Some((_, cursor))) if known.seq < cursor.began => Verdict::Before,
        (_, Some((_, cursor))) if is_unread(cursor, known.seq) => Verdict::Unread,
        // What was on its way when the subscription was deleted has no line of its own.
        (Some(Verdict::Pending), None) => Verdict::Canceled,
        (_, _) => Verdict::Unknown { ledger_from: known.oldest },
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
