//! The outcome of a request: what it says about the endpoint, and what follows for its events.
//!
//! Invariants:
//! - A request has one outcome. Anything that arrives after the outcome or after the deadline
//!   changes nothing here.
//! - Every request ends: one without an outcome at its deadline counts as aborted.

use std::sync::Arc;

use super::Sending;
use crate::{
    Effect, OutgoingBatch, SendItem,
    endpoint::RequestReport,
    outcome::{Outcome, Reason, RequestResult},
    record::HeldBy,
    retry::{self, Jitter},
    subscription::{
        late_responses,
        settlement::{Attempt, Settlement, group_by_result, is_too_large},
    },
};
use gridhook_event::{Lane, RequestId, Timestamp};

/// The status with which a CloudEvents webhook declines all further events.
const GONE: u16 = 410;

impl Sending {
    /// A request that was aborted uses none of the attempts at its events: nothing was sent, or
    /// gridhook ended it.
    pub(in crate::subscription) fn on_finished(
        &mut self,
        settlement: &mut Settlement,
        id: RequestId,
        result: &RequestResult,
        now: Timestamp,
        jitter: Jitter,
    ) {
        self.finish_request(
            settlement,
            id,
            result,
            result.outcome != Outcome::Aborted,
            now,
            jitter,
        );
    }

    fn finish_request(
        &mut self,
        settlement: &mut Settlement,
        id: RequestId,
        result: &RequestResult,
        is_attempt: bool,
        now: Timestamp,
        jitter: Jitter,
    ) {
        // After the deadline the request counts as lost, and its events are sent again.
        let Some(request) = settlement.requests.end_request(id) else {
            return;
        };
        for (seq, _) in &request.detached_keys {
            settlement.end_of_turn((Lane::LIVE, *seq));
        }
        let edition = Arc::clone(&settlement.settings.edition);
        let terms = edition
            .rules_for(settlement.settings.destination)
            .terms_for(settlement.settings.dead_letter);
        let too_large = is_too_large(result, request.events);
        let lane = request.items.first().map_or(Lane::LIVE, |item| item.lane);
        // A response of an endpoint that the subscription had before settles its events, and does
        // not count for this one.
        if request.endpoint == settlement.settings.endpoint {
            // An endpoint that accepts smaller batches has not failed.
            let is_refusal = too_large || retry::blames_events(&edition, terms, result);
            self.note_response(settlement, &request, result, is_refusal, now, jitter);
            if too_large {
                self.endpoint.halve_batches(request.events);
            }
        }
        settlement.pending_write.finish_request(id);
        settlement.update_counters(lane, |counters| counters.requests += 1);
        if !result.is_delivered() {
            settlement.update_counters(lane, |counters| counters.requests_failed += 1);
        }
        let attempt = Attempt {
            sent: request.sent,
            is_counted: is_attempt && !too_large,
            is_too_large: too_large,
        };
        if result.events.is_empty() {
            return settlement.settle_events(&request.items, attempt, result, now, jitter);
        }
        for (items, event_result) in group_by_result(&request.items, &result.events) {
            let result = result.for_event(event_result);
            let is_too_large = is_too_large(&result, items.len());
            if is_too_large {
                self.endpoint.halve_batches(request.events);
            }
            let attempt = Attempt {
                is_counted: !is_too_large,
                is_too_large,
                ..attempt
            };
            settlement.settle_events(&items, attempt, &result, now, jitter);
        }
    }

    /// Notes what a response says about the endpoint. `refused`: it refused these events, and has
    /// not failed.
    fn note_response(
        &mut self,
        settlement: &mut Settlement,
        request: &OutgoingBatch,
        result: &RequestResult,
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
            in_flight: settlement.requests.count_with_ended(),
            outcome: result.outcome,
            refused,
            retry_after: result.retry_after,
            latency: result.latency,
        };
        self.endpoint.on_response(report, now);
        if result.repeated {
            self.endpoint.record_repeated(now);
        }
        // A request that gridhook aborted says nothing about the endpoint.
        if result.outcome != Outcome::Aborted {
            self.endpoint.record_reach(!result.unreached, now, jitter);
            if result.outcome != Outcome::Delivered && !refused {
                settlement.log.mark_backlog_end();
            }
        }
        let failing_for = self
            .endpoint
            .failing_for(now)
            .filter(|_| matches!(result.outcome, Outcome::Failed(_)));
        let cause = if settlement.settings.hold_when_gone && result.status == Some(GONE) {
            Some(HeldBy::Gone)
        } else {
            let limit = settlement.settings.hold_after_failing;
            failing_for
                .zip(limit)
                .filter(|(failing, limit)| failing >= limit)
                .map(|_| HeldBy::EndpointFailing)
        };
        if cause.is_some() && self.endpoint.hold_reason().is_none() {
            self.endpoint.set_hold(cause);
            settlement.pending_write.write_cursor_now();
        }
    }

    pub(in crate::subscription) fn fail_overdue_requests(
        &mut self,
        settlement: &mut Settlement,
        now: Timestamp,
        jitter: Jitter,
    ) {
        while let Some((id, _)) = settlement
            .requests
            .oldest()
            .filter(|(_, deadline)| *deadline <= now)
        {
            // The endpoint may have seen its events.
            self.abort_request(settlement, id, now, jitter);
        }
    }

    /// Ends a request whose outcome is not known.
    fn abort_request(
        &mut self,
        settlement: &mut Settlement,
        id: RequestId,
        now: Timestamp,
        jitter: Jitter,
    ) {
        let result = RequestResult::from_outcome(Outcome::Aborted);
        self.finish_request(settlement, id, &result, true, now, jitter);
    }

    pub(in crate::subscription) fn on_quarantine(
        &mut self,
        settlement: &mut Settlement,
        item: SendItem,
        now: Timestamp,
        jitter: Jitter,
    ) {
        if let Some((id, _)) = settlement.requests.remove_item(item.key()) {
            // The response may have caused the panic. The other events of the request are tried
            // again.
            self.abort_request(settlement, id, now, jitter);
        }
        if item.due.is_none()
            && let Some(lane) = settlement.log.lane_mut(item.lane)
        {
            lane.note_in_flight(item.seq);
        }
        settlement
            .queues
            .lane_queue_mut(item.lane)
            .drop_key(item.key());
        settlement.give_up(item, Reason::Quarantined, None, now);
    }

    pub(in crate::subscription) fn on_late(
        &mut self,
        settlement: &mut Settlement,
        request: Arc<OutgoingBatch>,
        now: Timestamp,
    ) {
        if request.endpoint == settlement.settings.endpoint {
            self.endpoint.record_success();
        }
        settlement.late.add_response(request);
        late_responses::settle_responses(settlement, now);
    }

    /// Tries a bare connection, if it is time.
    pub(in crate::subscription) fn begin_connection_attempt(
        &mut self,
        settlement: &Settlement,
        now: Timestamp,
    ) -> Option<Effect> {
        self.next_connection_attempt(settlement, now)
            .filter(|due| *due <= now)?;
        self.endpoint.begin_connection_attempt();
        Some(Effect::Connect)
    }

    pub(in crate::subscription) fn on_connection_attempt(
        &mut self,
        settlement: &mut Settlement,
        reached: bool,
        now: Timestamp,
        jitter: Jitter,
    ) {
        self.endpoint
            .record_connection_attempt(reached, now, jitter);
        if !reached {
            settlement.log.mark_backlog_end();
        }
    }
}
