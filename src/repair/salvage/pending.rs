//! Makes pending deliveries and dead letters consistent: each event once, and only if it can be
//! read.

use super::{LostEvent, Salvage};
use crate::fsck::CheckStop;
use gridhook_event::{Lane, Seq, SubscriptionKey};
use gridhook_policy::{
    outcome::Reason,
    record::{Cursor, LedgerEntry, LedgerEvent, LedgerLine, SeqRun},
};
use gridhook_store::{Family, StoreError, keys, ledger, log::EventFinder};

/// The fate of a pending delivery or a dead letter.
enum RecordState {
    Keep,
    /// The record is deleted, because its subscription will read the event again.
    ReadAgain,
    Lost,
    /// The subscription or the job of the record does not exist.
    Unowned,
}

impl Salvage<'_> {
    pub(super) fn pending_and_dead(&mut self) -> Result<(), CheckStop> {
        self.visit_family(Family::Pending, |salvage, key, _| {
            let Some((partition, seq, subscription, lane)) = keys::parse_pending(key) else {
                return Ok(());
            };
            let of = SubscriptionKey {
                partition,
                subscription,
            };
            match salvage.record_state(of, lane, seq)? {
                RecordState::Keep => *salvage.pending.entry((of, lane)).or_default() += 1,
                RecordState::ReadAgain | RecordState::Unowned => {
                    salvage.delete_record(Family::Pending, key.to_vec())?
                }
                RecordState::Lost => {
                    salvage.record_lost_event(of, lane, seq, false)?;
                    salvage.delete_record(Family::Pending, key.to_vec())?;
                }
            }
            Ok(())
        })?;
        self.visit_family(Family::Dead, |salvage, key, _| {
            let Some((of, _, seq, lane)) = keys::parse_dead(key) else {
                return Ok(());
            };
            let state = salvage.state_of_dead_letter(of, lane, seq)?;
            if let RecordState::Keep = state {
                *salvage.dead.entry(of).or_default() += 1;
                return Ok(());
            }
            if let RecordState::Lost = state {
                salvage.record_lost_event(of, lane, seq, true)?;
                *salvage.dead_listed.entry(of).or_default() += 1;
            }
            salvage.delete_record(
                Family::Pin,
                keys::pin(of.partition, seq, of.subscription, lane),
            )?;
            salvage.delete_record(Family::Dead, key.to_vec())
        })?;
        self.flush()?;
        // Records that are not needed any more.
        self.visit_family(Family::Due, |salvage, key, _| {
            let Some((of, _, lane, seq)) = keys::parse_due(key) else {
                return Ok(());
            };
            let pending = keys::pending(of.partition, seq, of.subscription, lane);
            if salvage.store.get(Family::Pending, &pending)?.is_some() {
                return Ok(());
            }
            salvage.delete_record(Family::Due, key.to_vec())
        })?;
        let mut waiting = std::collections::HashSet::new();
        self.visit_family(Family::Dead, |_, key, _| {
            waiting.extend(keys::parse_dead(key).map(|(of, _, seq, lane)| (of, seq, lane)));
            Ok(())
        })?;
        self.visit_family(Family::Pin, |salvage, key, _| {
            let Some((partition, seq, subscription, lane)) = keys::parse_pin(key) else {
                return Ok(());
            };
            if waiting.contains(&(
                SubscriptionKey {
                    partition,
                    subscription,
                },
                seq,
                lane,
            )) {
                return Ok(());
            }
            salvage.delete_record(Family::Pin, key.to_vec())
        })?;
        Ok(())
    }

    fn record_state(
        &mut self,
        of: SubscriptionKey,
        lane: Lane,
        seq: Seq,
    ) -> Result<RecordState, StoreError> {
        let Some(cursor) = self.cursors.get(&of) else {
            return Ok(RecordState::Unowned);
        };
        if lane.is_job() && cursor.jobs.iter().all(|job| job.lane != lane) {
            return Ok(RecordState::Unowned);
        }
        if comes_again(cursor, lane, seq) {
            return Ok(RecordState::ReadAgain);
        }
        self.event_state(of, seq)
    }

    /// Decides about a dead letter, which outlives its job.
    fn state_of_dead_letter(
        &mut self,
        of: SubscriptionKey,
        lane: Lane,
        seq: Seq,
    ) -> Result<RecordState, StoreError> {
        match self.record_state(of, lane, seq)? {
            RecordState::Unowned if self.cursors.contains_key(&of) => self.event_state(of, seq),
            state => Ok(state),
        }
    }

    fn event_state(&self, of: SubscriptionKey, seq: Seq) -> Result<RecordState, StoreError> {
        match EventFinder::new(self.store, of.partition).find_event(seq) {
            Ok(Some(_)) => Ok(RecordState::Keep),
            Ok(None) | Err(StoreError::Damaged(_)) => Ok(RecordState::Lost),
            Err(error @ (StoreError::Full | StoreError::Failed(_))) => Err(error),
        }
    }

    fn record_lost_event(
        &mut self,
        of: SubscriptionKey,
        lane: Lane,
        seq: Seq,
        was_dead_letter: bool,
    ) -> Result<(), StoreError> {
        let subscription = of.subscription.0;
        let partition = of.partition.0;
        self.loss.add_event(LostEvent {
            subscription,
            partition,
            sequence: seq.0,
            was_dead_letter,
        });
        let what = LedgerEvent::GivenUp {
            reason: Reason::Missing,
            dead_lettered: false,
        };
        let entry = LedgerEntry {
            at: self.now,
            runs: vec![SeqRun::single(seq)],
            what,
        };
        ledger::put_lines(
            &mut self.batch,
            of,
            &vec![LedgerLine {
                lane,
                attempt: 0,
                entry,
            }]
            .into(),
        );
        self.flush_if_full()
    }
}

/// Whether the cursor, which may be an older version, has not passed the event: it is unread or
/// open. Lanes of the log share their events; a lane of a job has its own.
pub(super) fn comes_again(cursor: &Cursor, lane: Lane, seq: Seq) -> bool {
    let shares = |other: Lane| other == lane || !(other.is_job() || lane.is_job());
    cursor
        .lanes
        .iter()
        .filter(|other| shares(other.lane))
        .any(|other| other.open.contains(seq) || other.is_unread(seq))
}
