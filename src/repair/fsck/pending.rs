//! Whether what is owed falls due once, when it says, and can be read.

use super::{CheckStop, Repair, StoreCheck, subscription_name};
use crate::{
    event::SubscriptionKey,
    policy::record::PendingDelivery,
    store::{Family, WriteOp, keys, records::StoredRecord},
};

impl StoreCheck<'_> {
    pub(super) fn check_pending(&mut self) -> Result<(), CheckStop> {
        self.each(Family::Pending, |check, key, value| {
            let Some((partition, seq, subscription, lane)) = keys::parse_pending(key) else {
                check.report.wrong(format!("a key of an owed record: {key:02x?}"));
                return Ok(());
            };
            let subscription_key = SubscriptionKey { partition, subscription };
            check.report.count("owed", 1);
            check.share(subscription_key)?.pending[usize::from(lane.is_job())] += 1;
            let at = format!("{}: event {} in lane {}", subscription_name(subscription_key), seq.0, lane.0);
            match PendingDelivery::decode(value) {
                Ok(PendingDelivery { due, .. }) => {
                    let share = check.share(subscription_key)?;
                    share.first_due = Some(share.first_due.map_or(due, |first| first.min(due)));
                    let place = keys::due(subscription_key, due, lane, seq);
                    if check.store.get(Family::Due, &place)?.is_none() {
                        let what = format!("{at} is owed for {due} and does not fall due then");
                        check.mend(Repair::MissingDue, what, WriteOp::Put(Family::Due, place, bytes::Bytes::new()));
                    }
                }
                Err(error) => check.report.wrong(format!("{at}: {error}")),
            }
            check.is_there(subscription_key, seq, &format!("{at} is owed")).map(drop)
        })
    }

    pub(super) fn due(&mut self) -> Result<(), CheckStop> {
        self.each(Family::Due, |check, key, _| {
            let Some((subscription_key, at, lane, seq)) = keys::parse_due(key) else {
                check.report.wrong(format!("a key of the order of falling due: {key:02x?}"));
                return Ok(());
            };
            let what = format!(
                "{}: event {} in lane {} falls due at {at}",
                subscription_name(subscription_key),
                seq.0,
                lane.0
            );
            let owed = keys::pending(subscription_key.partition, seq, subscription_key.subscription, lane);
            let what = match check.store.get(Family::Pending, &owed)?.map(|owed| PendingDelivery::decode(&owed)) {
                None => format!("{what} and is not owed"),
                Some(Ok(owed)) if owed.due != at => format!("{what} and is owed for {}", owed.due),
                // Damage was told where it was owed.
                Some(Ok(_) | Err(_)) => return Ok(()),
            };
            check.left_over(Repair::StrayDue, what, WriteOp::SingleDelete(Family::Due, key.to_vec()));
            Ok(())
        })
    }
}
