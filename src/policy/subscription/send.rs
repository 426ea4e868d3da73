//! Selects what is sent next: first attempts from the lanes, and pending deliveries that are due.
//! Both are read ahead.
//!
//! Invariants:
//! - A pending delivery is in exactly one place: on disk, in the retry window, being fetched,
//!   ready, or in flight.
//! - At most one fetch per queue is in progress, and none while enough is ready. Memory is bounded
//!   by one fetch and one batch per lane, however much is pending.
//! - Ready events are dropped as soon as the endpoint may not be called. Their expiry, schedule and
//!   record are checked again later.
//! - An expired event is never sent: it is given up without another attempt.

use std::collections::{HashMap, HashSet};

use super::{
    Subscription,
    lane_assignment::is_own,
    ordering::{LANE_WAITING_MAX, WAITING_BYTES},
    queue::{SendQueue, WantedEvent},
};
use crate::{
    Effect, SendItem,
    batch::{BatchLimits, LastAttempt, ReadyEvent, Turn},
    lane::LaneReader,
    outcome::{LastOutcome, Reason},
    property::PropertyGroup,
    record::{
        BLOCKING, DueKey, FetchedPending, Health, OPEN_EVENTS_MAX, PendingDelivery, SeqSet,
        Traffic, is_exempt,
    },
    retry_window::WindowEntry,
};
use gridhook_event::{Event, Lane, Seq, Timestamp};

/// Events with an outcome that a lane has yet to pass. With more, because a damaged log has none
/// that can be read, the lane is not read on before it has passed some.
const DONE_READ_MAX: usize = 3 * OPEN_EVENTS_MAX;

/// The shares of the sending capacity.
#[derive(Clone, Copy, Debug)]
enum SendShare {
    /// The live lane.
    Live,
    /// The backlog lanes.
    Backlog,
    /// Retries.
    Retries,
}

/// The order of the shares in each turn: the first with something to send sends. While first
/// attempts wait, retries have one turn in five, the live lane and the backlog two each. No share
/// starves another, and no turn is lost.
const TURNS: [[SendShare; 3]; 5] = [
    [SendShare::Retries, SendShare::Live, SendShare::Backlog],
    [SendShare::Live, SendShare::Backlog, SendShare::Retries],
    [SendShare::Backlog, SendShare::Live, SendShare::Retries],
    [SendShare::Live, SendShare::Backlog, SendShare::Retries],
    [SendShare::Backlog, SendShare::Live, SendShare::Retries],
];

impl Subscription {
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
    pub(super) fn fill_pipeline(&mut self, effects: &mut Vec<Effect>, now: Timestamp) {
        loop {
            let dead_lettering = self.is_dead_lettering(now);
            self.assign_lanes(effects, now);
            self.forget_unsendable(dead_lettering, now);

            self.give_up_unsent(effects, dead_lettering, now);
            self.send_batches(effects, now);

            self.read_ahead(effects, dead_lettering, now);
            // Others may have waited for a lane that ended: events that expired behind it, or the
            // live lane for a probe.
            if !self.end_finished(now) {
                return;
            }
        }
    }

    fn forget_unsendable(&mut self, dead_lettering: bool, now: Timestamp) {
        if self.endpoint.is_open(now) {
            return;
        }
        self.forget_ready_jobs();
        if !dead_lettering {
            self.forget_ready();
        }
    }

    fn give_up_unsent(&mut self, effects: &mut Vec<Effect>, dead_lettering: bool, now: Timestamp) {
        self.take_back_canceled(now);
        self.give_up_ranges(effects, now);
        if dead_lettering {
            self.give_up_ready(now);
        }
    }

    fn send_batches(&mut self, effects: &mut Vec<Effect>, now: Timestamp) {
        while !self.pending_write.is_ahead() && self.has_room(now) {
            let held_back = self.held_back();
            let batch = self.next_of_all(now);
            if batch.is_empty() && self.held_back() == held_back {
                break;
            }
            // Behind events that are held back now, others may leave.
            let batch = self.prepare_batch(batch, now);
            if batch.is_empty() {
                continue;
            }
            if self.is_pulled() {
                self.lease_batch(batch, now);
            } else {
                effects.push(self.begin_request(batch, now));
            }
        }
        self.finish_lease_round(effects);
    }

    fn read_ahead(&mut self, effects: &mut Vec<Effect>, dead_lettering: bool, now: Timestamp) {
        let is_open = self.endpoint.is_open(now);
        if !self.pending_write.is_ahead() && !self.awaits_position() && (dead_lettering || is_open)
        {
            self.request_reads(effects, now);
        }
        self.ask_for_jobs(effects, self.is_wanted() && is_open, now);
    }

    /// Returns whether a lane has ended, or has room again.
    fn end_finished(&mut self, now: Timestamp) -> bool {
        let was_full = self.is_any_full();
        self.pass_skipped(now);
        let has_ended = self.drop_finished();
        self.end_jobs(now);
        has_ended || was_full && !self.is_any_full()
    }

    /// Whether a lane waits because of events that have an outcome and are not passed.
    fn is_any_full(&self) -> bool {
        let is_full = |(index, lane): (usize, &LaneReader)| {
            lane.done_count() >= DONE_READ_MAX || self.open_room(index) == 0
        };
        self.lanes.iter().enumerate().any(is_full)
    }

    /// Whether anything may leave now: a request has room, or a pull client waits.
    fn has_room(&self, now: Timestamp) -> bool {
        if self.is_pulled() {
            return self.is_wanted() && !self.endpoint.is_shut() && !self.reads_log_first();
        }
        self.may_request() && self.endpoint.free_requests(self.requests.count_open(), now) > 0
    }

    /// Maximum events that leave together.
    pub(super) fn batch_max(&self) -> u32 {
        let most = self.endpoint.batch_max();
        if self.is_pulled() {
            most.min(self.leases.wanted_events())
        } else {
            most
        }
    }

    /// Whether events that are due become dead letters at once: the endpoint is in probation after
    /// a client error, and the subscription is configured not to wait. While a probe is in flight
    /// its outcome is awaited.
    pub(super) fn is_dead_lettering(&self, now: Timestamp) -> bool {
        self.settings.dead_letter_in_probation && self.endpoint.is_suspended_by_client_error(now)
    }

    /// Gives up ready events while events are dead-lettered in probation.
    fn give_up_ready(&mut self, now: Timestamp) {
        while !self.pending_write.is_ahead() {
            let held_back = self.held_back();
            let batch = self.next_batch(now);
            if batch.is_empty() && self.held_back() == held_back {
                break;
            }
            for ready in batch {
                let reason = self.end_reason(&ready, now);
                self.give_up(ready.item, reason, ready.last, now);
            }
        }
    }

    /// Why a due event is given up during probation.
    fn end_reason(&self, ready: &ReadyEvent, now: Timestamp) -> Reason {
        if self.is_expired(ready, now) {
            Reason::TimeToLiveExceeded
        } else {
            Reason::ProbationCausedByClientError
        }
    }

    pub(super) fn is_expired(&self, ready: &ReadyEvent, now: Timestamp) -> bool {
        let SendItem {
            lane,
            appended,
            since,
            due,
            ..
        } = ready.item;
        match (since, lane.is_job()) {
            _ if self.expiry_paused || is_exempt(due) => false,
            (Some(since), true) => since.after(self.settings.time_to_live) <= now,
            // Its time to live starts when a job sends it.
            (None, true) => false,
            (_, false) => self.settings.expiry_of(appended) <= now,
        }
    }

    /// Whether enough is fetched or ready that no more is fetched now.
    pub(super) fn fetches_enough(&self) -> bool {
        self.live.is_fetching()
            || self.live.ready_events().len() >= self.settings.batch.events_max as usize
    }

    pub(super) fn on_due_read(&mut self, of: Traffic, keys: &[DueKey], all: bool) {
        let queues = [Some(&self.live), self.replays.as_deref()]
            .into_iter()
            .flatten()
            .flat_map(SendQueue::iter_engaged_keys);
        let engaged_keys: HashSet<(Lane, Seq)> = self
            .requests
            .iter_items()
            .map(SendItem::key)
            .chain(queues)
            .collect();
        // Events that are held back are last, and known.
        let due = if self.ordering.is_some() {
            keys.partition_point(|key| key.due < BLOCKING)
        } else {
            keys.len()
        };
        let queue = match of {
            Traffic::Live => &mut self.live,
            Traffic::Jobs => self.job_queue_mut(),
        };
        queue
            .due
            .add_stored(&keys[..due], all || due < keys.len(), |key| {
                engaged_keys.contains(&(key.lane, key.seq))
            });
    }

    pub(super) fn on_fetched(&mut self, fetched: Vec<FetchedPending>, now: Timestamp) {
        let Some(of) = fetched.first().map(|fetched| fetched.lane) else {
            return;
        };
        let wanted_events = self.queue_mut(of).take_fetching();
        let indexes = wanted_events
            .iter()
            .enumerate()
            .map(|(index, event)| (event.key, index));
        let indexes: HashMap<(Lane, Seq), usize> = indexes.collect();
        let mut remaining_events: Vec<Option<WantedEvent>> =
            wanted_events.into_iter().map(Some).collect();
        for FetchedPending {
            lane,
            seq,
            pending,
            event,
        } in fetched
        {
            let Some(WantedEvent { due, .. }) = indexes
                .get(&(lane, seq))
                .and_then(|index| remaining_events.get_mut(*index)?.take())
            else {
                continue;
            };
            if due != pending.as_ref().map(|pending| pending.due) {
                // The record is authoritative: a damaged store may return the key of a pending
                // delivery that has ended.
                continue;
            }
            let is_misdated = |pending: &&PendingDelivery| {
                pending.due < BLOCKING && self.live.due.is_out_of_range(pending.due, now)
            };
            if let Some(misdated) = pending.as_ref().filter(is_misdated) {
                // The clock was set back. A retry waits once more, and no longer than any can. When a
                // lock began is not known after a renewal, so that it lasts as long as any can.
                let latest = self.live.due.latest_due(now);
                let due = if misdated.last == LastOutcome::Delivering {
                    latest
                } else {
                    now.after(misdated.due.since(misdated.tried)).min(latest)
                };
                self.move_due_time(lane, seq, misdated.clone(), due);
                continue;
            }
            if let Some(due) = due.filter(|due| *due > now && *due < BLOCKING) {
                // Its due time was too far in the future when it was fetched, and no longer is.
                let queue = self.queue_mut(lane);
                if queue.due.find_pending((lane, seq)) == WindowEntry::Nothing {
                    queue.due.put_back(DueKey { due, lane, seq });
                }
                continue;
            }
            let attempts = pending.as_ref().map_or(0, |pending| pending.attempts);
            let since = pending.as_ref().and_then(|pending| pending.received);
            let last = pending.as_ref().map(LastAttempt::from);
            // A batch that was too large for the endpoint was not an attempt at its events.
            let last = last.filter(|_| attempts > 0);
            let append_time = event.as_ref().map_or(now, |event| event.appended);
            let item = SendItem {
                lane,
                seq,
                appended: append_time,
                attempts,
                due,
                since,
            };
            match event {
                Some(event) => {
                    let event = self.transform_event(event);
                    let group = PropertyGroup::from_event(&self.settings.grouping, &event);
                    let ready = ReadyEvent {
                        item,
                        event,
                        last,
                        group,
                        order: None,
                    };
                    if self.is_pulled() {
                        self.take_up(ready, now);
                    } else {
                        self.queue_mut(lane).push_ready(ready);
                    }
                }
                None => self.give_up(item, Reason::Missing, last, now),
            }
        }
        // Keys that did not fit into the answer are fetched again.
        self.queue_mut(of)
            .put_back(remaining_events.into_iter().flatten());
    }

    /// The next batch: of a job if nothing else can be sent or if it is a job's turn.
    fn next_of_all(&mut self, now: Timestamp) -> Vec<ReadyEvent> {
        if self.jobs.has_turn() {
            let batch = self.next_job_batch(now);
            if !batch.is_empty() {
                return batch;
            }
        }
        let batch = self.next_batch(now);
        if batch.is_empty() {
            return self.next_job_batch(now);
        }
        self.jobs.pass_turn();
        batch
    }

    fn next_batch(&mut self, now: Timestamp) -> Vec<ReadyEvent> {
        let events_max = self.batch_max();
        let limits = BatchLimits {
            events_max,
            ..self.settings.batch
        };
        let turn = (self.turn + 1) % TURNS.len();
        let first = self.first_lane();
        for share in TURNS[turn] {
            let lane = match share {
                SendShare::Live => self.lane_ready(|lane| {
                    lane == Lane::LIVE && first.is_none_or(|first| lane == first)
                }),
                SendShare::Backlog => self.lane_ready(|lane| {
                    lane != Lane::LIVE && is_own(lane) && first.is_none_or(|first| lane == first)
                }),
                SendShare::Retries if self.live.ready_events().is_empty() => None,
                SendShare::Retries => {
                    self.turn = turn;
                    return self.live.take_ready(limits);
                }
            };
            if let Some(lane) = lane {
                self.turn = turn;
                let limits = BatchLimits {
                    events_max: events_max.min(self.free_leases()),
                    ..limits
                };
                let batch = self.take_batch(lane, limits, now);
                if !batch.is_empty() {
                    return batch;
                }
            }
        }
        Vec::new()
    }

    /// The first such lane with something to send, if first attempts may leave.
    fn lane_ready(&self, is_such: impl Fn(Lane) -> bool) -> Option<usize> {
        let may_read = !self.awaits_lane_assignment() && self.free_leases() > 0;
        self.lanes
            .iter()
            .position(|lane| may_read && is_such(lane.lane()) && lane.has_sendable())
    }

    /// The only lane that may send if events have an order: the one with the oldest unread events.
    fn first_lane(&self) -> Option<Lane> {
        self.ordering.as_ref()?;
        let behind = self
            .lanes
            .iter()
            .filter(|lane| !lane.lane().is_job() && lane.is_behind(self.end));
        behind.min_by_key(|lane| lane.read()).map(LaneReader::lane)
    }

    /// How many more events a lane may send for the first time. Those of the live lane are done in
    /// another lane once a part of the log is cut off, so that events which are done there count,
    /// too.
    fn open_room(&self, lane: usize) -> u32 {
        let lane = &self.lanes[lane];
        let others = self
            .lanes
            .iter()
            .filter(|other| lane.lane() == Lane::LIVE && other.lane() != Lane::LIVE);
        lane.open_room(others.map(LaneReader::done_count).sum())
    }

    /// Takes a batch from a lane, which passes the filtered events before it.
    pub(super) fn take_batch(
        &mut self,
        lane: usize,
        limits: BatchLimits,
        now: Timestamp,
    ) -> Vec<ReadyEvent> {
        let events_max = limits.events_max.min(self.open_room(lane));
        if events_max == 0 {
            return Vec::new();
        }
        let limits = BatchLimits {
            events_max,
            ..limits
        };
        let lane = &mut self.lanes[lane];
        let (batch, aside) = match &self.ordering {
            Some(ordering) if is_own(lane.lane()) => {
                let is_crowded =
                    lane.ready() >= LANE_WAITING_MAX || lane.ready_bytes() >= WAITING_BYTES;
                lane.take_batch(limits, ordering.turn_for(is_crowded))
            }
            Some(_) | None => lane.take_batch(limits, |_| Turn::Go),
        };
        let name = lane.lane();
        let skipped = lane.drain_skipped(batch.len() + aside.len());
        self.count_skipped(name, skipped, now);
        if let Some(ordering) = &mut self.ordering {
            for (ready, key) in batch.iter().filter_map(|ready| Some((ready, ready.order?))) {
                ordering.mark_in_flight(ready.item.seq, key);
            }
        }
        for ready in aside {
            self.set_aside(ready, now);
        }
        batch
    }

    /// Whether any event is ready, apart from jobs.
    pub(super) fn is_ready(&self) -> bool {
        let is_sendable = |(index, lane): (usize, &LaneReader)| {
            !lane.lane().is_job() && lane.has_sendable() && self.open_room(index) > 0
        };
        !self.live.ready_events().is_empty() || self.lanes.iter().enumerate().any(is_sendable)
    }

    fn begin_request(&mut self, batch: Vec<ReadyEvent>, now: Timestamp) -> Effect {
        // A batch cut at the preferred size has more behind it.
        let full = batch.len() >= self.endpoint.batch_max() as usize || self.is_ready();
        // With the exact capacity: `unzip` makes room for four, and most batches have one event.
        let mut items = Vec::with_capacity(batch.len());
        let mut events = Vec::<Event>::with_capacity(batch.len());
        for ReadyEvent { item, event, .. } in batch {
            let bytes = event.delivered_len(self.settings.batch.schema);
            self.bytes_left = self.bytes_left.saturating_sub(bytes);
            items.push(item);
            events.push(event);
        }
        if let Health::Suspended { .. } = self.endpoint.health()
            && !self.endpoint.is_early()
        {
            self.backlog_end = self.end;
        }
        let request = self.requests.begin_request(items, &self.settings, now);
        self.endpoint.record_sent(request.id, full, now);
        Effect::Send { request, events }
    }

    fn request_reads(&mut self, effects: &mut Vec<Effect>, now: Timestamp) {
        let batch = self.settings.batch.events_max as usize;
        let dividing = self.awaits_lane_assignment();
        // A probe takes the oldest event, so that the backlog stays contiguous.
        let probes = !matches!(self.endpoint.health(), Health::Healthy { .. });
        let is_old = |lane: &LaneReader| {
            lane.lane() != Lane::LIVE && is_own(lane.lane()) && lane.is_behind(self.end)
        };
        let old_only = probes && self.lanes.iter().any(is_old);
        let may_read = self.is_wanted() && self.free_leases() > 0;
        let first = self.first_lane();
        let has_room = |lane: &LaneReader| {
            // Events of keys in flight must not hide those of other keys.
            lane.ready() < batch
                || lane.is_stalled()
                    && lane.ready() < LANE_WAITING_MAX
                    && lane.ready_bytes() < WAITING_BYTES
        };
        let wanting = |lane: &&mut LaneReader| {
            !dividing
                && is_own(lane.lane())
                && has_room(lane)
                && lane.done_count() < DONE_READ_MAX
                && first.is_none_or(|first| lane.lane() == first)
                && !(old_only && lane.lane() == Lane::LIVE)
        };
        for lane in self.lanes.iter_mut().filter(wanting).filter(|_| may_read) {
            if let Some((from, end)) = lane.next_read(self.end) {
                effects.push(Effect::ReadLog {
                    lane: lane.lane(),
                    from,
                    end,
                });
            }
        }
        if self.fetches_enough() {
            return;
        }
        self.wake_idle(now);
        let fetch = self.live.take_fetch_keys(now, batch, |_| true);
        if !fetch.is_empty() {
            effects.push(Effect::Fetch(fetch));
        }
        if let Some(from) = self.live.due.next_lookup(now) {
            effects.push(Effect::ReadDue {
                of: Traffic::Live,
                from,
            });
        }
    }

    /// Drops ready events while the endpoint is suspended. They are read again when it may be
    /// called.
    fn forget_ready(&mut self) {
        for lane in self.lanes.iter_mut().filter(|lane| is_own(lane.lane())) {
            lane.forget_ready();
        }
        self.live.forget_ready(|_| true);
    }

    /// Drops all ready events. Reads in progress of lanes without ready events continue.
    pub(super) fn release_memory(&mut self) {
        for lane in self.lanes.iter_mut().filter(|lane| lane.ready() > 0) {
            lane.forget_ready();
        }
        self.live.forget_ready(|_| true);
        if let Some(replays) = &mut self.replays {
            replays.forget_ready(|_| true);
        }
    }

    fn pass_skipped(&mut self, now: Timestamp) {
        for index in 0..self.lanes.len() {
            let lane = self.lanes[index].lane();
            let (skipped, passes_done) = self.lanes[index].pass_skipped();
            self.count_skipped(lane, skipped, now);
            if passes_done {
                self.pending_write.write_cursor_soon();
            }
        }
    }

    fn count_skipped(&mut self, lane: Lane, skipped: SeqSet, now: Timestamp) {
        if skipped.is_empty() {
            return;
        }
        let events = skipped.event_count();
        self.update_counters(lane, |counters| {
            (counters.passed, counters.filtered) =
                (counters.passed + events, counters.filtered + events)
        });
        self.pending_write
            .skip_filtered(lane, self.settings.version, &skipped, now);
    }
}
