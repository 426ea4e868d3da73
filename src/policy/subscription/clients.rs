//! Pull delivery: clients receive events, hold their locks for a time, and settle them.
//!
//! A lease is an attempt, and its record is written before the client receives the event: the
//! delivery is pending with one more attempt, and due when the lock expires. An event whose client
//! never responds is therefore due again like any other. An acknowledgement settles it, a release
//! moves its due time, a rejection gives it up.
//!
//! Invariants:
//! - Neither an event nor the result of a claim is handed out before it is durable.
//! - A lease is valid while its attempt is the last one, the record says that a client holds it,
//!   and it is not due. If the clock was set back by more than the longest wait, the lease counts
//!   as lost until it is rescheduled.
//! - Clients are served in the order of their arrival. Available events are handed out at once; no
//!   client waits for a full batch. If fewer are available than requested and the log has more, the
//!   log is read first: repeatedly while most of what is read matches the filter, otherwise once.
//! - New events are handed out only while the number of pending deliveries is below a bound. All
//!   their keys are therefore in the window. An event that was held back by its order key is handed
//!   out beyond it, one of each key.
//! - Expiry and the attempt limit need no client: a due event is examined on time, and given up if
//!   it has ended. Otherwise its key waits in [`IdleKeys`](super::idle::IdleKeys) for a client.
//! - Leases of an earlier incarnation are on disk only, and are read once.

use std::collections::{BTreeMap, VecDeque};

use super::{
    claims::{hold_lock, note_lease},
    locks::HeldLock,
    settlement::{Settlement, runs_of},
};
use crate::{
    Effect, PullSettings, SendItem,
    batch::{LastAttempt, ReadyEvent},
    outcome::{Failure, LastOutcome, Reason},
    record::{
        DueKey, SeqRun, is_exempt,
        lease::{Lease, LeaseClaim, LeaseStep, ReceiveId},
    },
};
use gridhook_event::{Event, Lane, Timestamp};

/// Maximum idle events fetched at once.
const IDLE_FETCH: usize = 128;

/// The clients of a subscription. Boxed: most subscriptions have none.
#[derive(Debug, Default)]
pub(super) struct PullClients(Option<Box<Clients>>);

#[derive(Debug, Default)]
struct Clients {
    /// Waiting clients and the maximum number of events each requests.
    waiting: BTreeMap<ReceiveId, u32>,
    /// The events of the first waiting client.
    served: Vec<(Lease, Event)>,
    served_bytes: u64,
    /// Whether the log was read since the last client was served, and had few matching events.
    is_log_sparse: bool,
    claims: VecDeque<LeaseClaim>,
    /// Effects that follow the next write, and the write in progress, once they are durable.
    unwritten: Vec<Effect>,
    written: Vec<Effect>,
}

impl PullClients {
    fn get_mut(&mut self) -> &mut Clients {
        self.0.get_or_insert_default()
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.0
            .as_ref()
            .is_some_and(|leases| !leases.waiting.is_empty())
    }

    /// How many more events the first waiting client takes.
    pub(super) fn wanted_events(&self) -> u32 {
        let Some(leases) = &self.0 else { return 0 };
        let most = leases
            .waiting
            .first_key_value()
            .map_or(0, |(_, most)| *most);
        most.saturating_sub(u32::try_from(leases.served.len()).unwrap_or(u32::MAX))
    }

    /// How many events all waiting clients take, up to the limit of one fetch.
    fn wanted_by_all(&self) -> usize {
        let waiting = self.0.iter().flat_map(|leases| leases.waiting.values());
        waiting
            .take(IDLE_FETCH)
            .map(|most| *most as usize)
            .sum::<usize>()
            .min(IDLE_FETCH)
    }

    /// Notes that all decisions are in the write in progress.
    pub(super) fn begin_write(&mut self) {
        if let Some(leases) = &mut self.0 {
            leases.written.append(&mut leases.unwritten);
        }
    }

    /// Notes that the write in progress is durable; returns the effects that waited for it.
    pub(super) fn finish_write(&mut self) -> Vec<Effect> {
        self.0
            .as_mut()
            .map(|leases| std::mem::take(&mut leases.written))
            .unwrap_or_default()
    }

    /// Adds a client that waits for events.
    pub(super) fn add_client(&mut self, client: ReceiveId, events_max: u32) {
        self.get_mut().waiting.insert(client, events_max.max(1));
    }

    /// Turns a client away once the next write is durable: the subscription has no pull clients.
    pub(super) fn refuse_client(&mut self, client: ReceiveId) {
        self.get_mut().unwritten.push(Effect::HandOver {
            client,
            events: Vec::new(),
        });
    }

    pub(super) fn remove_client(&mut self, client: ReceiveId) {
        if let Some(clients) = &mut self.0 {
            clients.waiting.remove(&client);
        }
    }

    /// Notes that the log was read: `matching` of `total` events match the filter.
    pub(super) fn note_log_read(&mut self, matching: usize, total: u64) {
        self.get_mut().is_log_sparse = (2 * matching as u64) < total || matching == 0;
    }

    pub(super) fn add_claim(&mut self, claim: LeaseClaim) {
        self.get_mut().claims.push_back(claim);
    }

    pub(super) fn first_claim(&self) -> Option<&LeaseClaim> {
        self.0.as_ref()?.claims.front()
    }

    pub(super) fn take_claim(&mut self) -> Option<LeaseClaim> {
        self.0.as_mut()?.claims.pop_front()
    }

    /// Adds an effect that follows the next write once it is durable.
    pub(super) fn add_effect(&mut self, effect: Effect) {
        self.get_mut().unwritten.push(effect);
    }

    /// Leases these events to the first waiting client.
    pub(super) fn lease_batch(
        &mut self,
        settlement: &mut Settlement,
        batch: Vec<ReadyEvent>,
        now: Timestamp,
    ) {
        let Some(PullSettings { lock, .. }) = settlement.settings.pull else {
            return;
        };
        let until = now.after(lock);
        let Some((lane, attempts)) = batch
            .first()
            .map(|ready| (ready.item.lane, ready.item.attempts))
        else {
            return;
        };
        let runs = runs_of(batch.iter().map(|ready| ready.item.seq).collect());
        for ReadyEvent { item, event, .. } in batch {
            let SendItem {
                lane,
                seq,
                appended,
                ..
            } = item;
            let attempt = item.attempts + 1;
            let first_lock = item.since.filter(|_| item.attempts > 0).unwrap_or(now);
            let item_in_lease = SendItem {
                attempts: attempt,
                since: Some(first_lock),
                ..item
            };
            let lock = HeldLock {
                attempt,
                until,
                received: first_lock,
                tried: now,
            };
            hold_lock(settlement, item_in_lease, lock);
            let leases = self.get_mut();
            leases.served_bytes += event.wire_len() as u64;
            leases.served.push((
                Lease {
                    lane,
                    seq,
                    attempt,
                    appended,
                },
                event,
            ));
        }
        note_lease(
            settlement,
            lane,
            attempts + 1,
            runs,
            LeaseStep::Received { until },
            now,
        );
        settlement.pending_write.write_cursor_now();
        if self.wanted_events() == 0
            || self.get_mut().served_bytes >= settlement.settings.batch.bytes_preferred
        {
            self.hand_over(settlement, lane);
        }
    }

    /// Whether to read the log before the first waiting client is served: it has more events, and
    /// the client would get fewer than it requests.
    pub(super) fn reads_log_first(&self, settlement: &Settlement, batch_max: u32) -> bool {
        let has_looked = self
            .0
            .as_ref()
            .is_some_and(|leases| leases.is_log_sparse || !leases.served.is_empty());
        if has_looked || !settlement.queues.live().ready_events().is_empty() {
            return false;
        }
        let events_max = batch_max.min(settlement.free_leases());
        let bytes_preferred = settlement.settings.batch.bytes_preferred;
        let only = settlement.only_lane();
        settlement
            .log
            .is_short_of(events_max as usize, bytes_preferred, only)
    }

    /// Ends a round: nothing more is available now. Without a waiting client no events stay ready.
    pub(super) fn finish_lease_round(
        &mut self,
        settlement: &mut Settlement,
        is_closed: bool,
        effects: &mut Vec<Effect>,
    ) {
        if !settlement.settings.is_pulled() {
            return;
        }
        if let Some(lane) = self
            .0
            .as_ref()
            .and_then(|leases| Some(leases.served.first()?.0.lane))
        {
            self.hand_over(settlement, lane);
        }
        if is_closed {
            let waiting = std::mem::take(&mut self.get_mut().waiting);
            effects.extend(waiting.into_keys().map(|client| Effect::HandOver {
                client,
                events: Vec::new(),
            }));
        }
        if !self.is_wanted() {
            settlement.drop_ready_jobs();
            for ReadyEvent { item, .. } in settlement.queues.live_mut().take_all_ready() {
                park_key(settlement, item);
            }
        }
    }

    fn hand_over(&mut self, settlement: &mut Settlement, lane: Lane) {
        let Some((to, _)) = self.get_mut().waiting.pop_first() else {
            return;
        };
        let leases = self.get_mut();
        let events = std::mem::take(&mut leases.served);
        (leases.served_bytes, leases.is_log_sparse) = (0, false);
        settlement.update_counters(lane, |counters| counters.requests += 1);
        self.get_mut()
            .unwritten
            .push(Effect::HandOver { client: to, events });
    }

    /// Fetches idle events if a client waits, and those that expired.
    pub(super) fn wake_idle(&self, settlement: &mut Settlement, now: Timestamp) {
        let has_demand = settlement.settings.is_pulled() && self.is_wanted();
        let max = self.wanted_by_all().max(1);
        // Nothing expires while expiry is suspended.
        let expired_by = if settlement.is_expiry_paused() {
            Timestamp::default()
        } else {
            now
        };
        settlement
            .queues
            .live_mut()
            .wake_idle(expired_by, has_demand, max);
    }

    /// Takes a due event: its lock expired, or the delay of its release is over.
    pub(super) fn take_up(&self, settlement: &mut Settlement, ready: ReadyEvent, now: Timestamp) {
        let ReadyEvent { item, .. } = ready;
        let key = item.key();
        let has_expired = ready
            .last
            .is_some_and(|last| last.outcome == LastOutcome::Delivering);
        // A dead letter contains the outcome of the last attempt, which is always the same for pull
        // delivery.
        let last = ready.last.map(|last| LastAttempt {
            outcome: LastOutcome::Delivering,
            ..last
        });
        // An untrusted clock may end a lock early. That usually costs another attempt, which
        // at-least-once delivery allows. At the last attempt it would cost the event, so the lock
        // is extended until the clock is trusted again.
        if let (true, true, Some(LastAttempt { tried, .. }), Some(PullSettings { lock, .. })) = (
            has_expired && settlement.is_expiry_paused(),
            item.attempts >= settlement.settings.attempts_max,
            last,
            settlement.settings.pull,
        ) {
            let until = now.after(lock);
            let first_lock = item.since.unwrap_or(tried);
            let lock = HeldLock {
                attempt: item.attempts,
                until,
                received: first_lock,
                tried,
            };
            return hold_lock(settlement, item, lock);
        }
        if has_expired {
            settlement.locks.end_lock(key);
            note_lease(
                settlement,
                item.lane,
                item.attempts,
                vec![SeqRun::single(item.seq)],
                LeaseStep::Expired,
                now,
            );
            settlement.update_counters(item.lane, |counters| counters.requests_failed += 1);
            settlement
                .totals
                .outcomes_mut()
                .count_failure(Failure::TimedOut.into());
        }
        // An operator may have an event that blocked its key received once more.
        if item.attempts >= settlement.settings.attempts_max && !is_exempt(item.due) {
            return settlement.give_up(item, Reason::MaxDeliveryAttemptsExceeded, last, now);
        }
        let ready = ReadyEvent { last, ..ready };
        if settlement.is_expired(&ready, now) {
            return settlement.give_up(item, Reason::TimeToLiveExceeded, last, now);
        }
        match (has_expired, item.due, last) {
            (true, Some(due), Some(last)) => settlement.defer_event(
                item,
                due,
                LastAttempt::from_client(Failure::TimedOut, last.tried),
            ),
            _ if self.is_wanted() || item.lane.is_job() => settlement
                .queues
                .lane_queue_mut(item.lane)
                .push_ready(ready),
            _ => park_key(settlement, item),
        }
    }
}

/// Keeps the key of an event that no client waits for.
fn park_key(
    settlement: &mut Settlement,
    SendItem {
        lane,
        seq,
        appended,
        due,
        ..
    }: SendItem,
) {
    let expires = if is_exempt(due) {
        Timestamp::NEVER
    } else {
        settlement.settings.expiry_of(appended)
    };
    if let Some(due) = due {
        settlement
            .queues
            .live_mut()
            .keep_idle(DueKey { due, lane, seq }, expires);
    }
}
