//! The bytes of a cursor: one small record, written once for each group of outcomes.
//!
//! ```text
//! version 1 | flags 1 | next due 8, healthy rate and last failure 8, each if flagged
//!     | 0, 1 and 8 if no request may be sent before a time, or 2 and 16 with the endpoint that requested it
//!     | 0, or 1 and 8 if every request failed since a time
//!     | health | eleven counters
//!     | eleven counters of jobs | jobs begun | jobs | each job | lanes | each lane
//!     | began, if flagged | filtered-out ranges and each range, if flagged | outcome counts
//! lane: number | read | 0, or 1 and end | open | done
//! range: lane | version | first | length
//! open, done: runs | (gap count)*
//! ```
//!
//! The number after a field is its length in bytes; the other fields are varints. The version is
//! [`Cursor::VERSION`](RecordLayout::VERSION). Open and done events are stored as runs, because
//! they are mostly adjacent: the first run costs as much as its sequence, every further run two or
//! three bytes.

use super::{
    RecordLayout,
    counts::{put_counts, take_counts},
    put_time, put_time_or_none, take_time, take_time_or_none, take_u32,
};
use gridhook_event::{
    Lane, Seq, Timestamp,
    codec::{RecordReader, put_varint},
};
use gridhook_policy::{
    outcome::Failure,
    record::{
        Counters, Cursor, EndpointId, FilteredOut, Health, HeldBy, LaneCursor, OPEN_EVENTS_MAX,
        PaceRecord, Rate, SeqSet, job::Job,
    },
};

/// The maximum number of open events in a lane: far beyond [`OPEN_EVENTS_MAX`]. A lane that reads
/// several parts of the log passes an event only when all earlier ones of all parts have ended, so
/// many can be open. A longer list is damage and is refused before memory is allocated for it.
const OPEN_MAX: u64 = 4 * OPEN_EVENTS_MAX as u64;

// Held by an operator, or with GONE because the endpoint fails.
const HELD: u8 = 1;
const HAS_NEXT_DUE: u8 = 2;
const GONE: u8 = 4;
const HAS_RATE: u8 = 8;
const HAS_FAILED: u8 = 16;
const PACED: u8 = 32;
const HAS_FILTERED_OUT: u8 = 64;
const HAS_BEGUN: u8 = 128;

/// Since version 5, this byte in the position of the kind of health means that no request may be
/// sent before a time. The time follows, and then the health.
const NOT_BEFORE: u8 = 3;

/// Since version 8, this byte means that the endpoint follows the time before which no request may
/// be sent.
const REQUESTED_BY: u8 = 2;

impl RecordLayout for Cursor {
    const NAME: &'static str = "cursor";

    /// Version 2 added late responses, pace and hold; 3 jobs; 4 outcome counts; 5 the counts of
    /// pull leases; 6 a field, in every cursor, for the time before which no request may be sent; 7
    /// the time since which every request failed; 8 the endpoint that requested the wait.
    const VERSION: u8 = 8;

    const OLDEST: u8 = 5;

    fn write_fields(&self, out: &mut Vec<u8>) {
        let PaceRecord {
            healthy,
            failed,
            paced,
            not_before,
            requested_by,
            failing_since,
        } = self.pace;
        let hold_flags = match self.held {
            None => 0,
            Some(HeldBy::ByOperator) => HELD,
            Some(HeldBy::Gone) => GONE,
            Some(HeldBy::EndpointFailing) => HELD | GONE,
        };
        let flag = |is_there, flag| if is_there { flag } else { 0 };
        let has = flag(healthy.is_some(), HAS_RATE) | flag(failed.is_some(), HAS_FAILED);
        let has = has
            | flag(!self.filtered_out.is_empty(), HAS_FILTERED_OUT)
            | flag(self.began != Seq::default(), HAS_BEGUN);
        out.push(
            hold_flags | has | flag(paced, PACED) | flag(self.next_due.is_some(), HAS_NEXT_DUE),
        );
        if let Some(due) = self.next_due {
            put_time(out, due);
        }
        if let Some(Rate(rate)) = healthy {
            put_varint(out, rate);
        }
        if let Some(failed) = failed {
            put_time(out, failed);
        }
        put_wait(out, not_before, requested_by);
        put_time_or_none(out, failing_since);
        put_health(out, self.health);
        for counter in counter_fields(&self.counters) {
            put_varint(out, counter);
        }
        for counter in counter_fields(&self.replayed) {
            put_varint(out, counter);
        }
        put_varint(out, self.jobs_begun.into());
        put_varint(out, self.jobs.len() as u64);
        for job in &self.jobs {
            job.write_fields(out);
        }
        put_varint(out, self.lanes.len() as u64);
        for lane in &self.lanes {
            put_lane(out, lane);
        }
        if self.began != Seq::default() {
            put_varint(out, self.began.0);
        }
        if !self.filtered_out.is_empty() {
            put_varint(out, self.filtered_out.len() as u64);
            self.filtered_out
                .iter()
                .for_each(|range| put_filtered_out(out, range));
        }
        put_counts(out, &self.counts);
    }

    fn read_fields(version: u8, reader: &mut RecordReader<'_>) -> Option<Self> {
        let flags = reader.u8()?;
        let hold = match (flags & HELD != 0, flags & GONE != 0) {
            (false, false) => None,
            (true, false) => Some(HeldBy::ByOperator),
            (false, true) => Some(HeldBy::Gone),
            (true, true) if version < 7 => return None,
            (true, true) => Some(HeldBy::EndpointFailing),
        };
        let next_due = if flags & HAS_NEXT_DUE == 0 {
            None
        } else {
            Some(take_time(reader)?)
        };
        let healthy = if flags & HAS_RATE == 0 {
            None
        } else {
            Some(Rate(reader.varint()?))
        };
        let last_failure = if flags & HAS_FAILED == 0 {
            None
        } else {
            Some(take_time(reader)?)
        };
        let ((not_before, requested_by), failing_since, kind) = match version {
            5 => match reader.u8()? {
                NOT_BEFORE => ((Some(take_time(reader)?), None), None, reader.u8()?),
                kind => ((None, None), None, kind),
            },
            6 => ((take_time_or_none(reader)?, None), None, reader.u8()?),
            7 => (
                (take_time_or_none(reader)?, None),
                take_time_or_none(reader)?,
                reader.u8()?,
            ),
            _ => (take_wait(reader)?, take_time_or_none(reader)?, reader.u8()?),
        };
        let health = take_health(kind, reader)?;
        let pace = PaceRecord {
            healthy,
            failed: last_failure,
            paced: flags & PACED != 0,
            not_before,
            requested_by,
            failing_since,
        };
        let counters = take_counters(reader)?;
        let job_counters = take_counters(reader)?;
        let jobs_begun = u16::try_from(reader.varint()?).ok()?;
        let mut jobs = Vec::new();
        for _ in 0..reader.varint()? {
            // A job in a cursor has no version of its own: a new form of it is a new version of the
            // cursor.
            jobs.push(Job::read_fields(Job::VERSION, reader)?);
        }
        let mut lanes = Vec::new();
        for _ in 0..reader.varint()? {
            lanes.push(take_lane(reader)?);
        }
        // Most have one, and a list has room for four after its first.
        lanes.shrink_to_fit();
        let began = match flags & HAS_BEGUN {
            0 => Seq::default(),
            _ => Seq(reader.varint().filter(|began| *began > 0)?),
        };
        let mut filtered_out = Vec::new();
        if flags & HAS_FILTERED_OUT != 0 {
            for _ in 0..reader.varint().filter(|ranges| *ranges > 0)? {
                filtered_out.push(take_filtered_out(reader)?);
            }
        }
        let counts = take_counts(reader)?;
        Some(Self {
            lanes,
            health,
            pace,
            held: hold,
            counters,
            replayed: job_counters,
            jobs,
            jobs_begun,
            next_due,
            filtered_out,
            began,
            counts,
        })
    }
}

fn put_filtered_out(
    out: &mut Vec<u8>,
    FilteredOut {
        lane,
        version,
        first,
        end,
    }: &FilteredOut,
) {
    assert!(first < end, "the filtered-out range at {first:?} is empty");
    put_varint(out, lane.0.into());
    put_varint(out, (*version).into());
    put_varint(out, first.0);
    put_varint(out, end.0 - first.0);
}

fn take_filtered_out(reader: &mut RecordReader<'_>) -> Option<FilteredOut> {
    let lane = Lane(u16::try_from(reader.varint()?).ok()?);
    let version = take_u32(reader)?;
    let first = reader.varint()?;
    let length = reader.varint().filter(|length| *length > 0)?;
    Some(FilteredOut {
        lane,
        version,
        first: Seq(first),
        end: Seq(first.checked_add(length)?),
    })
}

/// Writes the time before which no request may be sent, and the endpoint that requested it, if both
/// are known.
fn put_wait(out: &mut Vec<u8>, not_before: Option<Timestamp>, requested_by: Option<EndpointId>) {
    match (not_before, requested_by) {
        (Some(until), Some(EndpointId(endpoint))) => {
            out.push(REQUESTED_BY);
            put_time(out, until);
            out.extend_from_slice(&endpoint.to_be_bytes());
        }
        (until, _) => put_time_or_none(out, until),
    }
}

fn take_wait(reader: &mut RecordReader<'_>) -> Option<(Option<Timestamp>, Option<EndpointId>)> {
    match reader.u8()? {
        0 => Some((None, None)),
        1 => Some((Some(take_time(reader)?), None)),
        REQUESTED_BY => Some((Some(take_time(reader)?), Some(EndpointId(reader.u64()?)))),
        _ => None,
    }
}

fn put_health(out: &mut Vec<u8>, health: Health) {
    match health {
        Health::Healthy { failures } => {
            out.push(0);
            put_varint(out, failures.into());
        }
        Health::Suspended {
            cause,
            since,
            until,
            consecutive_suspensions,
        } => {
            out.extend([1, cause.to_byte()]);
            put_time(out, since);
            put_time(out, until);
            put_varint(out, consecutive_suspensions.into());
        }
        Health::Probing {
            cause,
            since,
            consecutive_suspensions,
        } => {
            out.extend([2, cause.to_byte()]);
            put_time(out, since);
            put_varint(out, consecutive_suspensions.into());
        }
    }
}

fn take_health(kind: u8, reader: &mut RecordReader<'_>) -> Option<Health> {
    match kind {
        0 => Some(Health::Healthy {
            failures: take_u32(reader)?,
        }),
        1 => Some(Health::Suspended {
            cause: reader.u8().and_then(Failure::from_byte)?,
            since: take_time(reader)?,
            until: take_time(reader)?,
            consecutive_suspensions: take_u32(reader)?,
        }),
        2 => Some(Health::Probing {
            cause: reader.u8().and_then(Failure::from_byte)?,
            since: take_time(reader)?,
            consecutive_suspensions: take_u32(reader)?,
        }),
        _ => None,
    }
}

/// The counters in the order in which they are stored.
pub(super) fn counter_fields(counters: &Counters) -> [u64; 11] {
    let Counters {
        passed,
        filtered,
        matched,
        delivered,
        pending,
        dead_lettered,
        dropped,
        canceled,
        requests,
        requests_failed,
        late,
    } = *counters;
    [
        passed,
        filtered,
        matched,
        delivered,
        pending,
        dead_lettered,
        dropped,
        canceled,
        requests,
        requests_failed,
        late,
    ]
}

pub(super) fn take_counters(reader: &mut RecordReader<'_>) -> Option<Counters> {
    Some(Counters {
        passed: reader.varint()?,
        filtered: reader.varint()?,
        matched: reader.varint()?,
        delivered: reader.varint()?,
        pending: reader.varint()?,
        dead_lettered: reader.varint()?,
        dropped: reader.varint()?,
        canceled: reader.varint()?,
        requests: reader.varint()?,
        requests_failed: reader.varint()?,
        late: reader.varint()?,
    })
}

/// Writes lane, read position, end (0, or 1 and the sequence), open events and done events.
fn put_lane(out: &mut Vec<u8>, cursor: &LaneCursor) {
    put_varint(out, cursor.lane.0.into());
    put_varint(out, cursor.read.0);
    match cursor.end {
        None => out.push(0),
        Some(end) => {
            out.push(1);
            put_varint(out, end.0);
        }
    }
    put_runs(out, &cursor.open);
    put_runs(out, &cursor.done);
}

/// Writes the number of runs, and for each run its distance from the end of the previous one and
/// its length.
fn put_runs(out: &mut Vec<u8>, events: &SeqSet) {
    let event_count = events.event_count();
    assert!(
        event_count <= OPEN_MAX,
        "{event_count} open events in a lane exceed the limit"
    );
    put_varint(out, events.runs().len() as u64);
    let mut end = Seq(0);
    for run in events.runs() {
        assert!(end <= run.first, "the open events of a lane do not ascend");
        put_varint(out, run.first.0 - end.0);
        put_varint(out, run.count.into());
        end = run.end_seq();
    }
}

fn take_lane(reader: &mut RecordReader<'_>) -> Option<LaneCursor> {
    let lane = Lane(u16::try_from(reader.varint()?).ok()?);
    let read = Seq(reader.varint()?);
    let end = match reader.u8()? {
        0 => None,
        1 => Some(Seq(reader.varint()?)),
        _ => return None,
    };
    Some(LaneCursor {
        lane,
        read,
        end,
        open: take_runs(reader)?,
        done: take_runs(reader)?,
    })
}

fn take_runs(reader: &mut RecordReader<'_>) -> Option<SeqSet> {
    let mut events = SeqSet::default();
    let mut room = OPEN_MAX;
    let mut end = 0u64;
    for run in 0..reader.varint()? {
        // A gap of 0 would continue the previous run.
        let gap = reader.varint().filter(|gap| run == 0 || *gap > 0)?;
        let count = reader.varint().filter(|count| (1..=room).contains(count))?;
        room -= count;
        let first = end.checked_add(gap)?;
        end = first.checked_add(count)?;
        events.push(Seq(first), count);
    }
    Some(events)
}
