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
//!   log is read first, once.
//! - New events are handed out only while the number of pending deliveries is below a bound. All
//!   their keys are therefore in the window. An event that was held back by its order key is handed
//!   out beyond it, one of each key.
//! - Expiry and the attempt limit need no client: a due event is examined on time, and given up if
//!   it has ended. Otherwise its key waits in [`IdleKeys`](super::idle::IdleKeys) for a client.
//! - Leases of an earlier incarnation are known only to the disk, which is asked for them once.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Duration,
};

use super::{
    Subscription,
    lookup::{Lookup, LookupResult},
    settle::runs_of,
};
use crate::{
    Effect, PullSettings, SendItem,
    batch::{LastAttempt, ReadyEvent},
    lane::LaneReader,
    outcome::{Failure, LastOutcome, Outcome, Reason},
    record::{
        DueKey, LedgerEntry, LedgerEvent, PendingDelivery, SeqRun, is_exempt,
        lease::{Lease, LeaseAction, LeaseClaim, LeaseResult, LeaseStep, RENEWED_FOR, ReceiveId},
    },
    retry_window::WindowEntry,
};
use gridhook_event::{Event, Lane, Seq, Timestamp};

/// Maximum idle events fetched at once.
const IDLE_FETCH: usize = 128;

/// A lease granted by this incarnation.
#[derive(Clone, Copy, Debug)]
struct HeldLock {
    attempt: u32,
    until: Timestamp,
    /// When a client first received the event.
    received: Timestamp,
    tried: Timestamp,
}

/// Clients and their leases. Boxed: without a client there are none.
#[derive(Debug, Default)]
pub(super) struct Leases(Option<Box<ClientLeases>>);

#[derive(Debug, Default)]
struct ClientLeases {
    /// Waiting clients and the maximum number of events each requests.
    waiting: BTreeMap<ReceiveId, u32>,
    /// The events of the first waiting client.
    served: Vec<(Lease, Event)>,
    served_bytes: u64,
    /// Whether the log was read since the last client was served.
    looked: bool,
    known: BTreeMap<(Lane, Seq), HeldLock>,
    claims: VecDeque<LeaseClaim>,
    lookup: Lookup,
    /// Effects that follow the next write, and the write in progress, once they are durable.
    unwritten: Vec<Effect>,
    written: Vec<Effect>,
}

impl Leases {
    fn get_mut(&mut self) -> &mut ClientLeases {
        self.0.get_or_insert_default()
    }

    /// Whether a client waits.
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

    pub(super) fn end_lease(&mut self, key: (Lane, Seq)) {
        if let Some(leases) = &mut self.0 {
            leases.known.remove(&key);
        }
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

    pub(super) fn lookup(&mut self) -> Option<&mut Lookup> {
        Some(&mut self.0.as_mut()?.lookup)
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
}

impl Subscription {
    pub(super) fn is_pulled(&self) -> bool {
        self.settings.pull.is_some()
    }

    /// Notes that the log was read.
    pub(super) fn note_log_read(&mut self) {
        if self.is_pulled() {
            self.leases.get_mut().looked = true;
        }
    }

    /// Whether a client waits, or the subscription is pushed and needs none.
    pub(super) fn is_wanted(&self) -> bool {
        !self.is_pulled() || self.leases.is_wanted()
    }

    /// How many more events may be received for the first time.
    pub(super) fn free_leases(&self) -> u32 {
        let Some(PullSettings { leases_max, .. }) = self.settings.pull else {
            return u32::MAX;
        };
        let held_back = self
            .ordering
            .as_ref()
            .map_or(0, |ordering| ordering.count_waiting() as u64);
        let lease_count = self.counters.pending.saturating_sub(held_back);
        u32::try_from(u64::from(leases_max).saturating_sub(lease_count)).unwrap_or(u32::MAX)
    }

    pub(super) fn on_receive(&mut self, client: ReceiveId, events_max: u32) {
        if self.is_pulled() {
            self.leases
                .get_mut()
                .waiting
                .insert(client, events_max.max(1));
        } else {
            self.leases.get_mut().unwritten.push(Effect::HandOver {
                to: client,
                events: Vec::new(),
            });
            self.pending_write.write_cursor_now();
        }
    }

    pub(super) fn on_withdraw(&mut self, client: ReceiveId) {
        if let Some(leases) = &mut self.leases.0 {
            leases.waiting.remove(&client);
        }
    }

    // --- receiving ---

    /// Leases these events to the first waiting client.
    pub(super) fn lease_batch(&mut self, batch: Vec<ReadyEvent>, now: Timestamp) {
        let Some(PullSettings { lock, .. }) = self.settings.pull else {
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
            self.defer_event(
                item_in_lease,
                until,
                LastAttempt::from_client(LastOutcome::Delivering, now),
            );
            let leases = self.leases.get_mut();
            leases.known.insert(
                (lane, seq),
                HeldLock {
                    attempt,
                    until,
                    received: first_lock,
                    tried: now,
                },
            );
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
        self.note_lease(lane, attempts + 1, runs, LeaseStep::Received { until }, now);
        self.pending_write.write_cursor_now();
        if self.leases.wanted_events() == 0
            || self.leases.get_mut().served_bytes >= self.settings.batch.bytes_preferred
        {
            self.hand_over(lane);
        }
    }

    /// Whether to read the log before the first waiting client is served: it has more events, and
    /// the client would get fewer than it requests.
    pub(super) fn reads_log_first(&self) -> bool {
        let has_looked = self
            .leases
            .0
            .as_ref()
            .is_some_and(|leases| leases.looked || !leases.served.is_empty());
        if has_looked || !self.live.ready_events().is_empty() {
            return false;
        }
        let most = self.batch_max().min(self.free_leases()) as usize;
        let is_short =
            |lane: &&LaneReader| lane.lane() == Lane::LIVE && (1..most).contains(&lane.ready());
        self.lanes
            .iter()
            .find(is_short)
            .is_some_and(|lane| lane.is_unread(self.end))
    }

    /// Ends a round: nothing more is available now. Without a waiting client no events stay ready.
    pub(super) fn finish_lease_round(&mut self, effects: &mut Vec<Effect>) {
        if !self.is_pulled() {
            return;
        }
        if let Some(lane) = self
            .leases
            .0
            .as_ref()
            .and_then(|leases| Some(leases.served.first()?.0.lane))
        {
            self.hand_over(lane);
        }
        if self.endpoint.is_closed() {
            let waiting = std::mem::take(&mut self.leases.get_mut().waiting);
            effects.extend(waiting.into_keys().map(|to| Effect::HandOver {
                to,
                events: Vec::new(),
            }));
        }
        if !self.leases.is_wanted() {
            self.forget_ready_jobs();
            for ReadyEvent { item, .. } in self.live.take_all_ready() {
                self.park_key(item);
            }
        }
    }

    fn hand_over(&mut self, lane: Lane) {
        let Some((to, _)) = self.leases.get_mut().waiting.pop_first() else {
            return;
        };
        let leases = self.leases.get_mut();
        let events = std::mem::take(&mut leases.served);
        (leases.served_bytes, leases.looked) = (0, false);
        self.update_counters(lane, |counters| counters.requests += 1);
        self.leases
            .get_mut()
            .unwritten
            .push(Effect::HandOver { to, events });
    }

    /// Fetches idle events if a client waits, and those that expired.
    pub(super) fn wake_idle(&mut self, now: Timestamp) {
        let wanted = self.is_pulled() && self.leases.is_wanted();
        let max = self.leases.wanted_by_all().max(1);
        // Nothing expires while expiry is suspended.
        let expired_by = if self.expiry_paused {
            Timestamp::default()
        } else {
            now
        };
        self.live.wake_idle(expired_by, wanted, max);
    }

    /// Keeps the key of an event that no client waits for.
    fn park_key(
        &mut self,
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
            self.settings.expiry_of(appended)
        };
        if let Some(due) = due {
            self.live.keep_idle(DueKey { due, lane, seq }, expires);
        }
    }

    /// Takes a due event: its lock expired, or the delay of its release is over.
    pub(super) fn take_up(&mut self, ready: ReadyEvent, now: Timestamp) {
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
            has_expired && self.expiry_paused,
            item.attempts >= self.settings.attempts_max,
            last,
            self.settings.pull,
        ) {
            let until = now.after(lock);
            let first_lock = item.since.unwrap_or(tried);
            self.defer_event(
                item,
                until,
                LastAttempt::from_client(LastOutcome::Delivering, tried),
            );
            self.leases.get_mut().known.insert(
                key,
                HeldLock {
                    attempt: item.attempts,
                    until,
                    received: first_lock,
                    tried,
                },
            );
            return;
        }
        if has_expired {
            self.leases.end_lease(key);
            self.note_lease(
                item.lane,
                item.attempts,
                vec![SeqRun::single(item.seq)],
                LeaseStep::Expired,
                now,
            );
            self.update_counters(item.lane, |counters| counters.requests_failed += 1);
            self.counts.count_failure(Failure::TimedOut.into());
        }
        // An operator may have an event that blocked its key received once more.
        if item.attempts >= self.settings.attempts_max && !is_exempt(item.due) {
            return self.give_up(item, Reason::MaxDeliveryAttemptsExceeded, last, now);
        }
        let ready = ReadyEvent { last, ..ready };
        if self.is_expired(&ready, now) {
            return self.give_up(item, Reason::TimeToLiveExceeded, last, now);
        }
        match (has_expired, item.due, last) {
            (true, Some(due), Some(last)) => self.defer_event(
                item,
                due,
                LastAttempt::from_client(Failure::TimedOut, last.tried),
            ),
            _ if self.is_wanted() || item.lane.is_job() => {
                self.queue_mut(item.lane).push_ready(ready)
            }
            _ => self.park_key(item),
        }
    }

    /// Adds a ledger entry for a step of these leases, and counts it.
    fn note_lease(
        &mut self,
        lane: Lane,
        attempt: u32,
        runs: Vec<SeqRun>,
        step: LeaseStep,
        now: Timestamp,
    ) {
        self.counts.count_lease_step(
            step.kind(),
            runs.iter().map(|run| u64::from(run.count)).sum(),
        );
        self.pending_write.push_entry(
            lane,
            attempt,
            LedgerEntry {
                at: now,
                runs,
                what: LedgerEvent::Lease(step),
            },
        );
    }

    // --- settling ---

    pub(super) fn on_claim(&mut self, claim: LeaseClaim) {
        self.leases.get_mut().claims.push_back(claim);
    }

    /// Takes the disk's answer about leases of an earlier incarnation.
    pub(super) fn on_leases_read(
        &mut self,
        found: &[(Lane, Seq, Option<PendingDelivery>)],
        now: Timestamp,
    ) {
        if self
            .leases
            .lookup()
            .and_then(|lookup| lookup.take_result(found))
            != Some(LookupResult::Good)
        {
            return;
        }
        for (lane, seq, pending) in found {
            let key = (*lane, *seq);
            let Some(pending) = pending
                .as_ref()
                .filter(|pending| pending.last == LastOutcome::Delivering && now < pending.due)
            else {
                continue;
            };
            if self.live.due.is_out_of_range(pending.due, now) {
                continue;
            }
            // A decision of this incarnation is not on disk yet.
            let entry = self.queue_mut(*lane).due.find_pending(key);
            if entry == WindowEntry::Pending(pending.due) || entry == WindowEntry::Nothing {
                let attempt = pending.attempts;
                let until = pending.due;
                let tried = pending.tried;
                let first_lock = pending.received.unwrap_or(tried);
                self.leases.get_mut().known.entry(key).or_insert(HeldLock {
                    attempt,
                    until,
                    received: first_lock,
                    tried,
                });
            }
        }
        if let Some(claim) = self.leases.get_mut().claims.pop_front() {
            self.settle_claim(&claim, now);
        }
    }

    /// Decides claims in order, up to the first that needs a lookup.
    pub(super) fn settle_claims(&mut self, now: Timestamp) {
        while let Some(leases) = &mut self.leases.0
            && !leases.lookup.is_open()
            && !self.pending_write.is_ahead()
        {
            let Some(claim) = leases.claims.front() else {
                return;
            };
            let keys: BTreeSet<(Lane, Seq)> = claim.leases.iter().map(Lease::key).collect();
            let unknown_keys: Vec<(Lane, Seq)> = keys
                .into_iter()
                .filter(|key| self.may_be_of_earlier_incarnation(*key))
                .collect();
            if !unknown_keys.is_empty() {
                return self.leases.get_mut().lookup.set_keys(unknown_keys);
            }
            if let Some(claim) = self.leases.get_mut().claims.pop_front() {
                self.settle_claim(&claim, now);
            }
        }
    }

    /// Whether only the disk knows whether this event is leased.
    fn may_be_of_earlier_incarnation(&mut self, key: (Lane, Seq)) -> bool {
        if self
            .leases
            .0
            .as_ref()
            .is_some_and(|leases| leases.known.contains_key(&key))
        {
            return false;
        }
        let queue = self.queue_mut(key.0);
        !queue.iter_engaged_keys().any(|engaged| engaged == key)
            && queue.due.find_pending(key) != WindowEntry::Left
    }

    fn settle_claim(&mut self, claim: &LeaseClaim, now: Timestamp) {
        // A client may renew the same lock twice in one claim.
        let mut settled_seqs: BTreeMap<(Lane, u32, Timestamp), BTreeSet<Seq>> = BTreeMap::new();
        let mut results = Vec::with_capacity(claim.leases.len());
        for lease in &claim.leases {
            let result = match self.settle_lease(*lease, claim.action, now) {
                Ok(until) => {
                    settled_seqs
                        .entry((lease.lane, lease.attempt, until))
                        .or_default()
                        .insert(lease.seq);
                    LeaseResult::Done
                }
                Err(lost) => lost,
            };
            results.push(result);
        }
        for ((lane, attempt, until), mut seqs) in settled_seqs {
            let step = match claim.action {
                LeaseAction::Acknowledge => LeaseStep::Acknowledged,
                LeaseAction::Release(_) | LeaseAction::Return => LeaseStep::Released { until },
                LeaseAction::Renew => LeaseStep::Renewed { until },
                // Giving up adds its own ledger entry, unless the event blocks its order key.
                LeaseAction::Reject => {
                    seqs.retain(|seq| {
                        self.ordering
                            .as_ref()
                            .is_some_and(|ordering| ordering.blocking.contains_event(*seq))
                    });
                    LeaseStep::Released { until }
                }
            };
            if seqs.is_empty() {
                continue;
            }
            self.note_lease(
                lane,
                attempt,
                runs_of(seqs.into_iter().collect()),
                step,
                now,
            );
        }
        // Results without a change are queued too, so that they stay in order.
        self.leases.get_mut().unwritten.push(Effect::ReportResults {
            to: claim.id,
            verdicts: results,
        });
        self.pending_write.write_cursor_now();
    }

    /// Settles a lease. Returns the time until which the event waits, or now if it has ended.
    fn settle_lease(
        &mut self,
        lease: Lease,
        action: LeaseAction,
        now: Timestamp,
    ) -> Result<Timestamp, LeaseResult> {
        let key = lease.key();
        let good = |lock: &&HeldLock| lock.attempt == lease.attempt && now < lock.until;
        let HeldLock {
            attempt,
            until,
            received,
            tried,
        } = *self
            .leases
            .0
            .as_ref()
            .and_then(|leases| leases.known.get(&key))
            .filter(good)
            .ok_or(LeaseResult::Lost)?;
        let Lease {
            lane,
            seq,
            appended,
            ..
        } = lease;
        let item = SendItem {
            lane,
            seq,
            appended,
            attempts: attempt,
            due: Some(until),
            since: Some(received),
        };
        let last = Some(LastAttempt::from_client(LastOutcome::Delivering, tried));
        let renewal_limit = received.after(RENEWED_FOR);
        match action {
            LeaseAction::Renew if renewal_limit <= now => return Err(LeaseResult::TooOld),
            LeaseAction::Renew => {
                let lock = self
                    .settings
                    .pull
                    .map_or_else(Default::default, |pull| pull.lock);
                let longer = now.after(lock).min(renewal_limit).max(until);
                if longer > until {
                    self.defer_event(
                        item,
                        longer,
                        LastAttempt::from_client(LastOutcome::Delivering, tried),
                    );
                    self.leases.get_mut().known.insert(
                        key,
                        HeldLock {
                            attempt,
                            until: longer,
                            received,
                            tried,
                        },
                    );
                }
                return Ok(longer);
            }
            LeaseAction::Acknowledge
            | LeaseAction::Release(_)
            | LeaseAction::Reject
            | LeaseAction::Return => {}
        }
        self.leases.end_lease(key);
        match action {
            LeaseAction::Acknowledge | LeaseAction::Renew => self.mark_delivered(item),
            LeaseAction::Reject => self.give_up(item, Reason::Rejected, last, now),
            LeaseAction::Release(_) if attempt >= self.settings.attempts_max => {
                self.give_up(item, Reason::MaxDeliveryAttemptsExceeded, last, now);
            }
            LeaseAction::Release(delay) => {
                let due = avoid_due(until, now.after(delay));
                self.defer_event(item, due, LastAttempt::from_client(Outcome::Aborted, tried));
                return Ok(due);
            }
            LeaseAction::Return => {
                let attempts = attempt.saturating_sub(1);
                let item = SendItem {
                    attempts,
                    since: item.since.filter(|_| attempts > 0),
                    ..item
                };
                let due = avoid_due(until, now);
                self.defer_event(item, due, LastAttempt::from_client(Outcome::Aborted, tried));
                return Ok(due);
            }
        }
        Ok(now)
    }
}

/// Returns `until`, moved away from `due`. A key equal to that of the lock would be taken for it
/// while the lock is still on disk.
fn avoid_due(until: Timestamp, due: Timestamp) -> Timestamp {
    if due == until {
        due.after(Duration::from_micros(1))
    } else {
        due
    }
}
