//! Reads the stored versions of a subscription's filter. The ledger refers to the version that
//! filtered an event out.

use std::collections::BTreeMap;

use bytes::Bytes;

use gridhook_event::{PartitionId, SubscriptionId, SubscriptionKey};
use gridhook_journal as journal;
use gridhook_journal::Journal;
use gridhook_record::filter_version::FilterVersion;
use gridhook_store::keys::{self, MetaKind};

/// The versions of one subscription's filter, by number: those that changed it. [`None`] if a
/// version cannot be read.
pub type Versions = BTreeMap<u32, Option<FilterVersion>>;

/// The version in force at subscription version `version`: the last one that is not later. [`None`]
/// if there is none or it cannot be read: an earlier one would give a wrong reason.
pub fn in_force(versions: &Versions, version: u32) -> Option<&FilterVersion> {
    versions
        .range(..=version)
        .next_back()
        .and_then(|(_, found)| found.as_ref())
}

/// The versions of one subscription's filter.
///
/// # Errors
/// If the store cannot be read.
pub async fn read_versions(
    journal: &Journal,
    subscription_key: SubscriptionKey,
) -> Result<Versions, journal::Error> {
    let records = journal
        .reader_pool()
        .meta_from(MetaKind::Filter, keys::filters_of(subscription_key))
        .await?;
    Ok(read(records).remove(&subscription_key).unwrap_or_default())
}

/// The filter versions of the next `max` subscriptions of a partition, those behind `behind`.
/// Deleted ones are included.
///
/// # Errors
/// If the store cannot be read.
pub async fn next_version(
    journal: &Journal,
    partition: PartitionId,
    behind: Option<SubscriptionId>,
    max: usize,
) -> Result<BTreeMap<SubscriptionKey, Versions>, journal::Error> {
    Ok(read(
        journal
            .reader_pool()
            .next_filters(partition, behind, max)
            .await?,
    ))
}

fn read(records: Vec<(String, Bytes)>) -> BTreeMap<SubscriptionKey, Versions> {
    let mut versions: BTreeMap<SubscriptionKey, Versions> = BTreeMap::new();
    for (name, value) in records {
        let Some((subscription_key, version)) = keys::parse_filter_name(&name) else {
            tracing::warn!(name, "cannot read the name of a filter version");
            continue;
        };
        // An event that this version filtered out is reported without a reason. Nothing else
        // depends on it, so the server continues.
        let filter = serde_json::from_slice(&value).inspect_err(|error| {
            let partition = subscription_key.partition.0;
            let subscription = subscription_key.subscription.0;
            tracing::warn!(partition, subscription, version, %error, "cannot read a filter \
                version");
        });
        versions
            .entry(subscription_key)
            .or_default()
            .insert(version, filter.ok());
    }
    versions
}
