//! Whether what is owed falls due once, when it says, and can be read.

use super::{Check, Mend, Stop, who};
use crate::{
    event::Obligor,
    journal::{
        keys,
        records::Record,
        store::{Family, Op},
    },
    policy::record::Owed,
};

impl Check<'_> {
    pub(super) fn owed(&mut self) -> Result<(), Stop> {
        self.each(Family::Owed, |check, key, value| {
            let Some((partition, seq, subscription, lane)) = keys::parse_owed(key) else {
                check.report.wrong(format!("a key of an owed record: {key:02x?}"));
                return Ok(());
            };
            let obligor = Obligor { partition, subscription };
            check.report.count("owed", 1);
            check.share(obligor)?.owed[usize::from(lane.is_job())] += 1;
            let at = format!("{}: event {} in lane {}", who(obligor), seq.0, lane.0);
            match Owed::decode(value) {
                Ok(Owed { due, .. }) => {
                    let share = check.share(obligor)?;
                    share.first_due = Some(share.first_due.map_or(due, |first| first.min(due)));
                    let place = keys::due(obligor, due, lane, seq);
                    if check.store.get(Family::Due, &place)?.is_none() {
                        let what = format!("{at} is owed for {due} and does not fall due then");
                        check.mend(Mend::MissingDue, what, Op::Put(Family::Due, place, bytes::Bytes::new()));
                    }
                }
                Err(error) => check.report.wrong(format!("{at}: {error}")),
            }
            check.is_there(obligor, seq, &format!("{at} is owed")).map(drop)
        })
    }

    pub(super) fn due(&mut self) -> Result<(), Stop> {
        self.each(Family::Due, |check, key, _| {
            let Some((obligor, at, lane, seq)) = keys::parse_due(key) else {
                check.report.wrong(format!("a key of the order of falling due: {key:02x?}"));
                return Ok(());
            };
            let what = format!("{}: event {} in lane {} falls due at {at}", who(obligor), seq.0, lane.0);
            let owed = keys::owed(obligor.partition, seq, obligor.subscription, lane);
            let what = match check.store.get(Family::Owed, &owed)?.map(|owed| Owed::decode(&owed)) {
                None => format!("{what} and is not owed"),
                Some(Ok(owed)) if owed.due != at => format!("{what} and is owed for {}", owed.due),
                // Damage was told where it was owed.
                Some(Ok(_) | Err(_)) => return Ok(()),
            };
            check.left_over(Mend::StrayDue, what, Op::SingleDelete(Family::Due, key.to_vec()));
            Ok(())
        })
    }
}
