//! Whether each cursor is what its rules say: its equations, its lanes, its jobs.

use super::{CheckStop, CheckedLog, StoreCheck, subscription_name, sum, sum_of};
use crate::{
    event::{Lane, Seq, SubscriptionKey},
    policy::record::{Counters, Cursor, LaneCursor},
    store::{
        Family, keys,
        records::{FloorRecord, StoredRecord},
    },
};

impl StoreCheck<'_> {
    pub(super) fn cursors(&mut self) -> Result<(), CheckStop> {
        self.each(Family::Cursor, |check, key, value| {
            let Some(subscription_key) = keys::parse_cursor(key) else {
                check.report.wrong(format!("a key of a cursor: {key:02x?}"));
                return Ok(());
            };
            check.report.count("cursors", 1);
            check.share(subscription_key)?.has_cursor = true;
            match Cursor::decode(value) {
                Ok(cursor) => {
                    let share = check.share(subscription_key)?;
                    (share.columns, share.next_due) = (Some([cursor.counters, cursor.replayed]), cursor.next_due);
                    check.cursor(subscription_key, &cursor);
                }
                Err(error) => check.report.wrong(format!("{}: {error}", subscription_name(subscription_key))),
            }
            Ok(())
        })
    }

    fn cursor(&mut self, subscription_key: SubscriptionKey, cursor: &Cursor) {
        let who = subscription_name(subscription_key);
        self.first_equation(&who, cursor.counters);
        self.equations(&format!("{who}: of its jobs"), cursor.replayed);
        for job in &cursor.jobs {
            self.equations(&format!("{who}: of its job {}", job.lane.0), job.counters);
        }
        let log = self.logs.get(&subscription_key.partition).filter(|log| log.record.floor != FloorRecord::ABANDONED);
        let Some(CheckedLog { record, end }) = log else {
            return self.report.wrong(format!("{who} has a cursor in no log"));
        };
        let end = end.map_or(record.next, |end| end.next.max(record.next));
        if let Some(low) = cursor.low().filter(|low| *low < record.floor) {
            let floor = record.floor.0;
            self.report.wrong(format!("{who} still reads event {}, and the log begins at {floor}", low.0));
        }
        self.jobs(&who, cursor);
        self.lanes(&who, &cursor.lanes, end);
    }

    fn first_equation(&mut self, who: &str, Counters { passed, filtered, matched, .. }: Counters) {
        if Some(passed) != sum([filtered, matched]) {
            self.report.wrong(format!("{who}: {passed} passed, {filtered} filtered and {matched} matched"));
        }
    }

    fn equations(&mut self, who: &str, counters: Counters) {
        self.first_equation(who, counters);
        let Counters { matched, delivered, pending, dead_lettered, dropped, canceled, .. } = counters;
        if Some(matched) != sum([delivered, pending, dead_lettered, dropped, canceled]) {
            self.report.wrong(format!("{who}: {matched} matched and not as many accounted for: {counters:?}"));
        }
    }

    /// Each job has a lane of its own, and owes what its counters say; no lane is a job's that has none.
    fn jobs(&mut self, who: &str, cursor: &Cursor) {
        for (place, job) in cursor.jobs.iter().enumerate() {
            let lane = job.lane.0;
            if !job.lane.is_job() || cursor.jobs[..place].iter().any(|other| other.lane == job.lane) {
                self.report.wrong(format!("{who}: lane {lane} is no job's, or another's"));
            }
            if job.state.has_ended() {
                self.report.wrong(format!("{who}: the job {lane} is {}, and in the cursor", job.state));
            }
        }
        let lanes = cursor.lanes.iter().map(|lane| lane.lane);
        for Lane(lane) in lanes.filter(|lane| lane.is_job() && cursor.jobs.iter().all(|job| job.lane != *lane)) {
            self.report.wrong(format!("{who} reads for a job in lane {lane}, and has none there"));
        }
        let pending = sum_of(cursor.jobs.iter().map(|job| job.counters.pending));
        if pending != Some(cursor.replayed.pending) {
            let column = cursor.replayed.pending;
            self.report.wrong(format!("{who}: jobs have {column} pending, and each has: {pending:?} together"));
        }
    }

    /// One lane follows the log; the others have an end, and no event is in two of them.
    fn lanes(&mut self, who: &str, lanes: &[LaneCursor], end: Seq) {
        let follow = lanes.iter().filter(|lane| lane.end.is_none()).count();
        let live = lanes.iter().filter(|lane| lane.lane == Lane::LIVE && lane.end.is_none()).count();
        if (follow, live) != (1, 1) {
            self.report.wrong(format!("{who} has {live} live lanes and {follow} that follow the log"));
        }
        let mut parts: Vec<_> = lanes.iter().map(|lane| (lane.read, lane.end, lane.lane)).collect();
        parts.sort_unstable_by_key(|(read, ends, _)| (*read, ends.unwrap_or(Seq(u64::MAX))));
        for (read, ends, Lane(lane)) in &parts {
            let place = ends.unwrap_or(*read).max(*read);
            if place > end {
                self.report
                    .wrong(format!("{who} reads up to {} in lane {lane}, and the log ends at {}", place.0, end.0));
            }
            if let Some(ends) = ends.filter(|ends| ends < read) {
                self.report.wrong(format!("{who} has read up to {} in lane {lane}, which ends at {}", read.0, ends.0));
            }
        }
        // One that only waits for outcomes reads nothing; what a job reads, it reads once more.
        parts.retain(|(read, ends, lane)| !lane.is_job() && ends.is_none_or(|ends| *read < ends));
        for two in parts.windows(2) {
            let ((_, ends, Lane(one)), (read, _, Lane(other))) = (two[0], two[1]);
            if ends.is_none_or(|ends| ends > read) {
                self.report.wrong(format!("{who} reads event {} in lane {one} and in lane {other}", read.0));
            }
        }
    }
}
