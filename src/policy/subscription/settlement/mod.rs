//! The settlement of events: each is delivered, pending again, or given up.
//!
//! Invariants:
//! - A matched event ends exactly once, and its pending record is removed in the same write. The
//!   counters therefore add up after every write.
//! - An attempt is counted only where the endpoint judged the event: not where it rejected a batch
//!   as too large, and not where gridhook aborted the request.
//!
//! It owns the state of events: how far the log is read, what is queued and in flight, the order
//! by key, the totals, and the changes of the next write. It has no reference to the endpoint.

mod attempts;
mod batches;
mod lanes;
mod order;

use std::sync::Arc;

use super::{
    SubscriptionSettings, blocking::BlockingEvent, excerpt::ExcerptCache, in_flight::InFlight,
    jobs::Jobs, late_responses::LateResponses, locks::Locks, log::LogReading, ordering::KeyOrder,
    pending_write::PendingWrite, queues::SendQueues, totals::Totals,
};
use crate::{
    SendItem,
    batch::LastAttempt,
    edition::StepOrigin,
    outcome::{LastOutcome, Outcome, Reason},
    record::{
        BLOCKING, Counters, Cursor, DeadLetterRecord, DueKey, HELD_BACK, LedgerEntry, LedgerEvent,
        PendingDelivery, RecordChange, SeqRun,
    },
};
use gridhook_event::{Lane, Seq, Timestamp};

pub(super) use self::attempts::{Attempt, group_by_result, is_too_large, runs_of};

#[derive(Debug)]
pub(super) struct Settlement {
    pub(super) settings: Arc<SubscriptionSettings>,
    pub(super) log: LogReading,
    pub(super) queues: SendQueues,
    pub(super) requests: InFlight,
    pub(super) order: KeyOrder,
    pub(super) jobs: Jobs,
    pub(super) totals: Totals,
    pub(super) late: LateResponses,
    pub(super) locks: Locks,
    excerpts: ExcerptCache,
    pub(super) pending_write: PendingWrite,
    /// Whether expiry is suspended because the clock is not trusted.
    is_expiry_paused: bool,
}

pub(super) struct RecoveredParts {
    pub(super) settings: Arc<SubscriptionSettings>,
    pub(super) log: LogReading,
    pub(super) queues: SendQueues,
    pub(super) requests: InFlight,
    pub(super) order: KeyOrder,
    pub(super) jobs: Jobs,
}

impl Settlement {
    pub(super) fn new(recovered: RecoveredParts, cursor: &Cursor) -> Self {
        let RecoveredParts {
            settings,
            log,
            queues,
            requests,
            order,
            jobs,
        } = recovered;
        Self {
            settings,
            log,
            queues,
            requests,
            order,
            jobs,
            totals: Totals::from_cursor(cursor),
            late: LateResponses::default(),
            locks: Locks::default(),
            excerpts: ExcerptCache::default(),
            pending_write: PendingWrite::from_filtered(&cursor.filtered_out),
            is_expiry_paused: false,
        }
    }

    pub(super) fn is_expiry_paused(&self) -> bool {
        self.is_expiry_paused
    }

    /// Pauses or resumes expiry. Returns whether it is resumed.
    pub(super) fn set_expiry_paused(&mut self, is_paused: bool) -> bool {
        std::mem::replace(&mut self.is_expiry_paused, is_paused) && !is_paused
    }

    /// When the first pending delivery is due, wherever it is.
    pub(super) fn first_due(&self) -> Option<Timestamp> {
        let in_flight = self.requests.iter_items().filter_map(|item| item.due);
        let blocking = self
            .order
            .get()
            .filter(|ordering| ordering.may_hold_back())
            .map(|_| BLOCKING);
        self.queues
            .first_due()
            .into_iter()
            .chain(in_flight)
            .chain(blocking)
            .min()
    }

    /// The part of the cursor that this knows.
    pub(super) fn to_cursor(&self) -> Cursor {
        Cursor {
            lanes: self.log.to_cursor(),
            jobs: self.jobs.to_cursor(),
            jobs_begun: self.jobs.started(),
            next_due: self.first_due(),
            filtered_out: self.pending_write.filtered_out().to_vec(),
            ..self.totals.to_cursor()
        }
    }

    /// Notes that all changes are in the write in progress.
    pub(super) fn begin_write(&mut self) {
        self.queues.begin_write();
        if let Some(ordering) = self.order.get_mut() {
            ordering.begin_write();
        }
        self.jobs.begin_write();
    }

    /// Notes that the write in progress is durable.
    pub(super) fn finish_write(&mut self) {
        self.pending_write.finish_write();
        self.queues.finish_write();
        self.jobs.finish_write();
        self.release_durable();
    }

    /// Counts an outcome of an event or a request of this lane.
    pub(super) fn update_counters(&mut self, lane: Lane, count: impl Fn(&mut Counters)) {
        self.totals.update_counters(lane, &mut self.jobs, count);
    }

    /// Gives up an event after `item.attempts` attempts; `last` is the outcome of the last one.
    pub(super) fn give_up(
        &mut self,
        item: SendItem,
        reason: Reason,
        last: Option<LastAttempt>,
        now: Timestamp,
    ) {
        if self.blocks_key(&item, reason) {
            // A pull client no longer holds it.
            let abort =
                LastAttempt::from_client(Outcome::Aborted, last.map_or(now, |last| last.tried));
            return self.defer_event(
                item,
                BLOCKING,
                last.filter(|_| !self.settings.is_pulled()).unwrap_or(abort),
            );
        }
        self.end_with_give_up(item, reason, last, now);
    }

    /// As [`Settlement::give_up`], for an event that does not block its order key.
    pub(super) fn end_with_give_up(
        &mut self,
        item: SendItem,
        reason: Reason,
        last: Option<LastAttempt>,
        now: Timestamp,
    ) {
        if !self.end_undelivered(item, reason, last, now) {
            return;
        }
        let SendItem {
            lane,
            seq,
            attempts,
            ..
        } = item;
        let what = LedgerEvent::GivenUp {
            reason,
            dead_lettered: self.is_dead_lettered(reason),
        };
        self.pending_write.push_entry(
            lane,
            attempts,
            LedgerEntry {
                at: now,
                runs: vec![SeqRun::single(seq)],
                what,
            },
        );
        self.pending_write.write_cursor_now();
    }

    /// Counts the event as given up and dead-letters it if there is a destination. The caller adds
    /// the ledger entry. Returns false if the event has ended already.
    pub(super) fn end_undelivered(
        &mut self,
        item: SendItem,
        reason: Reason,
        last: Option<LastAttempt>,
        now: Timestamp,
    ) -> bool {
        if !self.remove_pending(item) {
            return false;
        }
        self.end_of_turn_with_write(item.key());
        let SendItem {
            lane,
            seq,
            attempts,
            ..
        } = item;
        let is_dead_lettered = self.is_dead_lettered(reason);
        self.totals.outcomes_mut().give_up(reason, is_dead_lettered);
        if !is_dead_lettered {
            self.update_counters(lane, |counters| counters.dropped += 1);
            return true;
        }
        self.update_counters(lane, |counters| counters.dead_lettered += 1);
        // Probation is the outcome of an event that ends by it, whatever its attempts met before.
        let last_attempt = last.filter(|_| reason != Reason::ProbationCausedByClientError);
        let dead = DeadLetterRecord {
            reason,
            attempts,
            outcome: last_attempt.map_or(self.outcome_without_attempt(), |last| last.outcome),
            status: last_attempt.and_then(|last| last.status),
            published: item.appended,
            tried: last.map(|last| last.tried),
            given_up: now,
        };
        let due = now.after(self.settings.edition.dead_letter.delay);
        self.pending_write.push_change(RecordChange::DeadLetter {
            lane,
            seq,
            due,
            dead,
        });
        true
    }

    /// Gives up events that cannot be read. They count as matched, because it is unknown whether
    /// the filter would match.
    pub(super) fn on_unreadable(&mut self, lane: Lane, from: Seq, upto: Seq) {
        let Some(lane_reader) = self.log.lane_mut(lane) else {
            return;
        };
        let missing = lane_reader.skip_unreadable(from, upto);
        let events = missing.event_count();
        if events == 0 {
            return;
        }
        self.totals.outcomes_mut().drop_all(Reason::Missing, events);
        self.update_counters(lane, |counters| {
            counters.passed += events;
            counters.matched += events;
            counters.dropped += events;
        });
        self.order_behind_write();
        let what = LedgerEvent::GivenUp {
            reason: Reason::Missing,
            dead_lettered: false,
        };
        self.pending_write.give_up_runs(lane, what, missing);
    }

    /// The outcome of an event that ends without an attempt.
    fn outcome_without_attempt(&self) -> LastOutcome {
        if self.settings.is_pulled() {
            LastOutcome::Delivering
        } else {
            LastOutcome::Probation
        }
    }

    /// Whether an event given up for this reason becomes a dead letter. An unreadable event has no
    /// content to keep.
    pub(super) fn is_dead_lettered(&self, reason: Reason) -> bool {
        self.settings.dead_letter && reason != Reason::Missing
    }

    pub(super) fn mark_delivered(&mut self, item: SendItem) {
        self.end_of_turn(item.key());
        if self.remove_pending(item) {
            self.update_counters(item.lane, |counters| counters.delivered += 1);
        }
    }

    /// Makes the event pending after `item.attempts` attempts, of which this was the last.
    pub(super) fn defer_event(&mut self, item: SendItem, due: Timestamp, last: LastAttempt) {
        let LastAttempt {
            outcome: last,
            status,
            tried,
        } = last;
        let SendItem {
            lane,
            seq,
            attempts,
            due: was_due,
            ..
        } = item;
        let due = if self.is_behind_in_order((lane, seq)) {
            HELD_BACK
        } else {
            due
        };
        if was_due.is_none() {
            if !self.note_first_outcome(item) {
                return;
            }
            self.update_counters(lane, |counters| counters.pending += 1);
        }
        // The age of an event in a job counts from its first attempt there.
        let counts_from_attempt = lane.is_job()
            || self.settings.edition.retry.steps == StepOrigin::Offsets && attempts > 0;
        let first_attempt = item.since.or(counts_from_attempt.then_some(tried));
        let pending = PendingDelivery {
            attempts,
            due,
            last,
            status,
            tried,
            received: first_attempt,
        };
        if let Some(ordering) = self.order.get_mut().filter(|_| due == BLOCKING) {
            let event = BlockingEvent {
                lane,
                appended: item.appended,
                pending: pending.clone(),
            };
            ordering.blocking_mut().insert(seq, event);
            self.pending_write.write_cursor_now();
        }
        self.pending_write.push_change(RecordChange::Defer {
            lane,
            seq,
            pending,
            was_due,
        });
        self.invalidate_lookups((lane, seq));
        if let Some(was_due) = was_due.filter(|was_due| *was_due != due) {
            self.remove_from_window(DueKey {
                due: was_due,
                lane,
                seq,
            });
        }
        if !self.order.is_held_back(due) {
            self.queues
                .lane_queue_mut(lane)
                .window_mut()
                .insert(DueKey { due, lane, seq });
        }
    }

    /// Removes a pending delivery from the window of retries, if it is there.
    fn remove_from_window(&mut self, key: DueKey) {
        // A delivery that is held back is not in the window.
        if !self.order.is_held_back(key.due) {
            self.queues
                .lane_queue_mut(key.lane)
                .window_mut()
                .remove_pending(key);
        }
    }

    /// Moves the due time of a pending delivery without an attempt.
    pub(super) fn move_due_time(
        &mut self,
        lane: Lane,
        seq: Seq,
        pending: PendingDelivery,
        due: Timestamp,
    ) {
        let was_due = pending.due;
        let pending = PendingDelivery { due, ..pending };
        self.pending_write.push_change(RecordChange::Defer {
            lane,
            seq,
            pending,
            was_due: Some(was_due),
        });
        self.invalidate_lookups((lane, seq));
        self.remove_from_window(DueKey {
            due: was_due,
            lane,
            seq,
        });
        self.queues
            .lane_queue_mut(lane)
            .window_mut()
            .insert(DueKey { due, lane, seq });
    }

    /// Ends the pending delivery. Returns false if its end has been written already.
    pub(super) fn remove_pending(&mut self, item: SendItem) -> bool {
        let Some(was_due) = item.due else {
            return self.note_first_outcome(item);
        };
        let SendItem { lane, seq, .. } = item;
        self.invalidate_lookups((lane, seq));
        self.locks.end_lock((lane, seq));
        self.update_counters(lane, |counters| {
            counters.pending = counters.pending.saturating_sub(1)
        });
        self.pending_write
            .push_change(RecordChange::Settle { lane, seq, was_due });
        self.remove_from_window(DueKey {
            due: was_due,
            lane,
            seq,
        });
        true
    }

    /// A decision about a pending delivery makes lookups in progress stale.
    fn invalidate_lookups(&mut self, key: (Lane, Seq)) {
        self.late.lookup_mut().invalidate_key(key);
        if let Some(lookup) = self.locks.lookup_mut() {
            lookup.invalidate_key(key);
        }
    }

    /// Notes the outcome of a first attempt: the lane passes the event. Returns false if it has
    /// been noted already.
    fn note_first_outcome(&mut self, item: SendItem) -> bool {
        let was_in_flight = self
            .log
            .lane_mut(item.lane)
            .is_some_and(|lane| lane.mark_ended(item.seq));
        if was_in_flight {
            self.pending_write.write_cursor_soon();
            self.update_counters(item.lane, |counters| {
                counters.passed += 1;
                counters.matched += 1;
            });
        }
        was_in_flight
    }
}
