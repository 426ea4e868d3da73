//! A cursor on disk: one small record, written once for every group of outcomes.
//!
//! ```text
//! version 6 | flags 1 | next due 8, healthy rate and last failure 8, each if flagged
//!     | 0, or 1 and 8 where no request may leave before a time | health | eleven counters
//!     | eleven counters of jobs | jobs begun | jobs | each job | lanes | each lane
//!     | began, if flagged | hulls and each hull, if flagged | tally
//! lane: number | read | 0, or 1 and end | open | done
//! hull: lane | version | first | length
//! open, done: runs | (gap count)*
//! ```
//!
//! Everything is a varint but for points in time. The events that are open or done stand close together, and mostly in
//! runs: the first costs as much as its place, every other two or three bytes, however many events it has.

use super::{
    RecordLayout,
    counts::{put_tally, take_tally},
    put_time, put_time_or_none, take_outcome, take_time, take_time_or_none, take_u32,
};
use crate::{
    event::{Lane, Seq},
    policy::record::{Counters, Cursor, FilteredOut, Health, HeldBy, LaneCursor, PaceRecord, Rate, job::Job},
    store::codec::{RecordReader, put_varint},
};

/// A million open events in a lane is far beyond every limit of a subscription: a longer list is damage, and is
/// refused before it is laid out in memory.
const OPEN_MAX: usize = 1 << 20;

/// Bits of a cursor's first byte.
const HELD: u8 = 1;
const HAS_NEXT_DUE: u8 = 2;
const GONE: u8 = 4;
const HAS_RATE: u8 = 8;
const HAS_FAILED: u8 = 16;
const PACED: u8 = 32;
const HAS_SIFTED: u8 = 64;
const HAS_BEGUN: u8 = 128;

/// In version 5 this stands where the kind of health stands otherwise, if the endpoint asked for no request before a time:
/// the time follows, and then the health.
const NOT_BEFORE: u8 = 3;

impl RecordLayout for Cursor {
    const NAME: &'static str = "cursor";

    /// Late answers are counted since the second, and the pace and who holds it are in there; jobs are since the third,
    /// the tally since the fourth, and in it what clients that pull did since the fifth; since the sixth every cursor says
    /// whether its endpoint asked for no request before a time.
    const VERSION: u8 = 6;

    const OLDEST: u8 = 5;

    fn put(&self, out: &mut Vec<u8>) {
        let PaceRecord { healthy, failed, paced, not_before } = self.pace;
        let held = match self.held {
            None => 0,
            Some(HeldBy::ByOperator) => HELD,
            Some(HeldBy::Gone) => GONE,
        };
        let flag = |is_there, flag| if is_there { flag } else { 0 };
        let has = flag(healthy.is_some(), HAS_RATE) | flag(failed.is_some(), HAS_FAILED);
        let has = has | flag(!self.filtered_out.is_empty(), HAS_SIFTED) | flag(self.began != Seq::default(), HAS_BEGUN);
        out.push(held | has | flag(paced, PACED) | flag(self.next_due.is_some(), HAS_NEXT_DUE));
        if let Some(due) = self.next_due {
            put_time(out, due);
        }
        if let Some(Rate(rate)) = healthy {
            put_varint(out, rate);
        }
        if let Some(failed) = failed {
            put_time(out, failed);
        }
        put_time_or_none(out, not_before);
        put_health(out, self.health);
        for counter in counters(&self.counters) {
            put_varint(out, counter);
        }
        for counter in counters(&self.replayed) {
            put_varint(out, counter);
        }
        put_varint(out, self.jobs_begun.into());
        put_varint(out, self.jobs.len() as u64);
        for job in &self.jobs {
            job.put(out);
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
            self.filtered_out.iter().for_each(|sifted| put_filtered_out(out, sifted));
        }
        put_tally(out, &self.counts);
    }

    fn take(version: u8, reader: &mut RecordReader<'_>) -> Option<Self> {
        let flags = reader.u8()?;
        let held = match (flags & HELD != 0, flags & GONE != 0) {
            (false, false) => None,
            (true, false) => Some(HeldBy::ByOperator),
            (false, true) => Some(HeldBy::Gone),
            (true, true) => return None,
        };
        let next_due = if flags & HAS_NEXT_DUE == 0 { None } else { Some(take_time(reader)?) };
        let healthy = if flags & HAS_RATE == 0 { None } else { Some(Rate(reader.varint()?)) };
        let failed = if flags & HAS_FAILED == 0 { None } else { Some(take_time(reader)?) };
        let (not_before, kind) = match version {
            5 => match reader.u8()? {
                NOT_BEFORE => (Some(take_time(reader)?), reader.u8()?),
                kind => (None, kind),
            },
            _ => (take_time_or_none(reader)?, reader.u8()?),
        };
        let health = take_health(kind, reader)?;
        let pace = PaceRecord { healthy, failed, paced: flags & PACED != 0, not_before };
        let counters = take_counters(reader)?;
        let replayed = take_counters(reader)?;
        let jobs_begun = u16::try_from(reader.varint()?).ok()?;
        let mut jobs = Vec::new();
        for _ in 0..reader.varint()? {
            // In a cursor a job has no version of its own: a new form of it is a new version of the cursor.
            jobs.push(Job::take(Job::VERSION, reader)?);
        }
        let mut lanes = Vec::new();
        for _ in 0..reader.varint()? {
            lanes.push(take_lane(reader)?);
        }
        let began = match flags & HAS_BEGUN {
            0 => Seq::default(),
            _ => Seq(reader.varint().filter(|began| *began > 0)?),
        };
        let mut sifted = Vec::new();
        if flags & HAS_SIFTED != 0 {
            for _ in 0..reader.varint().filter(|hulls| *hulls > 0)? {
                sifted.push(take_filtered_out(reader)?);
            }
        }
        let counts = take_tally(reader)?;
        Some(Self {
            lanes,
            health,
            pace,
            held,
            counters,
            replayed,
            jobs,
            jobs_begun,
            next_due,
            filtered_out: sifted,
            began,
            counts,
        })
    }
}

fn put_filtered_out(out: &mut Vec<u8>, FilteredOut { lane, version, first, end }: &FilteredOut) {
    assert!(first < end, "a hull at {first:?} without an event");
    put_varint(out, lane.0.into());
    put_varint(out, (*version).into());
    put_varint(out, first.0);
    put_varint(out, end.0 - first.0);
}

fn take_filtered_out(reader: &mut RecordReader<'_>) -> Option<FilteredOut> {
    let (lane, version) = (Lane(u16::try_from(reader.varint()?).ok()?), take_u32(reader)?);
    let first = reader.varint()?;
    let length = reader.varint().filter(|length| *length > 0)?;
    Some(FilteredOut { lane, version, first: Seq(first), end: Seq(first.checked_add(length)?) })
}

fn put_health(out: &mut Vec<u8>, health: Health) {
    match health {
        Health::Healthy { failures } => {
            out.push(0);
            put_varint(out, failures.into());
        }
        Health::Suspended { cause, since, until, consecutive_suspensions: strikes } => {
            out.extend([1, cause.byte()]);
            put_time(out, since);
            put_time(out, until);
            put_varint(out, strikes.into());
        }
        Health::Probing { cause, since, consecutive_suspensions: strikes } => {
            out.extend([2, cause.byte()]);
            put_time(out, since);
            put_varint(out, strikes.into());
        }
    }
}

fn take_health(kind: u8, reader: &mut RecordReader<'_>) -> Option<Health> {
    match kind {
        0 => Some(Health::Healthy { failures: take_u32(reader)? }),
        1 => Some(Health::Suspended {
            cause: take_outcome(reader)?,
            since: take_time(reader)?,
            until: take_time(reader)?,
            consecutive_suspensions: take_u32(reader)?,
        }),
        2 => Some(Health::Probing {
            cause: take_outcome(reader)?,
            since: take_time(reader)?,
            consecutive_suspensions: take_u32(reader)?,
        }),
        _ => None,
    }
}

/// The counters in the order that they have on disk.
pub(super) fn counters(counters: &Counters) -> [u64; 11] {
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
    [passed, filtered, matched, delivered, pending, dead_lettered, dropped, canceled, requests, requests_failed, late]
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

/// Lane, read position, end (0, or 1 and the place), the open events and the done ones.
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

/// How many runs, and for each how far behind the end of the last one it begins and how many events it has.
fn put_runs(out: &mut Vec<u8>, ascending: &[Seq]) {
    assert!(ascending.len() <= OPEN_MAX, "{} open events in a lane", ascending.len());
    let runs = runs_of(ascending);
    put_varint(out, runs.len() as u64);
    let mut end = 0;
    for (first, count) in runs {
        put_varint(out, first.0 - end);
        put_varint(out, count);
        end = first.0 + count;
    }
}

/// An ascending list as first and count of each run.
fn runs_of(ascending: &[Seq]) -> Vec<(Seq, u64)> {
    let mut runs: Vec<(Seq, u64)> = Vec::new();
    for seq in ascending {
        match runs.last_mut() {
            Some((first, count)) if first.0 + *count == seq.0 => *count += 1,
            Some((first, count)) => {
                assert!(seq.0 > first.0 + *count, "{seq:?} does not ascend");
                runs.push((*seq, 1));
            }
            None => runs.push((*seq, 1)),
        }
    }
    runs
}

fn take_lane(reader: &mut RecordReader<'_>) -> Option<LaneCursor> {
    let lane = Lane(u16::try_from(reader.varint()?).ok()?);
    let read = Seq(reader.varint()?);
    let end = match reader.u8()? {
        0 => None,
        1 => Some(Seq(reader.varint()?)),
        _ => return None,
    };
    Some(LaneCursor { lane, read, end, open: take_runs(reader)?, done: take_runs(reader)? })
}

fn take_runs(reader: &mut RecordReader<'_>) -> Option<Vec<Seq>> {
    let mut seqs = Vec::new();
    let mut end = 0u64;
    for run in 0..reader.varint()? {
        // A gap of 0 would be the same run.
        let gap = reader.varint().filter(|gap| run == 0 || *gap > 0)?;
        let count = reader.varint().filter(|count| (1..=(OPEN_MAX - seqs.len()) as u64).contains(count))?;
        let first = end.checked_add(gap)?;
        end = first.checked_add(count)?;
        seqs.extend((first..end).map(Seq));
    }
    Some(seqs)
}
