//! Whether each dead letter pins its event, which can be read, and the dead-letter actor's accounts are whole.

use bytes::Bytes;

use super::{Check, Mend, Stop, who};
use crate::{
    event::Obligor,
    journal::{
        keys::{self, MetaKind},
        records::Record,
        store::{Family, Op},
    },
    policy::record::Dead,
};

impl Check<'_> {
    pub(super) fn dead(&mut self) -> Result<(), Stop> {
        self.each(Family::Dead, |check, key, value| {
            let Some((obligor, _, seq, lane)) = keys::parse_dead(key) else {
                check.report.wrong(format!("a key of a dead letter: {key:02x?}"));
                return Ok(());
            };
            check.report.count("dead letters", 1);
            check.share(obligor)?.dead += 1;
            let at = format!("{}: event {} in lane {}", who(obligor), seq.0, lane.0);
            if let Err(error) = Dead::decode(value) {
                check.report.wrong(format!("{at}: {error}"));
            }
            check.is_there(obligor, seq, &format!("{at} is a dead letter"))?;
            let pin = keys::pin(obligor.partition, seq, obligor.subscription, lane);
            if check.store.get(Family::Pin, &pin)?.is_none() {
                let what = format!("{at} is a dead letter and not pinned");
                check.mend(Mend::MissingPin, what, Op::Put(Family::Pin, pin, Bytes::new()));
            }
            Ok(())
        })
    }

    pub(super) fn pins(&mut self) -> Result<(), Stop> {
        self.each(Family::Pin, |check, key, _| {
            match keys::parse_pin(key) {
                Some((partition, _, subscription, _)) => check.share(Obligor { partition, subscription })?.pins += 1,
                None => check.report.wrong(format!("a key of a pin: {key:02x?}")),
            }
            Ok(())
        })
    }

    pub(super) fn accounts(&mut self) -> Result<(), Stop> {
        self.each_in(Family::Meta, &keys::meta_of(MetaKind::DeadLetters), |check, key, value| {
            if (check.accounts.dealt_with)(value).is_none() {
                check.report.wrong(format!("an account of dead letters is damaged: {key:02x?}"));
            }
            Ok(())
        })
    }
}
