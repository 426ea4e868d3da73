//! Which versions of subscriptions' filters are kept ([`filter_version`]).
//!
//! Invariants: a version is written with the change that makes it, and only where that changes the filter; one is kept as
//! long as a line of the ledger may speak of it, also where its subscription was deleted, and there are `KEPT_MAX` of a
//! subscription and `ENDED_MAX` of deleted ones at most.

use std::{sync::Arc, time::Duration};

use tracing::warn;

use super::registry::Registry;
use crate::{
    control::record::{
        filter_version::{self, FilterVersion, Versions},
        subscription::SubscriptionRecord,
    },
    event::SubscriptionKey,
    journal::{self, Journal, MetaChange},
    store::keys::{self, MetaKind},
};

/// So many versions of one subscription's filter are kept.
const KEPT_MAX: usize = 64;

/// So many versions of filters of deleted subscriptions are kept.
const ENDED_MAX: usize = 4096;

/// How often it is looked which versions of deleted subscriptions nobody needs any more.
const SWEEP: Duration = Duration::from_secs(3600);

/// What is to be written where a subscription is made or changed.
pub(crate) async fn change(
    journal: &Journal,
    subscription_key: SubscriptionKey,
    before: Option<&SubscriptionRecord>,
    record: &SubscriptionRecord,
) -> Result<Vec<MetaChange>, journal::Error> {
    let put = |record: &SubscriptionRecord| {
        let name = keys::filter_name(subscription_key, record.version);
        MetaChange::Put(MetaKind::Filter, name, super::registry::json(&FilterVersion::of(record)))
    };
    let Some(before) = before else { return Ok(vec![put(record)]) };
    if before.filter == record.filter {
        return Ok(Vec::new());
    }
    let known = filter_version::of(journal, subscription_key).await?;
    let needed = journal.reads().oldest_filter(subscription_key).await?;
    let needed = needed.and_then(|version| known.range(..=version).next_back()).map_or(0, |(version, _)| *version);
    let most = known.len().saturating_sub(KEPT_MAX - 1);
    let stale = known.keys().enumerate().filter(|(place, version)| *place < most || **version < needed);
    let mut changes: Vec<MetaChange> = stale
        .map(|(_, version)| MetaChange::Delete(MetaKind::Filter, keys::filter_name(subscription_key, *version)))
        .collect();
    if known.is_empty() {
        changes.push(put(before));
    }
    changes.push(put(record));
    Ok(changes)
}

/// Takes away the versions of deleted subscriptions of which the ledger says nothing any more.
///
/// # Errors
/// Where the store cannot be read or written; it is looked again in an hour.
pub async fn sweep(registry: &Registry, journal: &Journal) -> Result<(), journal::Error> {
    let known = filter_version::all(journal).await?;
    let ended: Vec<(SubscriptionKey, Versions)> =
        known.into_iter().filter(|(subscription_key, _)| registry.shared(*subscription_key).is_none()).collect();
    let mut left: usize = ended.iter().map(|(_, versions)| versions.len()).sum();
    let mut stale = Vec::new();
    // Numbers ascend: those that were made first go first.
    for (subscription_key, versions) in ended {
        if left > ENDED_MAX || journal.reads().oldest_line(subscription_key).await?.is_none() {
            left -= versions.len();
            let names = versions.into_keys().map(|version| keys::filter_name(subscription_key, version));
            stale.extend(names.map(|name| MetaChange::Delete(MetaKind::Filter, name)));
        }
    }
    if stale.is_empty() { Ok(()) } else { journal.change(stale).await }
}

/// Does so every hour, for as long as the server runs.
pub async fn run(registry: Arc<Registry>, journal: Journal) {
    loop {
        if let Err(error) = sweep(&registry, &journal).await {
            warn!(%error, "the filters of deleted subscriptions were not looked through");
        }
        actix_rt::time::sleep(SWEEP).await;
    }
}
