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
    pub(super) fn dead(&mut self) -> Result<(), CheckStop> {
        self.each(Family::Dead, |check, key, value| {
            let Some((subscription_key, _, seq, lane)) = keys::parse_dead(key) else {
                check.report.wrong(format!(
                    "the key of a dead letter cannot be parsed: {key:02x?}"
                ));
                return Ok(());
            };
            check.report.count("dead letters", 1);
            check.subscription(subscription_key)?.dead += 1;
            let at = format!(
                "{}: event {} in lane {}",
                subscription_name(subscription_key),
                seq.0,
                lane.0
            );
            if let Err(error) = DeadLetterRecord::decode(value) {
                check.report.wrong(format!("{at}: {error}"));
            }
            check.is_there(subscription_key, seq, &format!("{at} is a dead letter"))?;
            let pin = keys::pin(
                subscription_key.partition,
                seq,
                subscription_key.subscription,
                lane,
            );
            if check.store.get(Family::Pin, &pin)?.is_none() {
                let what = format!("{at} is a dead letter and is not pinned");
                check.repairable(
                    Repair::MissingPin,
                    what,
                    WriteOp::Put(Family::Pin, pin, Bytes::new()),
                );
            }
            Ok(())
        })
    }

    pub(super) fn pins(&mut self) -> Result<(), CheckStop> {
        self.each(Family::Pin, |check, key, _| {
            match keys::parse_pin(key) {
                Some((partition, _, subscription, _)) => {
                    check
                        .subscription(SubscriptionKey {
                            partition,
                            subscription,
                        })?
                        .pins += 1
                }
                None => check
                    .report
                    .wrong(format!("the key of a pin cannot be parsed: {key:02x?}")),
            }
            Ok(())
        })
    }

    pub(super) fn dead_letter_totals(&mut self) -> Result<(), CheckStop> {
        self.each_in(
            Family::Meta,
            &keys::meta_of(MetaKind::DeadLetters),
            |check, key, value| {
                if (check.decoders.handled)(value).is_none() {
                    check
                        .report
                        .wrong(format!("dead-letter totals are damaged: {key:02x?}"));
                }
                Ok(())
            },
        )
    }
}
