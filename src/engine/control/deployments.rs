//! The deployments of templates: their records, their templates, and which of them run.
//!
//! Only the records are in memory. The history is bounded: the deployments that ended first are
//! removed in the batch that adds one.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::RwLock;

use super::{
    audit::write_changes,
    registry::{Error, parse_record, to_json},
};
use gridhook_event::Timestamp;
use gridhook_journal::{Journal, MetaChange};
use gridhook_record::{
    deployment::{self, DeploymentProblem, DeploymentRecord, DeploymentState, DeploymentTemplate},
    resource_group,
    topic::ArmScope,
};
use gridhook_store::keys::MetaKind;

/// Maximum number of deployments in the history of a resource group, as in Azure.
pub const DEPLOYMENTS_MAX: usize = 800;

/// 64 MiB: maximum size of all stored deployments with their templates.
pub const DEPLOYMENTS_BYTES_MAX: usize = 64 << 20;

/// Maximum number of deployments that run at the same time.
pub const RUNNING_DEPLOYMENTS_MAX: usize = 8;

/// The code of a deployment that ended with the server.
const INTERRUPTED: &str = "DeploymentInterrupted";

/// Why a deployment cannot be stored or removed.
#[derive(Debug, thiserror::Error)]
pub enum DeploymentStoreError {
    /// A deployment of the same name has run since this time.
    #[error("the deployment runs since {0}")]
    Active(Timestamp),
    #[error("{RUNNING_DEPLOYMENTS_MAX} deployments run")]
    Busy,
    /// The store cannot be written or read.
    #[error(transparent)]
    Registry(#[from] Error),
}

/// The deployments of a server.
pub struct Deployments {
    journal: Journal,
    table: RwLock<BTreeMap<String, StoredDeployment>>,
    /// Held during a change: changes are made one after the other, so that the table is what the
    /// store has.
    changes: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct StoredDeployment {
    record: Arc<DeploymentRecord>,
    /// Size of the record and of its template.
    bytes: usize,
    template_bytes: usize,
    /// Whether an operator has asked to stop it.
    is_canceled: Arc<AtomicBool>,
}

impl StoredDeployment {
    fn new(record: DeploymentRecord, record_bytes: usize, template_bytes: usize) -> Self {
        Self {
            record: Arc::new(record),
            bytes: record_bytes + template_bytes,
            template_bytes,
            is_canceled: Arc::default(),
        }
    }
}

impl Deployments {
    /// Reads the deployments of the store. What ran when the server stopped has failed. Blocks; for
    /// the start.
    pub(super) fn load_from_journal(journal: Journal) -> Result<Self, Error> {
        let mut template_bytes = BTreeMap::new();
        for record in journal.reader_pool().all_meta(MetaKind::DeploymentTemplate) {
            let (name, template) = record?;
            template_bytes.insert(name, template.len());
        }
        let mut table = BTreeMap::new();
        for record in journal.reader_pool().all_meta(MetaKind::Deployment) {
            let (name, value) = record?;
            let mut record: DeploymentRecord = parse_record(&name, &value)?;
            if record.is_running() {
                interrupt(&mut record);
            }
            let template_bytes = template_bytes.get(&name).copied().unwrap_or_default();
            table.insert(
                name,
                StoredDeployment::new(record, value.len(), template_bytes),
            );
        }
        Ok(Self {
            journal,
            table: RwLock::new(table),
            changes: tokio::sync::Mutex::default(),
        })
    }

    pub fn get(&self, scope: &ArmScope, name: &str) -> Option<Arc<DeploymentRecord>> {
        let key = deployment::key(scope, name);
        self.read(|table| table.get(&key).map(|one| Arc::clone(&one.record)))
    }

    /// The deployments of a resource group.
    pub fn in_group(&self, scope: &ArmScope) -> Vec<Arc<DeploymentRecord>> {
        let is_in = |one: &&StoredDeployment| is_same_group(&one.record.scope, scope);
        self.read(|table| {
            let records = table.values().filter(is_in);
            records.map(|one| Arc::clone(&one.record)).collect()
        })
    }

    /// The template of a deployment.
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn template(
        &self,
        record: &DeploymentRecord,
    ) -> Result<Option<DeploymentTemplate>, Error> {
        let key = record.key();
        let reads = self.journal.reader_pool();
        let template = reads
            .read_meta(MetaKind::DeploymentTemplate, key.clone())
            .await?;
        template
            .map(|template| parse_record(&key, &template))
            .transpose()
    }

    /// Stores a deployment that begins. Another one of the same name is replaced, and what exceeds
    /// the limits of the history is removed.
    ///
    /// # Errors
    /// If it or too many others run, or it cannot be stored.
    pub async fn begin(
        self: &Arc<Self>,
        record: DeploymentRecord,
        template: &DeploymentTemplate,
    ) -> Result<RunningDeployment, DeploymentStoreError> {
        let _changes = self.changes.lock().await;
        let key = record.key();
        let value = to_json(&record);
        let template = to_json(template);
        if let Some(active) = self
            .get(&record.scope, &record.name)
            .filter(|one| one.is_running())
        {
            return Err(DeploymentStoreError::Active(active.started));
        }
        let running =
            self.read(|table| table.values().filter(|one| one.record.is_running()).count());
        if running >= RUNNING_DEPLOYMENTS_MAX {
            return Err(DeploymentStoreError::Busy);
        }
        let stored = StoredDeployment::new(record, value.len(), template.len());
        let removed = self.find_dispensable(&key, &stored);
        let mut changes: Vec<MetaChange> = removed.iter().flat_map(|key| deletions(key)).collect();
        changes.push(MetaChange::Put(MetaKind::Deployment, key.clone(), value));
        changes.push(MetaChange::Put(
            MetaKind::DeploymentTemplate,
            key.clone(),
            template,
        ));
        write_changes(&self.journal, changes)
            .await
            .map_err(Error::from)?;
        let record = DeploymentRecord::clone(&stored.record);
        let is_canceled = Arc::clone(&stored.is_canceled);
        self.write(|table| {
            removed.iter().for_each(|key| drop(table.remove(key)));
            table.insert(key, stored);
        });
        Ok(RunningDeployment {
            deployments: Arc::clone(self),
            record,
            is_canceled,
        })
    }

    /// Stops a deployment before its next resource. Returns false if it does not run.
    pub fn cancel(&self, scope: &ArmScope, name: &str) -> bool {
        let key = deployment::key(scope, name);
        self.read(|table| {
            let running = table.get(&key).filter(|one| one.record.is_running());
            running.is_some_and(|one| {
                one.is_canceled.store(true, Ordering::Release);
                true
            })
        })
    }

    /// Deletes a deployment. False if there is none.
    ///
    /// # Errors
    /// If it runs, or the deletion cannot be stored.
    pub async fn delete(&self, scope: &ArmScope, name: &str) -> Result<bool, DeploymentStoreError> {
        let _changes = self.changes.lock().await;
        match self.get(scope, name) {
            None => Ok(false),
            Some(active) if active.is_running() => {
                Err(DeploymentStoreError::Active(active.started))
            }
            Some(record) => {
                self.remove(&[record.key()]).await?;
                Ok(true)
            }
        }
    }

    /// Deletes the deployments of a resource group. Those that run stop before their next resource.
    ///
    /// # Errors
    /// If the deletion cannot be stored.
    pub async fn delete_group(&self, scope: &ArmScope) -> Result<(), Error> {
        let _changes = self.changes.lock().await;
        let records = self.in_group(scope);
        for record in &records {
            self.cancel(scope, &record.name);
        }
        let keys: Vec<String> = records.iter().map(|record| record.key()).collect();
        if keys.is_empty() {
            return Ok(());
        }
        self.remove(&keys).await
    }

    async fn remove(&self, keys: &[String]) -> Result<(), Error> {
        let changes = keys.iter().flat_map(|key| deletions(key)).collect();
        write_changes(&self.journal, changes).await?;
        self.write(|table| keys.iter().for_each(|key| drop(table.remove(key))));
        Ok(())
    }

    /// The keys of what exceeds the limits of the history with a new deployment.
    fn find_dispensable(&self, key: &str, new: &StoredDeployment) -> Vec<String> {
        let mut others = self.read(BTreeMap::clone);
        others.remove(key);
        let mut ended: Vec<(Timestamp, String)> = others
            .iter()
            .filter_map(|(key, one)| Some((one.record.ended?, key.clone())))
            .collect();
        ended.sort_unstable();
        let is_in_group =
            |one: &StoredDeployment| is_same_group(&one.record.scope, &new.record.scope);
        let mut in_group = 1 + others.values().filter(|one| is_in_group(one)).count();
        let mut bytes = new.bytes + others.values().map(|one| one.bytes).sum::<usize>();
        let mut removed = Vec::new();
        for (_, key) in ended {
            let Some(one) = others.get(&key) else {
                continue;
            };
            let is_too_many = in_group > DEPLOYMENTS_MAX && is_in_group(one);
            if !is_too_many && bytes <= DEPLOYMENTS_BYTES_MAX {
                continue;
            }
            bytes -= one.bytes;
            in_group -= usize::from(is_in_group(one));
            removed.push(key);
        }
        removed
    }

    fn read<T>(&self, look: impl FnOnce(&BTreeMap<String, StoredDeployment>) -> T) -> T {
        look(&self.table.read())
    }

    fn write<T>(&self, change: impl FnOnce(&mut BTreeMap<String, StoredDeployment>) -> T) -> T {
        change(&mut self.table.write())
    }

    /// Shows a deployment as it is now. Returns false if it was deleted meanwhile.
    fn show(&self, record: &DeploymentRecord, record_bytes: Option<usize>) -> bool {
        let is_same_run = |one: &&mut StoredDeployment| {
            one.record.correlation_id == record.correlation_id && one.record.is_running()
        };
        self.write(|table| {
            let Some(stored) = table.get_mut(&record.key()).filter(is_same_run) else {
                return false;
            };
            stored.record = Arc::new(record.clone());
            stored.bytes = record_bytes.map_or(stored.bytes, |size| size + stored.template_bytes);
            true
        })
    }
}

fn is_same_group(one: &ArmScope, other: &ArmScope) -> bool {
    resource_group::key(one) == resource_group::key(other)
}

fn deletions(key: &str) -> [MetaChange; 2] {
    [MetaKind::Deployment, MetaKind::DeploymentTemplate]
        .map(|kind| MetaChange::Delete(kind, key.to_owned()))
}

/// Ends a deployment that went on when the server stopped.
fn interrupt(record: &mut DeploymentRecord) {
    let message = "The server stopped while the deployment ran. Deploy the template again: what \
        was done stays.";
    record.state = DeploymentState::Failed;
    record.ended.get_or_insert(record.started);
    record.problem = Some(DeploymentProblem {
        code: INTERRUPTED.to_owned(),
        message: message.to_owned(),
    });
}

/// A deployment that runs. If this is dropped before [`RunningDeployment::finish`], the deployment
/// was interrupted.
pub struct RunningDeployment {
    deployments: Arc<Deployments>,
    pub record: DeploymentRecord,
    is_canceled: Arc<AtomicBool>,
}

impl RunningDeployment {
    /// Whether an operator has asked to stop it.
    pub fn is_canceled(&self) -> bool {
        self.is_canceled.load(Ordering::Acquire)
    }

    /// Shows the record so far. The store has it at the end only.
    pub fn show_progress(&self) {
        self.deployments.show(&self.record, None);
    }

    /// Stores the end of the deployment.
    ///
    /// # Errors
    /// If it cannot be stored. It is shown all the same.
    pub async fn finish(self) -> Result<(), Error> {
        let deployments = Arc::clone(&self.deployments);
        let _changes = deployments.changes.lock().await;
        let value = to_json(&self.record);
        if deployments.show(&self.record, Some(value.len())) {
            let put = MetaChange::Put(MetaKind::Deployment, self.record.key(), value);
            write_changes(&deployments.journal, vec![put]).await?;
        }
        Ok(())
    }
}

impl Drop for RunningDeployment {
    fn drop(&mut self) {
        if self.record.is_running() {
            interrupt(&mut self.record);
            self.deployments.show(&self.record, None);
        }
    }
}
