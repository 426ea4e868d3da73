//! Settling and renewing the locks of pull clients.
//!
//! Claims are decided in the order of their arrival. A claim about locks that this incarnation has
//! not granted waits for the disk.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    clients::PullClients,
    locks::HeldLock,
    lookup::{Lookup, LookupResult},
    settlement::{Settlement, runs_of},
};
use crate::{
    Effect, SendItem,
    batch::LastAttempt,
    outcome::{LastOutcome, Outcome, Reason},
    record::{
        LedgerEntry, LedgerEvent, PendingDelivery, SeqRun,
        lease::{Lease, LeaseAction, LeaseClaim, LeaseResult, LeaseStep, RENEWED_FOR},
    },
    retry_window::WindowEntry,
};
use gridhook_event::{Lane, Seq, Timestamp};

/// Makes an event pending until its lock expires.
pub(super) fn hold_lock(settlement: &mut Settlement, item: SendItem, lock: HeldLock) {
    let last = LastAttempt::from_client(LastOutcome::Delivering, lock.tried);
    settlement.defer_event(item, lock.until, last);
    settlement.locks.hold(item.key(), lock);
}

/// Adds a ledger entry for a step of these leases, and counts it.
pub(super) fn note_lease(
    settlement: &mut Settlement,
    lane: Lane,
    attempt: u32,
    runs: Vec<SeqRun>,
    step: LeaseStep,
    now: Timestamp,
) {
    settlement.totals.outcomes_mut().count_lease_step(
        step.kind(),
        runs.iter().map(|run| u64::from(run.count)).sum(),
    );
    settlement.pending_write.push_entry(
        lane,
        attempt,
        LedgerEntry {
            at: now,
            runs,
            what: LedgerEvent::Lease(step),
        },
    );
}

/// Takes what was read about leases of an earlier incarnation.
pub(super) fn on_leases_read(
    clients: &mut PullClients,
    settlement: &mut Settlement,
    found: &[(Lane, Seq, Option<PendingDelivery>)],
    now: Timestamp,
) {
    let result = settlement
        .locks
        .lookup_mut()
        .and_then(|lookup| lookup.take_result(found));
    if result != Some(LookupResult::Valid) {
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
        if settlement
            .queues
            .live()
            .window()
            .is_out_of_range(pending.due, now)
        {
            continue;
        }
        // A decision of this incarnation is not on disk yet.
        let entry = settlement.queues.find_pending(key);
        if entry == WindowEntry::Pending(pending.due) || entry == WindowEntry::Nothing {
            let attempt = pending.attempts;
            let until = pending.due;
            let first_lock = pending.received.unwrap_or(pending.tried);
            let lock = HeldLock {
                attempt,
                until,
                received: first_lock,
                tried: pending.tried,
            };
            settlement.locks.recover_lock(key, lock);
        }
    }
    if let Some(claim) = clients.take_claim() {
        settle_claim(clients, settlement, &claim, now);
    }
}

/// Decides claims in order, up to the first that needs a lookup.
pub(super) fn settle_claims(
    clients: &mut PullClients,
    settlement: &mut Settlement,
    now: Timestamp,
) {
    while let Some(claim) = clients.first_claim()
        && !settlement.locks.lookup().is_some_and(Lookup::is_open)
        && !settlement.pending_write.is_ahead()
    {
        let keys: BTreeSet<(Lane, Seq)> = claim.leases.iter().map(Lease::key).collect();
        let unknown_keys: Vec<(Lane, Seq)> = keys
            .into_iter()
            .filter(|key| may_be_of_earlier_incarnation(settlement, *key))
            .collect();
        if !unknown_keys.is_empty() {
            return settlement.locks.look_up(unknown_keys);
        }
        if let Some(claim) = clients.take_claim() {
            settle_claim(clients, settlement, &claim, now);
        }
    }
}

/// Whether only the disk knows whether this event is leased.
fn may_be_of_earlier_incarnation(settlement: &mut Settlement, key: (Lane, Seq)) -> bool {
    if settlement.locks.find_lock(key).is_some() {
        return false;
    }
    let queue = settlement.queues.lane_queue_mut(key.0);
    !queue.iter_engaged_keys().any(|engaged| engaged == key)
        && queue.window().find_pending(key) != WindowEntry::Left
}

fn settle_claim(
    clients: &mut PullClients,
    settlement: &mut Settlement,
    claim: &LeaseClaim,
    now: Timestamp,
) {
    // A client may renew the same lock twice in one claim.
    let mut settled_seqs: BTreeMap<(Lane, u32, Timestamp), BTreeSet<Seq>> = BTreeMap::new();
    let mut results = Vec::with_capacity(claim.leases.len());
    for lease in &claim.leases {
        let result = match settle_lease(settlement, *lease, claim.action, now) {
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
                seqs.retain(|seq| settlement.order.is_blocking(*seq));
                LeaseStep::Released { until }
            }
        };
        if seqs.is_empty() {
            continue;
        }
        note_lease(
            settlement,
            lane,
            attempt,
            runs_of(seqs.into_iter().collect()),
            step,
            now,
        );
    }
    // Results without a change are queued too, so that they stay in order.
    clients.add_effect(Effect::ReportResults {
        claim: claim.id,
        results,
    });
    settlement.pending_write.write_cursor_now();
}

/// Settles a lease. Returns the time until which the event waits, or now if it has ended.
fn settle_lease(
    settlement: &mut Settlement,
    lease: Lease,
    action: LeaseAction,
    now: Timestamp,
) -> Result<Timestamp, LeaseResult> {
    let key = lease.key();
    let HeldLock {
        attempt,
        until,
        received,
        tried,
    } = settlement
        .locks
        .find_lock(key)
        .filter(|lock| lock.attempt == lease.attempt && now < lock.until)
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
            let lock = settlement
                .settings
                .pull
                .map_or_else(Default::default, |pull| pull.lock);
            let longer = now.after(lock).min(renewal_limit).max(until);
            if longer > until {
                let lock = HeldLock {
                    attempt,
                    until: longer,
                    received,
                    tried,
                };
                hold_lock(settlement, item, lock);
            }
            return Ok(longer);
        }
        LeaseAction::Acknowledge
        | LeaseAction::Release(_)
        | LeaseAction::Reject
        | LeaseAction::Return => {}
    }
    settlement.locks.end_lock(key);
    match action {
        LeaseAction::Acknowledge | LeaseAction::Renew => settlement.mark_delivered(item),
        LeaseAction::Reject => settlement.give_up(item, Reason::Rejected, last, now),
        LeaseAction::Release(_) if attempt >= settlement.settings.attempts_max => {
            settlement.give_up(item, Reason::MaxDeliveryAttemptsExceeded, last, now);
        }
        LeaseAction::Release(delay) => {
            let due = avoid_due(until, now.after(delay));
            settlement.defer_event(item, due, LastAttempt::from_client(Outcome::Aborted, tried));
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
            settlement.defer_event(item, due, LastAttempt::from_client(Outcome::Aborted, tried));
            return Ok(due);
        }
    }
    Ok(now)
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
