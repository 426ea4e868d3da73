//! The node's own record: what it renews there, and what a read of it says about the node. A read
//! without the last renewal does not count.

use std::{collections::BTreeMap, time::Duration};

use super::{ClaimSettings, Claims};
use crate::{
    NodeAddress,
    balance::NodeId,
    records::{
        ClusterRecords, NodeRecord, OwnershipRecord, ShardPosition, StoredRecord, Versioned,
    },
};

/// Why a read does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadProblem {
    /// The read is older than the node's own last renewal.
    Stale,
    /// Another process has the node's name: one that started later, or one that runs while this one
    /// starts.
    NameTaken,
}

/// What a read says about the node's own record.
enum OwnRecordRead<'a> {
    /// The record is that of this process, and as new as its last confirmed renewal.
    Current(&'a Versioned<NodeRecord>),
    /// The record is that of another process of the name, and this one has written none yet.
    Namesake(&'a Versioned<NodeRecord>),
    /// An operator has deleted the record with this revision, or it cannot be read.
    Deleted(u64),
    /// No process of the name has written a record.
    NeverWritten,
    /// Another process has written the record after this one.
    NameTaken,
    /// The read lacks the last renewal, and has this revision.
    Lost(u64),
}

impl Claims {
    /// Begins a renewal: the node's next record, and the revision that its record must have. What it has of each
    /// shard is added to the positions.
    pub fn begin_renewal(
        &mut self,
        now: Duration,
        mut positions: Vec<ShardPosition>,
    ) -> (NodeRecord, u64) {
        self.renewals += 1;
        self.last_sent_at = Some(now);
        positions.resize(self.settings.shards, ShardPosition::default());
        for (shard, at) in positions.iter_mut().enumerate() {
            at.complete = self.complete_shards[shard];
            at.failed = self.avoids_shard(shard, now);
            self.marks.note(shard, at.mark);
            let highest = self.marks.known(shard).highest;
            // The others must see what contradicts theirs.
            if !at.mark.contradicts(highest) {
                at.mark = highest;
            }
        }
        let behind = self.is_behind() && !self.leaving;
        let has_any = self.complete_shards.contains(&true);
        let leaving = self.takes_none(now) || (behind && !has_any);
        let ClaimSettings {
            me,
            name,
            address,
            version,
            shared: settings,
            format,
            ..
        } = self.settings.clone();
        let renewals = self.renewals;
        let revision = self
            .lost_since
            .filter(|(since, _)| self.has_lost_renewals(*since, now))
            .map_or(self.revision, |(_, revision)| revision);
        (
            NodeRecord {
                id: me,
                name,
                address,
                version,
                renewals,
                positions,
                leaving,
                behind,
                settings,
                failures: self.failure_causes.clone(),
                format,
            },
            revision,
        )
    }

    /// Whether reads have lacked the node's renewals since `since` for so long that the bucket has
    /// lost them.
    fn has_lost_renewals(&self, since: Duration, now: Duration) -> bool {
        now.saturating_sub(since) >= self.settings.intervals.expiry()
    }

    /// Whether the node may write its record: it has read who has the name.
    pub fn may_renew(&self) -> bool {
        let is_gone = |(node, _): &(NodeId, u64)| !self.alive_nodes().contains(node);
        self.last_read_at.is_some() && self.namesake.as_ref().is_none_or(is_gone)
    }

    /// The process that had the name when this one started, and where it listens, as long as it may
    /// run.
    pub fn namesake(&self) -> Option<NodeAddress> {
        let (node, _) = self.namesake.as_ref().filter(|_| !self.may_renew())?;
        Some(NodeAddress {
            id: node.clone(),
            address: self.records.find_node(node)?.address.clone(),
        })
    }

    /// The revision of the node's own record.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Records the response to a renewal that was sent at `sent`.
    pub fn note_renewal(&mut self, sent: Duration, revision: u64) {
        self.revision = revision;
        self.confirmed_at = Some(sent);
        self.namesake = None;
        self.lost_since = None;
    }

    /// The time at which the last confirmed renewal was sent.
    pub fn confirmed_at(&self) -> Option<Duration> {
        self.confirmed_at
    }

    /// Records what was read at `now`. After a problem the node has what it read before.
    ///
    /// # Errors
    /// If the read does not count.
    pub fn record_read(
        &mut self,
        now: Duration,
        stored: &[StoredRecord],
    ) -> Result<(), ReadProblem> {
        let records = ClusterRecords::from_stored(stored, self.settings.shards);
        match self.examine_own_record(&records) {
            OwnRecordRead::Current(own) => {
                self.revision = own.revision;
                // The response to the renewal was lost, or is late.
                if own.value.renewals == self.renewals {
                    self.confirmed_at = self.confirmed_at.max(self.last_sent_at);
                    self.namesake = None;
                }
            }
            OwnRecordRead::Namesake(other) => {
                self.note_namesake(now, (other.value.id.clone(), other.revision))?;
                self.revision = other.revision;
            }
            OwnRecordRead::Deleted(revision) => {
                let is_new = revision > self.revision && self.confirmed_at.is_some();
                self.revision = revision;
                // An owner has all that the changelog has.
                let owns = |shard: &Versioned<OwnershipRecord>| {
                    shard.value.owner_id.as_ref() == Some(&self.settings.me)
                };
                self.is_forgotten |= is_new && !records.shards.iter().all(owns);
            }
            OwnRecordRead::NeverWritten => self.revision = 0,
            OwnRecordRead::NameTaken => return Err(ReadProblem::NameTaken),
            OwnRecordRead::Lost(revision) => return Err(self.note_lost_renewals(now, revision)),
        }
        self.lost_since = None;
        let readable = 2 * self.settings.intervals.renewal();
        let elapsed = self.last_read_at.map_or(Duration::ZERO, |read| {
            now.saturating_sub(read).min(readable)
        });
        self.last_read_at = Some(now);
        self.live.record_read(now, records.revisions());
        self.marks.note_records(&records);
        self.records = records;
        let revisions: BTreeMap<NodeId, u64> = self.records.revisions().collect();
        self.gone_nodes
            .retain(|node, revision| revisions.get(node) == Some(revision));
        let before = std::mem::take(&mut self.requests);
        for (shard, record) in self.records.shards.iter().enumerate() {
            let Some(by) = &record.value.wanted_by else {
                continue;
            };
            let request = (shard, by.clone());
            let waited = before
                .get(&request)
                .map_or(Duration::ZERO, |waited| *waited + elapsed);
            self.requests.insert(request, waited);
        }
        for shard in 0..self.settings.shards {
            self.note_owner(shard, now);
            if self.marks.known(shard).conflict.is_some() {
                self.give_up_owned(shard);
            }
        }
        Ok(())
    }

    fn examine_own_record<'a>(&self, records: &'a ClusterRecords) -> OwnRecordRead<'a> {
        let has_written = self.confirmed_at.is_some();
        if let Some(own) = records.nodes.get(&self.settings.name) {
            return if own.value.id == self.settings.me && own.revision >= self.revision {
                OwnRecordRead::Current(own)
            } else if !has_written {
                OwnRecordRead::Namesake(own)
            } else if own.revision > self.revision {
                OwnRecordRead::NameTaken
            } else {
                OwnRecordRead::Lost(own.revision)
            };
        }
        match records.unreadable.get(&self.settings.name) {
            Some((true, revision)) if *revision > self.revision && has_written => {
                OwnRecordRead::NameTaken
            }
            // A deleted record keeps its revision.
            Some((_, revision)) if *revision >= self.revision => OwnRecordRead::Deleted(*revision),
            Some((_, revision)) => OwnRecordRead::Lost(*revision),
            None if has_written => OwnRecordRead::Lost(0),
            None => OwnRecordRead::NeverWritten,
        }
    }

    /// Records the record of another process with the node's name. A server that fell behind shows
    /// what a process that has ended once wrote, too, but only one that runs goes on for the
    /// expiry.
    fn note_namesake(&mut self, now: Duration, namesake: (NodeId, u64)) -> Result<(), ReadProblem> {
        let before = self.namesake.replace(namesake);
        if before.is_some() && before != self.namesake {
            let since = *self.namesake_since.get_or_insert(now);
            if now.saturating_sub(since) >= self.settings.intervals.expiry() {
                return Err(ReadProblem::NameTaken);
            }
        }
        Ok(())
    }

    /// Records a read without the node's own renewals.
    fn note_lost_renewals(&mut self, now: Duration, revision: u64) -> ReadProblem {
        let since = self.lost_since.map_or(now, |(since, _)| since);
        self.lost_since = Some((since, revision));
        ReadProblem::Stale
    }
}
