//! Checks that each dead letter pins its event, that the event can be read, and that the
//! dead-letter totals can be decoded.

use bytes::Bytes;

use super::{CheckStop, Repair, StoreCheck, subscription_name};
use gridhook_event::SubscriptionKey;
use gridhook_policy::record::DeadLetterRecord;
use gridhook_store::{
    Family, WriteOp,
    keys::{self, MetaKind},
    records::StoredRecord,
};

impl StoreCheck<'_> {
    pub(super) fn check_dead_letters(&mut self) -> Result<(), CheckStop> {
        self.visit_records(Family::Dead, |check, key, value| {
            let Some((subscription_key, _, seq, lane)) = keys::parse_dead(key) else {
                check.report.add_problem(format!(
                    "the key of a dead letter cannot be parsed: {key:02x?}"
                ));
                return Ok(());
            };
            check.report.add_count("dead letters", 1);
            check.subscription_mut(subscription_key)?.dead += 1;
            let at = format!(
                "{}: event {} in lane {}",
                subscription_name(subscription_key),
                seq.0,
                lane.0
            );
            if let Err(error) = DeadLetterRecord::decode(value) {
                check.report.add_problem(format!("{at}: {error}"));
            }
            check.check_readable(subscription_key, seq, &format!("{at} is a dead letter"))?;
            let pin = keys::pin(
                subscription_key.partition,
                seq,
                subscription_key.subscription,
                lane,
            );
            if check.store.get(Family::Pin, &pin)?.is_none() {
                let what = format!("{at} is a dead letter and is not pinned");
                check.add_repairable(
                    Repair::MissingPin,
                    what,
                    WriteOp::Put(Family::Pin, pin, Bytes::new()),
                );
            }
            Ok(())
        })
    }

    pub(super) fn check_pins(&mut self) -> Result<(), CheckStop> {
        self.visit_records(Family::Pin, |check, key, _| {
            match keys::parse_pin(key) {
                Some((partition, _, subscription, _)) => {
                    check
                        .subscription_mut(SubscriptionKey {
                            partition,
                            subscription,
                        })?
                        .pins += 1
                }
                None => check
                    .report
                    .add_problem(format!("the key of a pin cannot be parsed: {key:02x?}")),
            }
            Ok(())
        })
    }

    pub(super) fn check_dead_letter_totals(&mut self) -> Result<(), CheckStop> {
        self.visit_range(
            Family::Meta,
            &keys::meta_of(MetaKind::DeadLetters),
            |check, key, value| {
                if (check.decoders.handled)(value).is_none() {
                    check
                        .report
                        .add_problem(format!("dead-letter totals are damaged: {key:02x?}"));
                }
                Ok(())
            },
        )
    }
}
