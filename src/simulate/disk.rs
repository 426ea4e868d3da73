//! The records of one subscription in memory, with the journal's effect on them and the invariants
//! that must hold after each write.
//!
//! Tests of the policy use it too, so that simulation and tests share one model of the store.

use std::collections::{BTreeMap, BTreeSet};

use gridhook_event::{Lane, Seq};
use gridhook_policy::record::{
    Counters, Cursor, DeadLetterRecord, DueKey, LaneCursor, PendingDelivery, RecordChange, Traffic,
    job::Job,
};

#[derive(Clone, Debug, Default)]
pub struct SimulatedStore {
    pub cursor: Cursor,
    pub pending: BTreeMap<(Lane, Seq), PendingDelivery>,
    /// The keys of `pending` in the order of due times.
    pub due: BTreeSet<DueKey>,
    /// Dead letters that wait for their destination.
    pub dead: BTreeMap<(Lane, Seq), DeadLetterRecord>,
    pub ended: Vec<Job>,
}

impl SimulatedStore {
    /// Everything below has ended: passed and not pending. [`None`] if no lane is open and nothing
    /// is pending.
    pub fn first_unended(&self) -> Option<Seq> {
        let mut low = self.cursor.first_unread();
        let mut first = self.pending.keys().next();
        while let Some((lane, seq)) = first {
            low = Some(low.map_or(*seq, |low| low.min(*seq)));
            first = self
                .pending
                .range((Lane(lane.0.saturating_add(1)), Seq(0))..)
                .next()
                .map(|(key, _)| key);
        }
        low
    }

    /// Applies a change as the journal would.
    ///
    /// # Panics
    /// The change contradicts the records: the policy has a bug.
    pub fn apply_change(&mut self, change: &RecordChange) {
        match change {
            RecordChange::Cursor(cursor) => self.cursor = (**cursor).clone(),
            RecordChange::Defer {
                lane,
                seq,
                pending,
                was_due,
            } => {
                if let Some(due) = *was_due {
                    assert!(
                        self.due.remove(&DueKey {
                            due,
                            lane: *lane,
                            seq: *seq
                        }),
                        "no key to take away: {change:?}"
                    );
                }
                assert!(
                    self.due.insert(DueKey {
                        due: pending.due,
                        lane: *lane,
                        seq: *seq
                    }),
                    "put twice: {change:?}"
                );
                self.pending.insert((*lane, *seq), pending.clone());
            }
            RecordChange::Settle { lane, seq, was_due } => {
                let key = DueKey {
                    due: *was_due,
                    lane: *lane,
                    seq: *seq,
                };
                assert!(self.due.remove(&key), "no key to take away: {change:?}");
                assert!(
                    self.pending.remove(&(*lane, *seq)).is_some(),
                    "was not pending: {change:?}"
                );
            }
            RecordChange::DeadLetter {
                lane, seq, dead, ..
            } => {
                assert!(
                    self.dead.insert((*lane, *seq), dead.clone()).is_none(),
                    "put aside twice: {change:?}"
                );
            }
            RecordChange::Redrive(page) => {
                for (_, seq, lane) in page.dead_letters.iter().filter_map(|letter| letter.waited) {
                    assert!(
                        self.dead.remove(&(lane, seq)).is_some(),
                        "was not put aside: {change:?}"
                    );
                }
            }
            RecordChange::JobEnded(job) => self.ended.push((**job).clone()),
            RecordChange::Note { .. } | RecordChange::StoreExcerpt { .. } => {}
        }
    }

    fn count_pending(&self, is_counted: impl Fn(Lane) -> bool) -> usize {
        let lanes = self.pending.keys().map(|(lane, _)| *lane);
        lanes.filter(|lane| is_counted(*lane)).count()
    }

    /// Checks that the counters' equations hold, that each record has one key, that no event is in
    /// two states, and that no due time is before the cursor's.
    ///
    /// # Panics
    /// An invariant does not hold: the policy has a bug.
    pub fn check_counters(&self) {
        let jobs = self.cursor.jobs.iter();
        let columns = [
            (self.cursor.counters, Traffic::Live),
            (self.cursor.replayed, Traffic::Jobs),
        ];
        let columns = columns.map(|(counters, of)| {
            (
                counters,
                self.count_pending(|lane| Traffic::from_lane(lane) == of),
            )
        });
        let columns = columns
            .into_iter()
            .chain(jobs.map(|job| (job.counters, self.count_pending(|lane| lane == job.lane))));
        for (counters, found) in columns {
            let Counters {
                passed,
                filtered,
                matched,
                delivered,
                pending,
                dead_lettered,
                dropped,
                canceled,
                ..
            } = counters;
            assert_eq!(passed, filtered + matched, "{:?}", self.cursor);
            assert_eq!(
                matched,
                delivered + pending + dead_lettered + dropped + canceled,
                "{:?}",
                self.cursor
            );
            assert_eq!(pending, found as u64, "{:?}", self.cursor);
        }
        let keys: BTreeSet<DueKey> = self
            .pending
            .iter()
            .map(|((lane, seq), pending)| DueKey {
                due: pending.due,
                lane: *lane,
                seq: *seq,
            })
            .collect();
        assert_eq!(keys, self.due, "a key for each record");
        assert!(
            self.pending.keys().all(|key| !self.dead.contains_key(key)),
            "pending and dead"
        );
        self.check_lanes();
        for lane in &self.cursor.lanes {
            for seq in lane.open.iter() {
                let key = (lane.lane, seq);
                assert!(
                    !self.pending.contains_key(&key) && !self.dead.contains_key(&key),
                    "open and passed: {key:?}"
                );
                assert!(!lane.done.contains(seq), "open and done: {key:?}");
            }
            assert!(
                lane.done.first_seq().is_none_or(|seq| seq >= lane.read),
                "done and passed: {lane:?}"
            );
        }
        if let Some(first) = self.due.first() {
            assert!(
                self.cursor.next_due.is_some_and(|next| next <= first.due),
                "{:?} is later",
                self.cursor
            );
        }
    }

    /// Checks that exactly one lane follows the log, that no two lanes read the same events, and
    /// that none is finished.
    fn check_lanes(&self) {
        let lanes: Vec<&LaneCursor> = self.cursor.own_lanes().collect();
        assert_eq!(
            lanes.first().map(|lane| (lane.lane, lane.end)),
            Some((Lane::LIVE, None)),
            "{lanes:?}"
        );
        let mut parts: Vec<(Seq, Seq)> = lanes
            .iter()
            .map(|lane| (lane.read, lane.end.unwrap_or(Seq(u64::MAX))))
            .collect();
        // A lane that only waits for outcomes reads nothing.
        parts.retain(|(read, end)| read < end);
        parts.sort_unstable();
        assert!(
            parts.windows(2).all(|two| two[0].1 <= two[1].0),
            "two lanes with one event: {lanes:?}"
        );
        assert!(
            lanes[1..].iter().all(|lane| lane.end.is_some()),
            "{lanes:?}"
        );
        let is_finished = |lane: &&LaneCursor| {
            lane.end.is_some_and(|end| lane.read >= end) && lane.open.is_empty()
        };
        assert!(
            !lanes.iter().any(is_finished),
            "a lane that has nothing to do: {lanes:?}"
        );
        let mut jobs: Vec<Lane> = self.cursor.jobs.iter().map(|job| job.lane).collect();
        jobs.sort_unstable();
        jobs.dedup();
        assert_eq!(
            jobs.len(),
            self.cursor.jobs.len(),
            "two jobs in a lane: {:?}",
            self.cursor
        );
        let orphan = |lane: &LaneCursor| lane.lane.is_job() && !jobs.contains(&lane.lane);
        assert!(
            !self.cursor.lanes.iter().any(orphan),
            "a job's lane without its job: {:?}",
            self.cursor
        );
        assert!(
            self.pending
                .keys()
                .all(|(lane, _)| !lane.is_job() || jobs.contains(lane)),
            "pending for no job"
        );
    }
}
