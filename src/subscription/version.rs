//! The versions of a subscription's filter, as they are kept: the ledger says which one stopped an event, and they say why.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::{
    event::{Name, Obligor, PartitionId},
    journal::{
        self, Journal,
        keys::{self, MetaKind},
    },
    policy::filter::Filter,
    subscription::record::SubscriptionRecord,
};

/// A version of a subscription's filter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilterVersion {
    /// The subscription's name.
    pub name: Name,
    /// The filter.
    pub filter: Filter,
}

impl FilterVersion {
    /// The one that `record` has.
    pub fn of(record: &SubscriptionRecord) -> Self {
        Self { name: record.name.clone(), filter: record.filter.clone() }
    }
}

/// The versions of one subscription's filter, by number: those that changed it.
pub type Versions = BTreeMap<u32, FilterVersion>;

/// The version in force where the ledger says `version`: the last one that is not later.
pub fn in_force(versions: &Versions, version: u32) -> Option<&FilterVersion> {
    versions.range(..=version).next_back().map(|(_, found)| found)
}

/// The versions of everybody's filters.
///
/// # Errors
/// Where the store cannot be read.
pub async fn all(journal: &Journal) -> Result<BTreeMap<Obligor, Versions>, journal::Error> {
    Ok(read(journal.reads().meta_from(MetaKind::Filter, String::new()).await?))
}

/// The versions of the filters of all who subscribe to a partition, or did.
///
/// # Errors
/// Where the store cannot be read.
pub async fn of_partition(
    journal: &Journal,
    partition: PartitionId,
) -> Result<BTreeMap<Obligor, Versions>, journal::Error> {
    Ok(read(journal.reads().meta_from(MetaKind::Filter, keys::filters_of_partition(partition)).await?))
}

/// The versions of one subscription's filter.
///
/// # Errors
/// Where the store cannot be read.
pub async fn of(journal: &Journal, obligor: Obligor) -> Result<Versions, journal::Error> {
    let found = journal.reads().meta_from(MetaKind::Filter, keys::filters_of(obligor)).await?;
    Ok(read(found).remove(&obligor).unwrap_or_default())
}

fn read(records: Vec<(String, Bytes)>) -> BTreeMap<Obligor, Versions> {
    let mut found: BTreeMap<Obligor, Versions> = BTreeMap::new();
    for (name, value) in records {
        // One that cannot be read is as good as gone: who traces is told that the filter is not known.
        if let (Some((obligor, version)), Ok(filter)) = (keys::parse_filter_name(&name), serde_json::from_slice(&value))
        {
            found.entry(obligor).or_default().insert(version, filter);
        }
    }
    found
}
