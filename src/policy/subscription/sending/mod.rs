//! Selects what is sent next: first attempts from the lanes, and pending deliveries that are due.
//! Both are read ahead.
//!
//! | part | what it decides |
//! | --- | --- |
//! | `blocked` | why nothing leaves now |
//! | `lane_assignment` | which lane sends which positions of the log, what overflows and what expires |
//! | `reading` | what is read ahead |
//! | `jobs` | when jobs send, and what |
//! | `response` | what a response says about the endpoint |
//! | `timers` | when to act if nothing happens before |
//!
//! Invariants:
//! - A pending delivery is in exactly one place: on disk, in the retry window, being fetched,
//!   ready, or in flight.
//! - At most one fetch per queue is in progress, and none while enough is ready. Memory is bounded
//!   by one fetch and one batch per lane, however much is pending.
//! - Ready events are dropped as soon as the endpoint may not be called. Their expiry, schedule and
//!   record are checked again later.
//! - An expired event is never sent: it is given up without another attempt.

pub(super) mod blocked;
mod jobs;
mod lane_assignment;
pub(super) mod reading;
mod response;
mod timers;

use lane_assignment::ExpiryScan;

use super::{clients::PullClients, jobs as job_ends, log::is_own, settlement::Settlement};
use crate::{
    Effect, SendItem,
    batch::{BatchLimits, ReadyEvent},
    endpoint::{Endpoint, EventAge},
    lane::LaneReader,
    outcome::Reason,
    record::Health,
};
use gridhook_event::{Event, Lane, Timestamp};

/// The shares of the sending capacity.
#[derive(Clone, Copy, Debug)]
enum SendShare {
    Live,
    Backlog,
    Retries,
}

/// The number of turns after which the shares repeat.
const TURNS: usize = 20;

/// The order of the shares in a turn: the first with something to send sends. While all wait, the
/// live lane has nine turns in ten; the backlog and retries share the others. Without live events
/// the backlog has four in five, and retries one. No share starves another, and no turn is lost.
///
/// After a suspension, an endpoint is offered a tenth more than its last healthy rate at first.
/// Live events beyond their share of it wait, each behind those before it, so their share is that
/// large. The backlog takes about as long with any shares, because live events are few beside it.
fn shares_in_order(turn: usize) -> [SendShare; 3] {
    match turn {
        0 => [SendShare::Retries, SendShare::Backlog, SendShare::Live],
        10 => [SendShare::Backlog, SendShare::Retries, SendShare::Live],
        5 | 12 | 17 => [SendShare::Live, SendShare::Retries, SendShare::Backlog],
        _ => [SendShare::Live, SendShare::Backlog, SendShare::Retries],
    }
}

#[derive(Debug)]
pub(super) struct Sending {
    endpoint: Endpoint,
    expiry_scan: ExpiryScan,
    turn: usize,
}

impl Sending {
    pub(super) fn new(endpoint: Endpoint, health: Health) -> Self {
        Self {
            endpoint,
            expiry_scan: ExpiryScan::for_health(health),
            turn: 0,
        }
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(super) fn endpoint_mut(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    /// One turn of the sending pipeline, in three stages. `tests/policy/order.rs` has a case for
    /// each reason:
    ///
    /// 1. Prepare: assign positions of the log to lanes, and drop what is ready if the endpoint may
    ///    not be called. This comes before sending: an event that leaves from the live lane cannot
    ///    be assigned to the backlog any more.
    /// 2. Give up and send what is ready.
    /// 3. Read ahead, and end lanes and jobs. This comes last: what was given up or sent has made
    ///    room for reading, or was the last event of its lane, and a probe that has just left has
    ///    closed the endpoint again.
    ///
    /// The order within a stage does not matter.
    pub(super) fn fill_pipeline(
        &mut self,
        settlement: &mut Settlement,
        clients: &mut PullClients,
        effects: &mut Vec<Effect>,
        now: Timestamp,
    ) {
        loop {
            let is_dead_lettering = self.is_dead_lettering(settlement, now);
            self.assign_lanes(settlement, effects, now);
            self.drop_unsendable(settlement, is_dead_lettering, now);

            job_ends::take_back_canceled(settlement, now);
            self.give_up_ranges(settlement, effects, now);
            if is_dead_lettering {
                self.give_up_ready(settlement, clients, now);
            }
            self.send_batches(settlement, clients, effects, now);

            self.read_ahead(settlement, clients, effects, is_dead_lettering, now);
            // Others may have waited for a lane that ended: events that expired behind it, or the
            // live lane for a probe.
            if !self.end_finished(settlement, now) {
                return;
            }
        }
    }

    fn drop_unsendable(
        &self,
        settlement: &mut Settlement,
        is_dead_lettering: bool,
        now: Timestamp,
    ) {
        if self.endpoint.is_open(now) {
            return;
        }
        settlement.drop_ready_jobs();
        if !is_dead_lettering {
            settlement.drop_ready();
        }
    }

    fn send_batches(
        &mut self,
        settlement: &mut Settlement,
        clients: &mut PullClients,
        effects: &mut Vec<Effect>,
        now: Timestamp,
    ) {
        while self.blocked(settlement, clients, now).is_none() {
            let held_back = settlement.order.held_back();
            let batch = self.next_of_all(settlement, clients, now);
            if batch.is_empty() && settlement.order.held_back() == held_back {
                break;
            }
            // Behind events that are held back now, others may leave.
            let batch = settlement.prepare_batch(batch, now);
            if batch.is_empty() {
                continue;
            }
            if settlement.settings.is_pulled() {
                clients.lease_batch(settlement, batch, now);
            } else {
                effects.push(self.begin_request(settlement, batch, now));
            }
        }
        clients.finish_lease_round(settlement, self.endpoint.is_closed(), effects);
    }

    /// Returns whether a lane has ended, or has room again.
    fn end_finished(&mut self, settlement: &mut Settlement, now: Timestamp) -> bool {
        let was_full = settlement.log.is_any_full();
        settlement.pass_skipped(now);
        let has_ended = self.drop_finished(settlement);
        job_ends::end_jobs(settlement, now);
        has_ended || was_full && !settlement.log.is_any_full()
    }

    /// Maximum events that leave together.
    fn batch_max(&self, settlement: &Settlement, clients: &PullClients) -> u32 {
        let most = self.endpoint.batch_max();
        if settlement.settings.is_pulled() {
            most.min(clients.wanted_events())
        } else {
            most
        }
    }

    /// Whether events that are due become dead letters at once: the endpoint is in probation after
    /// a client error, and the subscription is configured not to wait. While a probe is in flight
    /// its outcome is awaited.
    pub(super) fn is_dead_lettering(&self, settlement: &Settlement, now: Timestamp) -> bool {
        settlement.settings.dead_letter_in_probation
            && self.endpoint.is_suspended_by_client_error(now)
    }

    /// Gives up ready events while events are dead-lettered in probation.
    fn give_up_ready(
        &mut self,
        settlement: &mut Settlement,
        clients: &PullClients,
        now: Timestamp,
    ) {
        while !settlement.pending_write.is_ahead() {
            let held_back = settlement.order.held_back();
            let batch = self.next_batch(settlement, clients, now);
            if batch.is_empty() && settlement.order.held_back() == held_back {
                break;
            }
            for ready in batch {
                let reason = if settlement.is_expired(&ready, now) {
                    Reason::TimeToLiveExceeded
                } else {
                    Reason::ProbationCausedByClientError
                };
                settlement.give_up(ready.item, reason, ready.last, now);
            }
        }
    }

    /// The next batch: of a job if nothing else can be sent or if it is a job's turn.
    fn next_of_all(
        &mut self,
        settlement: &mut Settlement,
        clients: &PullClients,
        now: Timestamp,
    ) -> Vec<ReadyEvent> {
        if settlement.jobs.has_turn() {
            let batch = self.next_job_batch(settlement, clients, now);
            if !batch.is_empty() {
                return batch;
            }
        }
        let batch = self.next_batch(settlement, clients, now);
        if batch.is_empty() {
            return self.next_job_batch(settlement, clients, now);
        }
        settlement.jobs.pass_turn();
        batch
    }

    fn next_batch(
        &mut self,
        settlement: &mut Settlement,
        clients: &PullClients,
        now: Timestamp,
    ) -> Vec<ReadyEvent> {
        let events_max = self.batch_max(settlement, clients);
        let limits = BatchLimits {
            events_max,
            ..settlement.settings.batch
        };
        let turn = (self.turn + 1) % TURNS;
        let skips_old = self.endpoint.holds_back_old(now);
        for share in shares_in_order(turn) {
            if let SendShare::Retries = share {
                if skips_old || settlement.queues.live().ready_events().is_empty() {
                    continue;
                }
                self.turn = turn;
                return settlement.queues.live_mut().take_ready(limits);
            }
            let is_such = |lane: &LaneReader| {
                let is_live = lane.lane() == Lane::LIVE;
                is_live == matches!(share, SendShare::Live)
                    && (!skips_old || settlement.log.is_fresh(lane))
            };
            if let Some(lane) = self.find_lane(settlement, is_such) {
                self.turn = turn;
                let limits = BatchLimits {
                    events_max: events_max.min(settlement.free_leases()),
                    ..limits
                };
                let batch = settlement.take_batch(lane, limits, now);
                if !batch.is_empty() {
                    return batch;
                }
            }
        }
        Vec::new()
    }

    /// The first such lane with something to send, apart from jobs, if first attempts may leave.
    fn find_lane(
        &self,
        settlement: &Settlement,
        is_such: impl Fn(&LaneReader) -> bool,
    ) -> Option<Lane> {
        if self.awaits_lane_assignment(settlement) || settlement.free_leases() == 0 {
            return None;
        }
        let only = settlement.only_lane();
        settlement.log.find_sendable(|lane| {
            is_own(lane.lane()) && only.is_none_or(|only| lane.lane() == only) && is_such(lane)
        })
    }

    /// The age of the events that may leave first: fresh ones if there are any.
    fn next_age(&self, settlement: &Settlement) -> EventAge {
        let log = &settlement.log;
        let fresh_lane = self.find_lane(settlement, |lane| {
            log.is_fresh(lane) && log.open_room(lane) > 0
        });
        fresh_lane.map_or(EventAge::Old, |_| EventAge::Fresh)
    }

    fn begin_request(
        &mut self,
        settlement: &mut Settlement,
        batch: Vec<ReadyEvent>,
        now: Timestamp,
    ) -> Effect {
        // A batch cut at the preferred size has more behind it.
        let full = batch.len() >= self.endpoint.batch_max() as usize || settlement.is_any_ready();
        // With the exact capacity: `unzip` makes room for four, and most batches have one event.
        let mut items = Vec::<SendItem>::with_capacity(batch.len());
        let mut events = Vec::<Event>::with_capacity(batch.len());
        let mut bytes = 0;
        let age = settlement.age_of(&batch);
        for ReadyEvent { item, event, .. } in batch {
            bytes += event.delivered_len(settlement.settings.batch.schema);
            items.push(item);
            events.push(event);
        }
        if let Health::Suspended { .. } = self.endpoint.health()
            && !self.endpoint.is_early()
        {
            settlement.log.mark_backlog_end();
        }
        let request = settlement.begin_request(items, bytes, now);
        self.endpoint.record_sent(request.id, age, full, now);
        Effect::Send { request, events }
    }
}
