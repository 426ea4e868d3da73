//! The control plane's records, as far as logs and cursors depend on them. The store keeps them as
//! bytes.

use std::collections::BTreeSet;

use super::Salvage;
use crate::fsck::CheckStop;
use gridhook_event::{PartitionId, SubscriptionId, SubscriptionKey};
use gridhook_store::{
    Family,
    keys::{self, MetaKind},
};

/// Makes the record of assigned numbers from the existing record and the largest numbers in use.
pub type ControlNumbers = fn(Option<&[u8]>, PartitionId, SubscriptionId) -> (&'static str, Vec<u8>);

/// Functions that read and write the control plane's records, given by the caller.
#[derive(Clone, Copy, Debug)]
pub struct ControlRecords {
    /// Reads the partitions of a topic.
    pub partitions: fn(&[u8]) -> Option<Vec<PartitionId>>,
    /// Reads the number of a subscription.
    pub subscription: fn(&[u8]) -> Option<SubscriptionId>,
    /// Makes the record of assigned numbers, and its name.
    pub numbers: ControlNumbers,
    /// A subscription's dead-letter totals, with at least this number of written or lost ones.
    pub dead_letter_totals: fn(Option<&[u8]>, u64) -> Vec<u8>,
}

impl Salvage<'_> {
    /// Deletes records whose topic is missing, and collects the existing subscriptions.
    pub(super) fn control_records(&mut self) -> Result<(), CheckStop> {
        let mut topics = std::collections::BTreeMap::new();
        self.visit_range(
            Family::Meta,
            &keys::meta_of(MetaKind::Topic),
            |salvage, key, value| {
                let Some((_, name)) = keys::parse_meta(key) else {
                    return Ok(());
                };
                match (salvage.control.partitions)(value) {
                    Some(partitions) => {
                        for id in &partitions {
                            salvage.parts.entry(*id).or_default();
                        }
                        topics.insert(name.to_vec(), partitions);
                    }
                    None => {
                        salvage.loss.add_record(format!(
                            "removed: the topic {}, which cannot be read",
                            display_name(name)
                        ));
                        salvage.delete_record(Family::Meta, key.to_vec())?;
                    }
                }
                Ok(())
            },
        )?;
        let mut wanted = BTreeSet::new();
        for (kind, what) in [
            (MetaKind::Subscription, "event subscription"),
            (MetaKind::DomainTopic, "domain topic"),
            (MetaKind::Proposal, "proposed event subscription"),
        ] {
            self.visit_range(Family::Meta, &keys::meta_of(kind), |salvage, key, value| {
                let Some((_, name)) = keys::parse_meta(key) else {
                    return Ok(());
                };
                let topic = name
                    .split(|byte| *byte == b'/')
                    .next()
                    .and_then(|topic| topics.get(topic));
                let number = (salvage.control.subscription)(value);
                match (topic, number) {
                    (None, _) => {
                        salvage.loss.add_record(format!(
                            "removed: the {what} {}, whose topic is missing",
                            display_name(name)
                        ));
                        return salvage.delete_record(Family::Meta, key.to_vec());
                    }
                    (Some(_), None) if kind == MetaKind::Subscription => {
                        salvage.loss.add_record(format!(
                            "removed: the {what} {}, which cannot be read",
                            display_name(name)
                        ));
                        return salvage.delete_record(Family::Meta, key.to_vec());
                    }
                    (Some(partitions), Some(subscription)) if kind == MetaKind::Subscription => {
                        wanted.extend(partitions.iter().map(|id| SubscriptionKey {
                            partition: *id,
                            subscription,
                        }));
                    }
                    (Some(_), _) => {}
                }
                Ok(())
            })?;
        }
        self.wanted = wanted;
        Ok(())
    }

    /// Makes sure that no number in use is assigned again.
    pub(super) fn reserve_numbers(&mut self) -> Result<(), CheckStop> {
        let mut last_number = None;
        self.visit_range(
            Family::Meta,
            &keys::meta_of(MetaKind::Numbers),
            |_, _, value| {
                last_number = Some(value.to_vec());
                Ok(())
            },
        )?;
        let partitions = self
            .above
            .keys()
            .chain(self.parts.keys())
            .max()
            .copied()
            .unwrap_or(PartitionId(0));
        let (name, numbers) = (self.control.numbers)(
            last_number.as_deref(),
            partitions,
            SubscriptionId(self.subscriptions),
        );
        Ok(self.put_record(
            Family::Meta,
            keys::meta_key(MetaKind::Numbers, name.as_bytes()),
            numbers,
        )?)
    }
}

fn display_name(name: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(name)
}
