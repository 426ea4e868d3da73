//! Checks each cursor: its counters, its lanes and its jobs.

use super::{CheckStop, CheckedLog, StoreCheck, checked_sum, subscription_name, sum_of};
use gridhook_event::{Lane, Seq, SubscriptionKey};
use gridhook_policy::record::{Counters, Cursor, LaneCursor};
use gridhook_store::{
    Family, keys,
    records::{FloorRecord, OutcomePage, StoredRecord},
};

impl StoreCheck<'_> {
    /// Pages of outcomes are part of the cursors and of the ledger, as a store shows them.
    fn outcome_pages(&mut self) -> Result<(), CheckStop> {
        self.visit_range(
            Family::Cursor,
            &keys::outcome_pages(),
            |check, key, value| {
                match (keys::parse_outcome_page(key), OutcomePage::decode(value)) {
                    (Some(_), Ok(_)) => {}
                    (key, page) => check
                        .report
                        .add_problem(format!("a page of outcomes is damaged: {key:?} {page:?}")),
                }
                Ok(())
            },
        )
    }

    pub(super) fn check_cursors(&mut self) -> Result<(), CheckStop> {
        self.outcome_pages()?;
        self.visit_records(Family::Cursor, |check, key, value| {
            let Some(subscription_key) = keys::parse_cursor(key) else {
                check
                    .report
                    .add_problem(format!("the key of a cursor cannot be parsed: {key:02x?}"));
                return Ok(());
            };
            check.report.add_count("cursors", 1);
            check.subscription_mut(subscription_key)?.has_cursor = true;
            match Cursor::decode(value) {
                Ok(cursor) => {
                    let subscription = check.subscription_mut(subscription_key)?;
                    (subscription.counters, subscription.next_due) =
                        (Some([cursor.counters, cursor.replayed]), cursor.next_due);
                    check.check_cursor(subscription_key, &cursor);
                }
                Err(error) => check
                    .report
                    .add_problem(format!("{}: {error}", subscription_name(subscription_key))),
            }
            Ok(())
        })
    }

    fn check_cursor(&mut self, subscription_key: SubscriptionKey, cursor: &Cursor) {
        let name = subscription_name(subscription_key);
        self.first_equation(&name, cursor.counters);
        self.check_equations(&format!("{name}, all jobs"), cursor.replayed);
        for job in &cursor.jobs {
            self.check_equations(&format!("{name}, job {}", job.lane.0), job.counters);
        }
        let log = self
            .logs
            .get(&subscription_key.partition)
            .filter(|log| log.record.floor != FloorRecord::ABANDONED);
        let Some(CheckedLog { record, end }) = log else {
            return self
                .report
                .add_problem(format!("{name} has a cursor, but its partition has no log"));
        };
        let end = end.map_or(record.next, |end| end.next.max(record.next));
        if let Some(low) = cursor.first_unread().filter(|low| *low < record.floor) {
            let floor = record.floor.0;
            self.report.add_problem(format!(
                "{name} still needs event {}, but the log begins at {floor}",
                low.0
            ));
        }
        self.check_jobs(&name, cursor);
        self.check_lanes(&name, &cursor.lanes, end);
    }

    fn first_equation(
        &mut self,
        name: &str,
        Counters {
            passed,
            filtered,
            matched,
            ..
        }: Counters,
    ) {
        if Some(passed) != checked_sum([filtered, matched]) {
            self.report.add_problem(format!(
                "{name}: {passed} passed is not the sum of {filtered} filtered and \
                 {matched} matched"
            ));
        }
    }

    fn check_equations(&mut self, name: &str, counters: Counters) {
        self.first_equation(name, counters);
        let Counters {
            matched,
            delivered,
            pending,
            dead_lettered,
            dropped,
            canceled,
            ..
        } = counters;
        if Some(matched) != checked_sum([delivered, pending, dead_lettered, dropped, canceled]) {
            self.report.add_problem(format!(
                "{name}: {matched} matched is not the sum of its parts: {counters:?}"
            ));
        }
    }

    /// Checks that each job has its own lane, that each lane of jobs has a job, and that the jobs'
    /// pending counts add up.
    fn check_jobs(&mut self, name: &str, cursor: &Cursor) {
        for (index, job) in cursor.jobs.iter().enumerate() {
            let lane = job.lane.0;
            if !job.lane.is_job()
                || cursor.jobs[..index]
                    .iter()
                    .any(|other| other.lane == job.lane)
            {
                self.report.add_problem(format!(
                    "{name}: a job has lane {lane}, which is not for jobs or is another job's"
                ));
            }
            if job.state.has_ended() {
                self.report.add_problem(format!(
                    "{name}: the cursor has the job {lane}, which is {}",
                    job.state
                ));
            }
        }
        let lanes = cursor.lanes.iter().map(|lane| lane.lane);
        for Lane(lane) in
            lanes.filter(|lane| lane.is_job() && cursor.jobs.iter().all(|job| job.lane != *lane))
        {
            self.report
                .add_problem(format!("{name} has lane {lane} without a job"));
        }
        let pending = sum_of(cursor.jobs.iter().map(|job| job.counters.pending));
        if pending != Some(cursor.replayed.pending) {
            let total = cursor.replayed.pending;
            self.report.add_problem(format!(
                "{name}: all jobs have {total} pending, but their sum is {pending:?}"
            ));
        }
    }

    /// Checks that exactly one lane, the live one, has no end, and that no event is in two lanes.
    fn check_lanes(&mut self, name: &str, lanes: &[LaneCursor], end: Seq) {
        let follow = lanes.iter().filter(|lane| lane.end.is_none()).count();
        let live = lanes
            .iter()
            .filter(|lane| lane.lane == Lane::LIVE && lane.end.is_none())
            .count();
        if (follow, live) != (1, 1) {
            self.report.add_problem(format!(
                "{name} has {live} live lanes and {follow} lanes without an end, instead of 1 and 1"
            ));
        }
        let mut parts: Vec<_> = lanes
            .iter()
            .map(|lane| (lane.read, lane.end, lane.lane))
            .collect();
        parts.sort_unstable_by_key(|(read, ends, _)| (*read, ends.unwrap_or(Seq(u64::MAX))));
        for (read, ends, Lane(lane)) in &parts {
            let upto = ends.unwrap_or(*read).max(*read);
            if upto > end {
                self.report.add_problem(format!(
                    "{name} reads up to {} in lane {lane}, but the log ends at {}",
                    upto.0, end.0
                ));
            }
            if let Some(ends) = ends.filter(|ends| ends < read) {
                self.report.add_problem(format!(
                    "{name} has read up to {} in lane {lane}, which ends at {}",
                    read.0, ends.0
                ));
            }
        }
        // Lanes that have reached their end read nothing. Jobs read events again.
        parts.retain(|(read, ends, lane)| !lane.is_job() && ends.is_none_or(|ends| *read < ends));
        for two in parts.windows(2) {
            let (_, ends, Lane(one)) = two[0];
            let (read, _, Lane(other)) = two[1];
            if ends.is_none_or(|ends| ends > read) {
                self.report.add_problem(format!(
                    "{name} reads event {} both in lane {one} and in lane {other}",
                    read.0
                ));
            }
        }
    }
}
