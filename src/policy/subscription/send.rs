//! What is there to send: what waits in the lanes and what fell due, asked for ahead of its turn.
//!
//! Invariants:
//! - An obligation is in one place: owed on the disk, in the window, being fetched, ready, or in flight.
//! - Nothing is fetched before what was fetched last has come, nor while enough is ready: memory is bounded by a fetch and
//!   a batch for each lane, however much is owed.
//! - What is ready is thrown away as soon as the endpoint may not be called: time to live, the schedule and the record are
//!   asked again when it may.
//! - An event is sent only before its time to live is over; after that it is given up without another attempt.

use std::{collections::HashSet, sync::Arc};

use super::{
    Subscription,
    lane_assignment::is_own,
    queue::{SendQueue, WantedEvents},
};
use crate::{
    event::{Event, Lane, RequestId, Seq, Timestamp},
    policy::{
        Effect, OutgoingBatch, SendItem,
        batch::{self, BatchLimits, LastAttempt, ReadyEvent},
        lane::LaneReader,
        outcome::Reason,
        property::PropertyGroup,
        record::{DueKey, FetchedPending, Health, PendingDelivery, RecordChange, Traffic},
        retry_window::WindowEntry,
        runs::SeqRuns,
    },
};

/// Who may send.
#[derive(Clone, Copy, Debug)]
enum SendShare {
    /// The live lane.
    Live,
    /// Every other lane that is sent, but for jobs'.
    Backlog,
    /// What is tried again.
    Retries,
}

/// The turns: each with who sends, if he has something, or else who does. One turn in five belongs to retries while first
/// attempts wait, and the live events and the backlog have two each: none starves another, and nobody's turn is lost.
const TURNS: [[SendShare; 3]; 5] = [
    [SendShare::Retries, SendShare::Live, SendShare::Backlog],
    [SendShare::Live, SendShare::Backlog, SendShare::Retries],
    [SendShare::Backlog, SendShare::Live, SendShare::Retries],
    [SendShare::Live, SendShare::Backlog, SendShare::Retries],
    [SendShare::Backlog, SendShare::Live, SendShare::Retries],
];

impl Subscription {
    /// Sends what may be sent, and asks for what could be sent next.
    pub(super) fn pump(&mut self, effects: &mut Vec<Effect>, now: Timestamp) {
        let condemned = self.is_condemned(now);
        self.assign_lanes(effects, now);
        let is_open = self.endpoint.is_open(now);
        if !is_open {
            self.forget_ready_jobs();
        }
        if !is_open && !condemned {
            self.forget_ready();
        }
        self.take_back_canceled(now);
        self.give_up_ranges(effects, now);
        if condemned {
            self.give_up_ready(now);
        }
        while !self.gathered.is_ahead() && self.has_place(now) {
            let batch = self.next_of_all(now);
            if batch.is_empty() {
                break;
            }
            let (alive, expired): (Vec<ReadyEvent>, Vec<ReadyEvent>) =
                batch.into_iter().partition(|ready| !self.is_expired(ready, now));
            for ready in expired {
                self.give_up(ready.item, Reason::TimeToLiveExceeded, ready.last, now);
            }
            match (alive.is_empty(), self.is_pulled()) {
                (true, _) => {}
                (false, true) => self.lease(alive, now),
                (false, false) => effects.push(self.send(alive, now)),
            }
        }
        self.rest_leases(effects);
        // A probe that has just left shuts the endpoint.
        if !self.gathered.is_ahead() && !self.is_looking() && (condemned || self.endpoint.is_open(now)) {
            self.request_reads(effects, now);
        }
        self.ask_for_jobs(effects, self.is_wanted() && self.endpoint.is_open(now), now);
        self.pass_skipped(now);
        self.drop_finished();
        self.end_jobs(now);
    }

    /// Whether anything may leave now: there is a place for a request, or a client that waits.
    fn has_place(&self, now: Timestamp) -> bool {
        if self.is_pulled() {
            return self.is_wanted() && !self.endpoint.is_shut() && !self.looks_first();
        }
        self.may_add_request() && self.endpoint.places(self.requests.len(), now) > 0
    }

    /// How many events may leave together.
    pub(super) fn batch_max(&self) -> u32 {
        let most = self.endpoint.batch_max();
        if self.is_pulled() { most.min(self.leases.wanted()) } else { most }
    }

    /// Whether what falls due now becomes a dead letter at once: the endpoint is left alone for an error of the client's, and
    /// the subscription does not want to wait. While the probe is on its way its answer is waited for.
    pub(super) fn is_condemned(&self, now: Timestamp) -> bool {
        self.settings.dead_letter_in_probation && self.endpoint.is_misused(now)
    }

    /// Gives up what is ready, while all are condemned.
    fn give_up_ready(&mut self, now: Timestamp) {
        while !self.gathered.is_ahead() {
            let batch = self.next_batch(now);
            if batch.is_empty() {
                break;
            }
            for ready in batch {
                let reason = self.condemns(&ready, now);
                self.give_up(ready.item, reason, ready.last, now);
            }
        }
    }

    /// Why an event ends that is due while all are condemned.
    fn condemns(&self, ready: &ReadyEvent, now: Timestamp) -> Reason {
        if self.is_expired(ready, now) { Reason::TimeToLiveExceeded } else { Reason::ProbationCausedByClientError }
    }

    pub(super) fn is_expired(&self, ready: &ReadyEvent, now: Timestamp) -> bool {
        let SendItem { lane, appended, since, .. } = ready.item;
        match (since, lane.is_job()) {
            _ if self.expiry_held => false,
            (Some(since), true) => since.after(self.settings.time_to_live) <= now,
            // It begins to grow old when a job sends it.
            (None, true) => false,
            (_, false) => self.settings.expires(appended) <= now,
        }
    }

    /// Whether no more should be fetched before something comes or goes.
    pub(super) fn fetches_enough(&self) -> bool {
        !self.own.fetching.is_empty() || self.own.retries.len() >= self.settings.batch.events_max as usize
    }

    pub(super) fn on_due_read(&mut self, of: Traffic, keys: &[DueKey], all: bool) {
        let queues = [&self.own, &self.replays].into_iter().flat_map(SendQueue::engaged);
        let engaged: HashSet<(Lane, Seq)> = self.in_flight_items().map(SendItem::key).chain(queues).collect();
        let queue = match of {
            Traffic::Own => &mut self.own,
            Traffic::Jobs => &mut self.replays,
        };
        queue.due.answer(keys, all, |key| engaged.contains(&(key.lane, key.seq)));
    }

    pub(super) fn on_fetched(&mut self, fetched: Vec<FetchedPending>, now: Timestamp) {
        let Some(of) = fetched.first().map(|fetched| fetched.lane) else { return };
        let mut wanted = std::mem::take(&mut self.queue(of).fetching);
        for FetchedPending { lane, seq, pending: owed, event } in fetched {
            let Some(place) = wanted.iter().position(|wanted| wanted.key == (lane, seq)) else { continue };
            let WantedEvents { due, .. } = wanted.remove(place);
            if due != owed.as_ref().map(|owed| owed.due) {
                // The record is the truth: a store may bring back a key that was taken away.
                continue;
            }
            if let Some(strayed) = owed.as_ref().filter(|owed| self.own.due.is_out_of_range(owed.due, now)) {
                self.bring_back(lane, seq, strayed, now);
                continue;
            }
            if let Some(due) = due.filter(|due| *due > now) {
                // It had strayed when it was asked for, and by now it is no longer too far away.
                let queue = self.queue(lane);
                if queue.due.find((lane, seq)) == WindowEntry::Nothing {
                    queue.due.put_back(DueKey { due, lane, seq });
                }
                continue;
            }
            let attempts = owed.as_ref().map_or(0, |owed| owed.attempts);
            let since = owed.as_ref().and_then(|owed| owed.received);
            let last = owed.map(|owed| LastAttempt { outcome: owed.last, status: owed.status, tried: owed.tried });
            // A batch that was too large for the endpoint was no attempt at its events.
            let last = last.filter(|_| attempts > 0);
            let appended = event.as_ref().map_or(now, |event| event.appended);
            let item = SendItem { lane, seq, appended, attempts, due, since };
            match event {
                Some(event) => {
                    let group = PropertyGroup::of(&self.settings.grouping, &event);
                    let ready = ReadyEvent { item, event, last, group };
                    match self.is_pulled() {
                        true => self.take_up(ready, now),
                        false => self.queue(lane).retries.push_back(ready),
                    }
                }
                None => self.give_up(item, Reason::Missing, last, now),
            }
        }
        // What did not fit into one answer is asked for again.
        self.queue(of).put_back(wanted);
    }

    /// The clock was set back since an event was told to wait: it waits for as long as any event does, and no longer.
    fn bring_back(&mut self, lane: Lane, seq: Seq, strayed: &PendingDelivery, now: Timestamp) {
        let (was_due, due) = (strayed.due, self.own.due.latest(now));
        self.gathered.change(RecordChange::Defer {
            lane,
            seq,
            pending: PendingDelivery { due, ..strayed.clone() },
            was_due: Some(was_due),
        });
        let queue = self.queue(lane);
        queue.due.leave(DueKey { due: was_due, lane, seq });
        queue.due.insert(DueKey { due, lane, seq });
    }

    /// The next batch: a job's where nobody else has anything to send, or where it is its turn.
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
        let limits = BatchLimits { events_max, ..self.settings.batch };
        let turn = (self.turn + 1) % TURNS.len();
        for share in TURNS[turn] {
            let lane = match share {
                SendShare::Live => self.lane_ready(|lane| lane == Lane::LIVE),
                SendShare::Backlog => self.lane_ready(|lane| lane != Lane::LIVE && is_own(lane)),
                SendShare::Retries if self.own.retries.is_empty() => None,
                SendShare::Retries => {
                    self.turn = turn;
                    return batch::take(&mut self.own.retries, limits);
                }
            };
            if let Some(lane) = lane {
                self.turn = turn;
                let limits = BatchLimits { events_max: events_max.min(self.room()), ..limits };
                return self.take(lane, limits, now);
            }
        }
        Vec::new()
    }

    /// The first of such lanes that has something to send, if first attempts may leave.
    fn lane_ready(&self, is_such: impl Fn(Lane) -> bool) -> Option<usize> {
        let settled = !self.is_dividing() && self.room() > 0;
        self.lanes.iter().position(|lane| settled && is_such(lane.lane()) && lane.ready() > 0)
    }

    /// Takes a batch out of a lane, which passes what the filter held back before it.
    pub(super) fn take(&mut self, lane: usize, limits: BatchLimits, now: Timestamp) -> Vec<ReadyEvent> {
        let lane = &mut self.lanes[lane];
        let batch = lane.take(limits);
        let (name, skipped) = (lane.lane(), lane.drain_skipped(batch.len()));
        self.count_skipped(name, skipped, now);
        batch
    }

    /// Whether anything is there to be sent, but for jobs.
    pub(super) fn is_ready(&self) -> bool {
        !self.own.retries.is_empty() || self.lanes.iter().any(|lane| !lane.lane().is_job() && lane.ready() > 0)
    }

    fn send(&mut self, batch: Vec<ReadyEvent>, now: Timestamp) -> Effect {
        // One that the preferred size cut off has the rest behind it.
        let full = batch.len() >= self.endpoint.batch_max() as usize || self.is_ready();
        let (items, events): (_, Vec<Event>) = batch.into_iter().map(|ready| (ready.item, ready.event)).unzip();
        let id = self.next_request;
        self.next_request = RequestId(id.0 + 1);
        let deadline = now.after(self.settings.request_wait);
        if let Health::Suspended { .. } = self.endpoint.health()
            && !self.endpoint.is_hastened()
        {
            self.away = self.end;
        }
        let request = Arc::new(OutgoingBatch { id, items, events: events.len(), sent: now, deadline });
        self.endpoint.sent(id, full, now);
        self.requests.insert(id, Arc::clone(&request));
        Effect::Send { request, events }
    }

    fn request_reads(&mut self, effects: &mut Vec<Effect>, now: Timestamp) {
        let batch = self.settings.batch.events_max as usize;
        let dividing = self.is_dividing();
        // A probe has the oldest event there is, so that what gathers meanwhile stays in one piece.
        let probes = !matches!(self.endpoint.health(), Health::Healthy { .. });
        let is_old = |lane: &LaneReader| lane.lane() != Lane::LIVE && is_own(lane.lane()) && lane.is_behind(self.end);
        let old_only = probes && self.lanes.iter().any(is_old);
        let may_read = self.is_wanted() && self.room() > 0;
        let wanting = |lane: &&mut LaneReader| {
            !dividing && is_own(lane.lane()) && lane.ready() < batch && !(old_only && lane.lane() == Lane::LIVE)
        };
        for lane in self.lanes.iter_mut().filter(wanting).filter(|_| may_read) {
            if let Some((from, end)) = lane.next_read(self.end) {
                effects.push(Effect::ReadLog { lane: lane.lane(), from, end });
            }
        }
        if self.fetches_enough() {
            return;
        }
        self.wake_idle(now);
        let fetch = self.own.fetch(now, batch, |_| true);
        if !fetch.is_empty() {
            effects.push(Effect::Fetch(fetch));
        }
        if let Some(from) = self.own.due.next_lookup(now) {
            effects.push(Effect::ReadDue { of: Traffic::Own, from });
        }
    }

    /// What is ready is of no use while the endpoint is left alone: it is forgotten and read again when it opens.
    fn forget_ready(&mut self) {
        for lane in self.lanes.iter_mut().filter(|lane| is_own(lane.lane())) {
            lane.forget_ready();
        }
        self.own.forget_ready(|_| true);
    }

    /// Forgets all that is ready, whosever it is. Questions of lanes that have nothing stay.
    pub(super) fn let_go(&mut self) {
        for lane in self.lanes.iter_mut().filter(|lane| lane.ready() > 0) {
            lane.forget_ready();
        }
        self.own.forget_ready(|_| true);
        self.replays.forget_ready(|_| true);
    }

    fn pass_skipped(&mut self, now: Timestamp) {
        for index in 0..self.lanes.len() {
            let lane = self.lanes[index].lane();
            let skipped = self.lanes[index].pass_skipped();
            self.count_skipped(lane, skipped, now);
        }
    }

    fn count_skipped(&mut self, lane: Lane, skipped: SeqRuns, now: Timestamp) {
        if skipped.is_empty() {
            return;
        }
        let events = skipped.count();
        self.count(lane, |counters| {
            (counters.passed, counters.filtered) = (counters.passed + events, counters.filtered + events)
        });
        self.gathered.skip(lane, self.settings.version, &skipped, now);
    }
}
