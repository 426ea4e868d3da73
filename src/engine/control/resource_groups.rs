//! Resource groups that were created by themselves, with their locations and tags.

use std::{collections::BTreeMap, sync::Arc};

use parking_lot::RwLock;

use super::{
    audit::write_changes,
    registry::{Error, parse_record, to_json},
};
use gridhook_journal::{Journal, MetaChange};
use gridhook_record::{
    resource_group::{self, ResourceGroupRecord},
    topic::ArmScope,
};
use gridhook_store::keys::MetaKind;

/// Maximum number of stored resource groups; 980 are the limit of an Azure subscription.
pub const RESOURCE_GROUPS_MAX: usize = 1_000;

/// The stored resource groups of a server.
pub struct ResourceGroups {
    journal: Journal,
    groups: RwLock<BTreeMap<String, Arc<ResourceGroupRecord>>>,
    /// Held during a change: changes are made one after the other, so that the table is what the
    /// store has.
    changes: tokio::sync::Mutex<()>,
}

impl ResourceGroups {
    /// Reads the groups of the store. Blocks; for the start.
    pub(super) fn load_from_journal(journal: Journal) -> Result<Self, Error> {
        let mut groups = BTreeMap::new();
        for record in journal.reader_pool().all_meta(MetaKind::ResourceGroup) {
            let (name, value) = record?;
            let record: ResourceGroupRecord = parse_record(&name, &value)?;
            groups.insert(record.key(), Arc::new(record));
        }
        Ok(Self {
            journal,
            groups: RwLock::new(groups),
            changes: tokio::sync::Mutex::default(),
        })
    }

    /// All groups in the order of their keys.
    pub fn list_groups(&self) -> Vec<Arc<ResourceGroupRecord>> {
        self.groups.read().values().cloned().collect()
    }

    /// The group with this name.
    pub fn get(&self, scope: &ArmScope) -> Option<Arc<ResourceGroupRecord>> {
        self.groups.read().get(&resource_group::key(scope)).cloned()
    }

    /// Creates or changes a group.
    ///
    /// # Errors
    /// If there are too many groups, or the record cannot be stored.
    pub async fn put_group(
        &self,
        record: ResourceGroupRecord,
    ) -> Result<Arc<ResourceGroupRecord>, Error> {
        let _changes = self.changes.lock().await;
        let key = record.key();
        let record = Arc::new(record);
        if self.get(&record.scope).is_none() && self.list_groups().len() >= RESOURCE_GROUPS_MAX {
            let problem = format!(
                "The maximum of {RESOURCE_GROUPS_MAX} resource groups is reached; delete one first."
            );
            return Err(Error::Full(problem));
        }
        let put = MetaChange::Put(MetaKind::ResourceGroup, key.clone(), to_json(&*record));
        write_changes(&self.journal, vec![put]).await?;
        self.groups.write().insert(key, Arc::clone(&record));
        Ok(record)
    }

    /// Deletes the record of a group, if there is one.
    ///
    /// # Errors
    /// If the deletion cannot be stored.
    pub async fn delete_group(&self, scope: &ArmScope) -> Result<(), Error> {
        let _changes = self.changes.lock().await;
        let key = resource_group::key(scope);
        if self.get(scope).is_some() {
            write_changes(
                &self.journal,
                vec![MetaChange::Delete(MetaKind::ResourceGroup, key.clone())],
            )
            .await?;
            self.groups.write().remove(&key);
        }
        Ok(())
    }
}
