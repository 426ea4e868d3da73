//! Decides which versions of subscriptions' filters are kept ([`filter_version`]).
//!
//! Invariants:
//! - A version is written together with the change that creates it, and only if the change modifies
//!   the filter.
//! - A version is kept as long as a ledger line may refer to it, also after its subscription was
//!   deleted.
//! - There are at most `KEPT_MAX` versions per subscription and `ENDED_MAX` of deleted
//!   subscriptions.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tracing::warn;

use super::registry::Registry;
use crate::control::filter_version;
use gridhook_event::SubscriptionKey;
use gridhook_journal as journal;
use gridhook_journal::{Journal, MetaChange};
use gridhook_record::{filter_version::FilterVersion, subscription::SubscriptionRecord};
use gridhook_store::keys::{self, MetaKind};

/// Maximum versions of one subscription's filter.
const KEPT_MAX: usize = 64;

/// Maximum filter versions of deleted subscriptions.
const ENDED_MAX: usize = 4096;

/// How often unneeded versions of deleted subscriptions are removed.
const SWEEP: Duration = Duration::from_secs(3600);

/// The changes to write when a subscription is created or changed.
pub async fn version_changes(
    journal: &Journal,
    subscription_key: SubscriptionKey,
    before: Option<&SubscriptionRecord>,
    record: &SubscriptionRecord,
) -> Result<Vec<MetaChange>, journal::Error> {
    let put = |record: &SubscriptionRecord| {
        let name = keys::filter_name(subscription_key, record.version);
        let version = super::registry::to_json(&FilterVersion::from_record(record));
        MetaChange::Put(MetaKind::Filter, name, version)
    };
    let Some(before) = before else {
        return Ok(vec![put(record)]);
    };
    if before.filter == record.filter {
        return Ok(Vec::new());
    }
    let versions = filter_version::read_versions(journal, subscription_key).await?;
    let needed = journal
        .reader_pool()
        .oldest_filter(subscription_key)
        .await?;
    let needed = needed
        .and_then(|version| versions.range(..=version).next_back())
        .map_or(0, |(version, _)| *version);
    let most = versions.len().saturating_sub(KEPT_MAX - 1);
    let stale = versions
        .keys()
        .enumerate()
        .filter(|(index, version)| *index < most || **version < needed);
    let mut changes: Vec<MetaChange> = stale
        .map(|(_, version)| {
            MetaChange::Delete(
                MetaKind::Filter,
                keys::filter_name(subscription_key, *version),
            )
        })
        .collect();
    if versions.is_empty() {
        changes.push(put(before));
    }
    changes.push(put(record));
    Ok(changes)
}

/// Removes versions of deleted subscriptions that no ledger line refers to.
///
/// # Errors
/// If the store cannot be read or written. The next attempt is in an hour.
pub async fn remove_unreferenced(
    registry: &Registry,
    journal: &Journal,
) -> Result<(), journal::Error> {
    let mut orphans: BTreeMap<SubscriptionKey, Vec<String>> = BTreeMap::new();
    for name in journal.reader_pool().filter_names().await? {
        let subscription_key = keys::parse_filter_name(&name).map(|(key, _version)| key);
        if let Some(key) = subscription_key.filter(|key| registry.shared_state(*key).is_none()) {
            orphans.entry(key).or_default().push(name);
        }
    }
    let mut left: usize = orphans.values().map(Vec::len).sum();
    let mut stale = Vec::new();
    // Numbers ascend, so the oldest subscriptions are removed first.
    for (subscription_key, names) in orphans {
        if left > ENDED_MAX
            || journal
                .reader_pool()
                .oldest_line(subscription_key)
                .await?
                .is_none()
        {
            left -= names.len();
            stale.extend(
                names
                    .into_iter()
                    .map(|name| MetaChange::Delete(MetaKind::Filter, name)),
            );
        }
    }
    if stale.is_empty() {
        Ok(())
    } else {
        journal.write_meta_changes(stale).await
    }
}

/// Runs [`remove_unreferenced`] every hour, until the server stops.
pub async fn run(registry: Arc<Registry>, journal: Journal) {
    loop {
        if let Err(error) = remove_unreferenced(&registry, &journal).await {
            warn!(%error, "cannot remove filter versions of deleted subscriptions");
        }
        actix_rt::time::sleep(SWEEP).await;
    }
}
