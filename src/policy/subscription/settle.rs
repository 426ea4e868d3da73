//! The consequences of a request's outcome: each of its events is delivered, pending again, or
//! given up.
//!
//! Invariants:
//! - A request has one outcome. Anything that arrives after the outcome or after the deadline
//!   changes nothing here.
//! - A matched event ends exactly once, and its pending record is removed in the same write. The
//!   counters therefore add up after every write.
//! - An attempt is counted only where the endpoint judged the event: not where it rejected a batch
//!   as too large, and not where gridhook aborted the request.
//! - Every request ends: one without an outcome at its deadline counts as aborted.

use std::{collections::BTreeMap, sync::Arc};

use super::{Subscription, blocking::BlockingEvent, lane_mut};
use crate::{
    OutgoingBatch, SendItem,
    batch::LastAttempt,
    edition::StepOrigin,
    endpoint::RequestReport,
    outcome::{EventResult, Failure, LastOutcome, Outcome, Reason, RequestResult},
    record::{
        BLOCKING, DeadLetterRecord, DueKey, HELD_BACK, HeldBy, LedgerEntry, LedgerEvent,
        PendingDelivery, RecordChange, SeqRun, SeqSet,
    },
    retry::{self, Jitter, RetryDecision},
};
use gridhook_event::{Lane, RequestId, Seq, Timestamp};

/// CloudEvents webhooks: the receiver wants no more events.
const GONE: u16 = 410;

impl Subscription {
    /// A request that was aborted uses none of the attempts at its events: nothing was sent, or
    /// gridhook ended it.
    pub(super) fn on_finished(
        &mut self,
        id: RequestId,
        answer: &RequestResult,
        now: Timestamp,
        jitter: Jitter,
    ) {
        self.finish_request(id, answer, answer.outcome != Outcome::Aborted, now, jitter);
    }

    fn finish_request(
        &mut self,
        id: RequestId,
        answer: &RequestResult,
        is_attempt: bool,
        now: Timestamp,
        jitter: Jitter,
    ) {
        // After the deadline the request counts as lost, and its events are sent again.
        let Some(request) = self.requests.end_request(id) else {
            return;
        };
        for (seq, _) in &request.detached_keys {
            self.end_of_turn((Lane::LIVE, *seq));
        }
        let edition = Arc::clone(&self.settings.edition);
        let terms = edition
            .rules_for(self.settings.destination)
            .terms_for(self.settings.dead_letter);
        let too_large = is_too_large(answer, request.events);
        let lane = request.items.first().map_or(Lane::LIVE, |item| item.lane);
        // An answer of an endpoint that the subscription had before settles its events, and says
        // nothing about this one.
        if request.endpoint == self.settings.endpoint {
            // An endpoint that accepts smaller batches has not failed.
            let is_refusal = too_large || retry::blames_events(&edition, terms, answer);
            self.note_response(&request, answer, is_refusal, now, jitter);
            if too_large {
                self.endpoint.halve_batches(request.events);
            }
        }
        self.pending_write.finish_request(id);
        self.update_counters(lane, |counters| counters.requests += 1);
        if !answer.is_delivered() {
            self.update_counters(lane, |counters| counters.requests_failed += 1);
        }
        let attempt = Attempt {
            sent: request.sent,
            is_counted: is_attempt && !too_large,
            is_too_large: too_large,
        };
        if answer.events.is_empty() {
            return self.settle_events(&request.items, attempt, answer, now, jitter);
        }
        for (items, result) in group_by_result(&request.items, &answer.events) {
            let answer = answer.for_event(result);
            let is_too_large = is_too_large(&answer, items.len());
            if is_too_large {
                self.endpoint.halve_batches(request.events);
            }
            let attempt = Attempt {
                is_counted: !is_too_large,
                is_too_large,
                ..attempt
            };
            self.settle_events(&items, attempt, &answer, now, jitter);
        }
    }

    /// Settles events of a request that have the same result.
    fn settle_events(
        &mut self,
        items: &[SendItem],
        attempt: Attempt,
        answer: &RequestResult,
        now: Timestamp,
        jitter: Jitter,
    ) {
        if answer.outcome == Outcome::Delivered {
            self.note_attempt(items, answer, None, now);
            for item in items {
                self.mark_delivered(*item);
            }
            return;
        }
        self.counts.count_failure(answer.outcome);
        if self.takes_back(items.first().map_or(Lane::LIVE, |item| item.lane)) {
            self.note_attempt(items, answer, None, now);
            return self.cancel_deliveries(items.to_vec(), now);
        }
        let edition = Arc::clone(&self.settings.edition);
        let terms = edition
            .rules_for(self.settings.destination)
            .terms_for(self.settings.dead_letter);
        let Attempt {
            sent,
            is_counted,
            is_too_large,
        } = attempt;
        let attempts_max = if is_counted {
            self.settings.attempts_max
        } else {
            u32::MAX
        };
        // All events of a request have the same number of attempts. The times of their first
        // attempts may differ.
        let judge_item = |item: &SendItem| {
            if is_too_large {
                // A batch that was merely too large is not an attempt at its events.
                return (*item, RetryDecision::Again(now));
            }
            let number = item.attempts + 1;
            let failure = retry::Failed {
                number,
                first: first_sent(item, sent),
                sent,
                ended: now,
            };
            let decision =
                retry::judge_failure(&edition, terms, attempts_max, failure, answer, jitter);
            (
                SendItem {
                    attempts: item.attempts + u32::from(is_counted),
                    ..*item
                },
                decision,
            )
        };
        let decisions: Vec<(SendItem, RetryDecision)> = items.iter().map(judge_item).collect();
        let mut nexts: BTreeMap<Option<Timestamp>, Vec<SendItem>> = BTreeMap::new();
        for (item, (_, decision)) in items.iter().zip(&decisions) {
            let next = if let RetryDecision::Again(due) = decision {
                Some(*due)
            } else {
                None
            };
            nexts.entry(next).or_default().push(*item);
        }
        for (next, items) in nexts {
            self.note_attempt(&items, answer, next, now);
        }
        let last = LastAttempt {
            outcome: answer.outcome.into(),
            status: answer.status,
            tried: sent,
        };
        for (item, decision) in decisions {
            match decision {
                RetryDecision::Again(due) => self.defer_event(item, due, last),
                RetryDecision::Never(reason) => self.give_up(item, reason, Some(last), now),
            }
        }
    }

    /// Notes what a response says about the endpoint. `refused`: it refused these events, and has
    /// not failed.
    fn note_response(
        &mut self,
        request: &OutgoingBatch,
        answer: &RequestResult,
        refused: bool,
        now: Timestamp,
        jitter: Jitter,
    ) {
        let OutgoingBatch {
            id, sent, events, ..
        } = *request;
        let report = RequestReport {
            request: id,
            sent,
            events,
            in_flight: self.requests.count_with_ended(),
            outcome: answer.outcome,
            refused,
            retry_after: answer.retry_after,
            latency: answer.latency,
        };
        self.endpoint.on_response(report, now);
        if answer.repeated {
            self.endpoint.record_repeated(now);
        }
        // A request that gridhook aborted says nothing about the endpoint.
        if answer.outcome != Outcome::Aborted {
            self.endpoint.record_reach(!answer.unreached, now, jitter);
            if answer.outcome != Outcome::Delivered && !refused {
                self.backlog_end = self.end;
            }
        }
        let failing_for = self
            .endpoint
            .failing_for(now)
            .filter(|_| matches!(answer.outcome, Outcome::Failed(_)));
        let cause = if self.settings.hold_when_gone && answer.status == Some(GONE) {
            Some(HeldBy::Gone)
        } else {
            let limit = self.settings.hold_after_failing;
            failing_for
                .zip(limit)
                .filter(|(failing, limit)| failing >= limit)
                .map(|_| HeldBy::EndpointFailing)
        };
        if cause.is_some() && self.endpoint.hold_reason().is_none() {
            self.endpoint.set_hold(cause);
            self.pending_write.write_cursor_now();
        }
    }

    pub(super) fn fail_overdue_requests(&mut self, now: Timestamp, jitter: Jitter) {
        while let Some((id, _)) = self
            .requests
            .oldest()
            .filter(|(_, deadline)| *deadline <= now)
        {
            // The endpoint may have seen its events.
            self.finish_request(
                id,
                &RequestResult::from_outcome(Outcome::Aborted),
                true,
                now,
                jitter,
            );
        }
    }

    pub(super) fn on_quarantine(&mut self, item: SendItem, now: Timestamp, jitter: Jitter) {
        if let Some((id, _)) = self.requests.remove_item(item.key()) {
            // The response may have caused the panic. The other events of the request are tried
            // again.
            self.finish_request(
                id,
                &RequestResult::from_outcome(Outcome::Aborted),
                true,
                now,
                jitter,
            );
        }
        if item.due.is_none()
            && let Some(lane) = lane_mut(&mut self.lanes, item.lane)
        {
            lane.note_in_flight(item.seq);
        }
        self.queue_mut(item.lane).drop_key(item.key());
        self.give_up(item, Reason::Quarantined, None, now);
    }

    /// Gives up an event that cannot be transformed: every further attempt would fail in the same
    /// way. It counts as an attempt, so that the history has the error.
    pub(super) fn fail_transformation(&mut self, item: SendItem, detail: String, now: Timestamp) {
        let failure = Failure::TransformationFailed;
        let result = RequestResult {
            detail,
            ..RequestResult::from_outcome(failure)
        };
        self.note_attempt(&[item], &result, None, now);
        self.counts.count_failure(failure.into());
        let last = LastAttempt {
            outcome: failure.into(),
            status: None,
            tried: now,
        };
        let item = SendItem {
            attempts: item.attempts + 1,
            ..item
        };
        self.give_up(item, Reason::Undeliverable(failure), Some(last), now);
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
                last.filter(|_| !self.is_pulled()).unwrap_or(abort),
            );
        }
        self.end_given_up(item, reason, last, now);
    }

    /// The same for an event that blocks no key, or no longer.
    pub(super) fn end_given_up(
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
            dead_lettered: self.dead_letters(reason),
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
        self.counts.give_up(reason, self.dead_letters(reason));
        if !self.dead_letters(reason) {
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
    pub(super) fn on_unreadable(&mut self, name: Lane, from: Seq, upto: Seq) {
        let Some(lane) = lane_mut(&mut self.lanes, name) else {
            return;
        };
        let missing = lane.skip_unreadable(from, upto);
        let events = missing.event_count();
        if events == 0 {
            return;
        }
        self.counts.drop_all(Reason::Missing, events);
        self.update_counters(name, |counters| {
            counters.passed += events;
            counters.matched += events;
            counters.dropped += events;
        });
        self.order_behind_write();
        let why = LedgerEvent::GivenUp {
            reason: Reason::Missing,
            dead_lettered: false,
        };
        self.pending_write.give_up_runs(name, why, missing);
    }

    /// The outcome of an event that ends without an attempt.
    fn outcome_without_attempt(&self) -> LastOutcome {
        if self.is_pulled() {
            LastOutcome::Delivering
        } else {
            LastOutcome::Probation
        }
    }

    /// Whether an event given up for this reason becomes a dead letter. An unreadable event has no
    /// content to keep.
    pub(super) fn dead_letters(&self, reason: Reason) -> bool {
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
            if !self.first_outcome(item) {
                return;
            }
            self.update_counters(lane, |counters| counters.pending += 1);
        }
        // The age of an event in a job counts from its first attempt there.
        let counts = lane.is_job()
            || self.settings.edition.retry.steps == StepOrigin::Offsets && attempts > 0;
        let first_attempt = item.since.or_else(|| counts.then_some(tried));
        let pending = PendingDelivery {
            attempts,
            due,
            last,
            status,
            tried,
            received: first_attempt,
        };
        if let Some(ordering) = self.ordering.as_mut().filter(|_| due == BLOCKING) {
            let event = BlockingEvent {
                lane,
                appended: item.appended,
                pending: pending.clone(),
            };
            ordering.blocking.insert(seq, event);
            self.pending_write.write_cursor_now();
        }
        self.pending_write.push_change(RecordChange::Defer {
            lane,
            seq,
            pending,
            was_due,
        });
        self.invalidate_lookups((lane, seq));
        if let Some(was_due) =
            was_due.filter(|was_due| *was_due != due && !self.is_held_back(*was_due))
        {
            self.queue_mut(lane).due.remove_pending(DueKey {
                due: was_due,
                lane,
                seq,
            });
        }
        if !self.is_held_back(due) {
            self.queue_mut(lane).due.insert(DueKey { due, lane, seq });
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
        if !self.is_held_back(was_due) {
            self.queue_mut(lane).due.remove_pending(DueKey {
                due: was_due,
                lane,
                seq,
            });
        }
        self.queue_mut(lane).due.insert(DueKey { due, lane, seq });
    }

    /// Ends the pending delivery. Returns false if its end has been written already.
    pub(super) fn remove_pending(&mut self, item: SendItem) -> bool {
        let Some(was_due) = item.due else {
            return self.first_outcome(item);
        };
        let SendItem { lane, seq, .. } = item;
        self.invalidate_lookups((lane, seq));
        self.leases.end_lease((lane, seq));
        self.update_counters(lane, |counters| {
            counters.pending = counters.pending.saturating_sub(1)
        });
        self.pending_write
            .push_change(RecordChange::Settle { lane, seq, was_due });
        if !self.is_held_back(was_due) {
            self.queue_mut(lane).due.remove_pending(DueKey {
                due: was_due,
                lane,
                seq,
            });
        }
        true
    }

    /// A decision about a pending delivery makes lookups in progress stale.
    fn invalidate_lookups(&mut self, key: (Lane, Seq)) {
        self.late.lookup().invalidate_key(key);
        if let Some(lookup) = self.leases.lookup() {
            lookup.invalidate_key(key);
        }
    }

    /// A first attempt has its outcome: the lane passes the event.
    fn first_outcome(&mut self, item: SendItem) -> bool {
        let open =
            lane_mut(&mut self.lanes, item.lane).is_some_and(|lane| lane.mark_ended(item.seq));
        if open {
            self.pending_write.write_cursor_soon();
            self.update_counters(item.lane, |counters| {
                (counters.passed, counters.matched) = (counters.passed + 1, counters.matched + 1)
            });
        }
        open
    }

    fn note_attempt(
        &mut self,
        items: &[SendItem],
        answer: &RequestResult,
        next: Option<Timestamp>,
        now: Timestamp,
    ) {
        let Some(first) = items.first() else { return };
        let runs = match items {
            [item] => vec![SeqRun::single(item.seq)],
            items => runs_of(items.iter().map(|item| item.seq).collect()),
        };
        let RequestResult {
            outcome,
            status,
            latency,
            ..
        } = *answer;
        let mut excerpt = None;
        if outcome != Outcome::Delivered
            && let Some(kept) = self.excerpts.store_excerpt(answer, now)
        {
            excerpt = Some(kept.key.hash);
            if let Some(excerpt) = kept.unwritten {
                self.pending_write.push_change(RecordChange::StoreExcerpt {
                    key: kept.key,
                    excerpt,
                });
            }
        }
        let what = LedgerEvent::Attempted {
            outcome,
            status,
            latency,
            next,
            excerpt,
        };
        self.pending_write.push_entry(
            first.lane,
            first.attempts + 1,
            LedgerEntry {
                at: now,
                runs,
                what,
            },
        );
    }
}

/// What a request was for its events.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    sent: Timestamp,
    /// Whether it uses one of their attempts.
    is_counted: bool,
    /// Whether a smaller batch may be accepted.
    is_too_large: bool,
}

/// The events of a request of which a service has taken some only, by their results.
fn group_by_result<'a>(
    items: &[SendItem],
    results: &'a [EventResult],
) -> Vec<(Vec<SendItem>, &'a EventResult)> {
    let mut groups: Vec<(Vec<SendItem>, &EventResult)> = Vec::new();
    for item in items {
        // All have one.
        let Some(result) = results.iter().find(|result| result.seq == item.seq) else {
            continue;
        };
        let is_same =
            |other: &EventResult| (other.outcome, other.status) == (result.outcome, result.status);
        match groups.iter_mut().find(|(_, other)| is_same(other)) {
            Some((group, _)) => group.push(*item),
            None => groups.push((vec![*item], result)),
        }
    }
    groups
}

/// Whether a smaller batch may be accepted.
fn is_too_large(answer: &RequestResult, events: usize) -> bool {
    answer.outcome == Outcome::Failed(Failure::PayloadTooLarge) && events > 1
}

/// When the first attempt was sent, given that the present one was sent at `sent`.
fn first_sent(item: &SendItem, sent: Timestamp) -> Timestamp {
    item.since.filter(|_| item.attempts > 0).unwrap_or(sent)
}

/// The runs of these events.
pub(super) fn runs_of(mut seqs: Vec<Seq>) -> Vec<SeqRun> {
    seqs.sort_unstable();
    seqs.into_iter().collect::<SeqSet>().into_runs()
}
