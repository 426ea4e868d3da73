//! Checks that each pending delivery has exactly one due record, at the right time, and that its
//! event can be read.

use super::{CheckStop, Repair, StoreCheck, subscription_name};
use gridhook_event::SubscriptionKey;
use gridhook_policy::record::PendingDelivery;
use gridhook_store::{Family, WriteOp, keys, records::StoredRecord};

impl StoreCheck<'_> {
    pub(super) fn check_pending(&mut self) -> Result<(), CheckStop> {
        self.visit_records(Family::Pending, |check, key, value| {
            let Some((partition, seq, subscription, lane)) = keys::parse_pending(key) else {
                check.report.add_problem(format!(
                    "the key of a pending delivery cannot be parsed: {key:02x?}"
                ));
                return Ok(());
            };
            let subscription_key = SubscriptionKey {
                partition,
                subscription,
            };
            check.report.add_count("pending deliveries", 1);
            check.subscription_mut(subscription_key)?.pending[usize::from(lane.is_job())] += 1;
            let at = format!(
                "{}: event {} in lane {}",
                subscription_name(subscription_key),
                seq.0,
                lane.0
            );
            match PendingDelivery::decode(value) {
                Ok(PendingDelivery { due, .. }) => {
                    let subscription = check.subscription_mut(subscription_key)?;
                    subscription.first_due =
                        Some(subscription.first_due.map_or(due, |first| first.min(due)));
                    let due_key = keys::due(subscription_key, due, lane, seq);
                    if check.store.get(Family::Due, &due_key)?.is_none() {
                        let what = format!(
                            "{at} is pending for {due} and has no due record for that time"
                        );
                        check.add_repairable(
                            Repair::MissingDue,
                            what,
                            WriteOp::Put(Family::Due, due_key, bytes::Bytes::new()),
                        );
                    }
                }
                Err(error) => check.report.add_problem(format!("{at}: {error}")),
            }
            check
                .check_readable(subscription_key, seq, &format!("{at} is pending"))
                .map(drop)
        })
    }

    pub(super) fn check_due(&mut self) -> Result<(), CheckStop> {
        self.visit_records(Family::Due, |check, key, _| {
            let Some((subscription_key, at, lane, seq)) = keys::parse_due(key) else {
                check.report.add_problem(format!(
                    "the key of a due record cannot be parsed: {key:02x?}"
                ));
                return Ok(());
            };
            let what = format!(
                "{}: event {} in lane {} has a due record for {at}",
                subscription_name(subscription_key),
                seq.0,
                lane.0
            );
            let pending = keys::pending(
                subscription_key.partition,
                seq,
                subscription_key.subscription,
                lane,
            );
            let what = match check
                .store
                .get(Family::Pending, &pending)?
                .map(|value| PendingDelivery::decode(&value))
            {
                None => format!("{what} and is not pending"),
                Some(Ok(pending)) if pending.due != at => {
                    format!("{what} and is pending for {}", pending.due)
                }
                // Damage was reported with the pending delivery.
                Some(Ok(_) | Err(_)) => return Ok(()),
            };
            check.add_leftover(
                Repair::StrayDue,
                what,
                WriteOp::SingleDelete(Family::Due, key.to_vec()),
            );
            Ok(())
        })
    }
}
