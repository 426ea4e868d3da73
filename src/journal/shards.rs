//! Shards: each has a writer of its own, and a part of the partitions.
//!
//! All shards are in one store: a record's key begins with its partition, so the partition says
//! which writer changes it, nothing about shards is stored, and fsck, backups and the watermark
//! know of none. RocksDB syncs writes of several threads together. The records of the control plane
//! have a writer too. With one shard that is the shard's, so a change of both is one batch.

use std::collections::BTreeMap;

use super::{
    Error, Journal, MetaChange, PendingResult, WriterEntry, partition_state::PartitionLogs,
};
use gridhook_event::PartitionId;
use gridhook_store::keys::{MetaKind, parse_redrive_name};

/// The writer of the control plane's records.
pub(super) const CONTROL: usize = 0;

/// The number of shards, and which partition is in which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shards(u16);

/// Changes by the number of their writer.
type ByWriter = BTreeMap<usize, Vec<MetaChange>>;

/// The steps of a change. Each step is durable before the next one begins.
#[derive(Debug, Default)]
struct ChangeSteps {
    /// What the records of the control plane will name.
    created: ByWriter,
    /// Records of the control plane; everything, if there is one shard.
    control: Option<Vec<MetaChange>>,
    /// What no record names any more.
    deleted: ByWriter,
}

impl Default for Shards {
    fn default() -> Self {
        Self(1)
    }
}

impl Shards {
    /// This many shards, at least one.
    pub fn new(count: u16) -> Self {
        Self(count.max(1))
    }

    /// At least 1.
    pub fn shard_count(self) -> u16 {
        self.0
    }

    /// The shard of a partition, from 0. Partitions are numbered in the order of their creation, so
    /// that each shard has as many as any other, and consecutive ones are in different shards.
    pub fn shard_of(self, partition: PartitionId) -> u16 {
        // The remainder is less than the number of shards.
        (partition.0 % u32::from(self.shard_count())) as u16
    }

    pub(super) fn writer_count(self) -> usize {
        if self.shard_count() == 1 {
            1
        } else {
            1 + usize::from(self.shard_count())
        }
    }

    pub(super) fn writer_of(self, partition: PartitionId) -> usize {
        if self.shard_count() == 1 {
            CONTROL
        } else {
            1 + usize::from(self.shard_of(partition))
        }
    }

    /// The state of the logs of each writer.
    pub(super) fn split_by_writer(self, logs: PartitionLogs) -> Vec<PartitionLogs> {
        let mut split: Vec<PartitionLogs> = (0..self.writer_count())
            .map(|_| PartitionLogs::default())
            .collect();
        for (id, partition) in logs.partitions {
            split[self.writer_of(id)].partitions.insert(id, partition);
        }
        for (id, lows) in logs.lows {
            split[self.writer_of(id)].lows.insert(id, lows);
        }
        split
    }

    fn change_steps(self, changes: Vec<MetaChange>) -> ChangeSteps {
        if self.shard_count() == 1 {
            return ChangeSteps {
                control: Some(changes),
                ..ChangeSteps::default()
            };
        }
        let mut steps = ChangeSteps::default();
        let mut control = Vec::new();
        let is_empty = changes.is_empty();
        for change in changes {
            let (by_writer, partition) = match &change {
                MetaChange::CreatePartition(id) => (&mut steps.created, *id),
                MetaChange::Subscribe(subscription_key, _) => {
                    (&mut steps.created, subscription_key.partition)
                }
                MetaChange::Unsubscribe(subscription_key) => {
                    (&mut steps.deleted, subscription_key.partition)
                }
                MetaChange::DeletePartition(id) => (&mut steps.deleted, *id),
                MetaChange::Put(kind, name, _) | MetaChange::Delete(kind, name) => {
                    match redrive_partition(*kind, name) {
                        Some(partition) => (&mut steps.created, partition),
                        None => {
                            control.push(change);
                            continue;
                        }
                    }
                }
            };
            by_writer
                .entry(self.writer_of(partition))
                .or_default()
                .push(change);
        }
        // A change of nothing waits for what was queued before.
        steps.control = (is_empty || !control.is_empty()).then_some(control);
        steps
    }
}

impl Journal {
    /// Writes changes of the control plane. Changes of one shard are written together. If there are
    /// more shards, what is created in them is durable before the records that name it, and deleted
    /// after them: a crash in between leaves partitions and subscriptions that no record names. The
    /// next start passes them to [`Journal::discard_unnamed`], with any number of shards.
    pub fn write_meta_changes(
        &self,
        changes: Vec<MetaChange>,
    ) -> impl Future<Output = Result<(), Error>> + Send + use<> {
        let ChangeSteps {
            created,
            control,
            deleted,
        } = self.0.shards.change_steps(changes);
        let undo = undo_changes(&created);
        let is_first = created.is_empty();
        let writes: Vec<_> = created
            .into_iter()
            .map(|(writer, changes)| self.write_meta(writer, changes, false))
            .collect();
        // A write that waits for no other is in the queue when this returns.
        let (first_write, control) = match control {
            Some(control) if is_first => (Some(self.write_meta(CONTROL, control, false)), None),
            control => (None, control),
        };
        let journal = self.clone();
        async move {
            let creation = async {
                for result in futures_util::future::join_all(writes).await {
                    result?;
                }
                match (first_write, control) {
                    (Some(first_write), _) => first_write.await,
                    (None, Some(control)) => journal.write_meta(CONTROL, control, false).await,
                    (None, None) => Ok(()),
                }
            };
            if let Err(error) = creation.await {
                undo.into_iter()
                    .for_each(|(writer, changes)| drop(journal.write_meta(writer, changes, true)));
                return Err(error);
            }
            let deletions = deleted
                .into_iter()
                .map(|(writer, changes)| journal.write_meta(writer, changes, true));
            futures_util::future::try_join_all(deletions)
                .await
                .map(drop)
        }
    }

    /// Deletes partitions and subscriptions that no record of the control plane names.
    pub fn discard_unnamed(&self, changes: Vec<MetaChange>) {
        let ChangeSteps {
            control, deleted, ..
        } = self.0.shards.change_steps(changes);
        for (writer, changes) in control
            .map(|changes| (CONTROL, changes))
            .into_iter()
            .chain(deleted)
        {
            drop(self.write_meta(writer, changes, true));
        }
    }

    /// Changes that complete others wait for space instead of being refused.
    fn write_meta(
        &self,
        writer: usize,
        changes: Vec<MetaChange>,
        completes: bool,
    ) -> PendingResult<()> {
        let (reply, result) = PendingResult::new();
        self.0.writers[writer].queue.send_entry(WriterEntry::Meta {
            changes,
            completes,
            reply,
        });
        result
    }
}

/// The partition of a redrive's record: its subscription's actor changes the record too.
fn redrive_partition(kind: MetaKind, name: &str) -> Option<PartitionId> {
    let (subscription_key, _) = parse_redrive_name(name).filter(|_| kind == MetaKind::Redrive)?;
    Some(subscription_key.partition)
}

/// The changes that delete what `created` creates.
fn undo_changes(created: &ByWriter) -> ByWriter {
    created
        .iter()
        .map(|(writer, changes)| (*writer, changes.iter().filter_map(undo_change).collect()))
        .collect()
}

fn undo_change(change: &MetaChange) -> Option<MetaChange> {
    match change {
        MetaChange::CreatePartition(id) => Some(MetaChange::DeletePartition(*id)),
        MetaChange::Subscribe(subscription_key, _) => {
            Some(MetaChange::Unsubscribe(*subscription_key))
        }
        MetaChange::Put(..)
        | MetaChange::Delete(..)
        | MetaChange::Unsubscribe(_)
        | MetaChange::DeletePartition(_) => None,
    }
}
