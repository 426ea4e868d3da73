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

impl Claims {
    /// The node's next record, and the revision that its record must have. What it has of each
    /// shard is added to the positions.
    pub fn renewal(
        &mut self,
        now: Duration,
        mut positions: Vec<ShardPosition>,
    ) -> (NodeRecord, u64) {
        self.renewals += 1;
        self.sent = Some(now);
        positions.resize(self.settings.shards, ShardPosition::default());
        for (shard, at) in positions.iter_mut().enumerate() {
            at.complete = self.complete[shard];
            at.failed = self.avoids_shard(shard, now);
            self.marks.note(shard, at.mark);
            let highest = self.marks.known(shard).highest;
            // The others must see what contradicts theirs.
            if !at.mark.contradicts(highest) {
                at.mark = highest;
            }
        }
        let behind = self.is_behind() && !self.leaving;
        let has_any = self.complete.contains(&true);
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
                failures: self.failures.clone(),
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
        let has_name = |(node, _): &(NodeId, u64)| !self.alive_nodes().contains(node);
        self.read.is_some() && self.namesake.as_ref().is_none_or(has_name)
    }

    /// The process that had the name when this one started, and where it listens, as long as it may
    /// run.
    pub fn namesake(&self) -> Option<NodeAddress> {
        let (node, _) = self.namesake.as_ref().filter(|_| !self.may_renew())?;
        Some(NodeAddress {
            node: node.clone(),
            address: self.records.find_node(node)?.address.clone(),
        })
    }

    /// The revision of the node's own record.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Takes the response to a renewal that was sent at `sent`.
    pub fn note_renewal(&mut self, sent: Duration, revision: u64) {
        self.revision = revision;
        self.confirmed = Some(sent);
        self.namesake = None;
        self.lost_since = None;
    }

    /// The time at which the last confirmed renewal was sent.
    pub fn confirmed(&self) -> Option<Duration> {
        self.confirmed
    }

    /// Takes what was read at `now`. After a problem the node has what it read before.
    ///
    /// # Errors
    /// If the read does not count.
    pub fn read(&mut self, now: Duration, stored: &[StoredRecord]) -> Result<(), ReadProblem> {
        let records = ClusterRecords::from_stored(stored, self.settings.shards);
        match records.nodes.get(&self.settings.name) {
            Some(own) if own.value.id == self.settings.me && own.revision >= self.revision => {
                self.revision = own.revision;
                // The response to the renewal was lost, or is late.
                if own.value.renewals == self.renewals {
                    self.confirmed = self.confirmed.max(self.sent);
                    self.namesake = None;
                }
            }
            Some(own) if own.revision > self.revision && self.confirmed.is_some() => {
                return Err(ReadProblem::NameTaken);
            }
            // The record of an earlier process of the name, which this one replaces.
            Some(own) if self.confirmed.is_none() => {
                self.note_namesake(now, (own.value.id.clone(), own.revision))?;
                self.revision = own.revision;
            }
            Some(own) => return Err(self.note_lost_renewals(now, own.revision)),
            None => match records.unreadable.get(&self.settings.name) {
                Some((true, revision)) if *revision > self.revision && self.confirmed.is_some() => {
                    return Err(ReadProblem::NameTaken);
                }
                // A deleted record keeps its revision, and an operator may delete that of a running
                // node.
                Some((_, revision)) if *revision >= self.revision => {
                    let is_new = *revision > self.revision && self.confirmed.is_some();
                    self.revision = *revision;
                    // An owner has all that the changelog has.
                    let owns = |shard: &Versioned<OwnershipRecord>| {
                        shard.value.owner_id.as_ref() == Some(&self.settings.me)
                    };
                    self.is_forgotten |= is_new && !records.shards.iter().all(owns);
                }
                None if self.confirmed.is_none() => self.revision = 0,
                Some((_, revision)) => {
                    let revision = *revision;
                    return Err(self.note_lost_renewals(now, revision));
                }
                None => return Err(self.note_lost_renewals(now, 0)),
            },
        }
        self.lost_since = None;
        let readable = 2 * self.settings.intervals.renewal();
        let elapsed = self.read.map_or(Duration::ZERO, |read| {
            now.saturating_sub(read).min(readable)
        });
        self.read = Some(now);
        self.live.read(now, records.revisions());
        self.marks.read(&records);
        self.records = records;
        let revisions: BTreeMap<NodeId, u64> = self.records.revisions().collect();
        self.gone
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

    /// Takes the record of another process with the node's name. A server that fell behind shows
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

    /// Takes a read without the node's own renewals.
    fn note_lost_renewals(&mut self, now: Duration, revision: u64) -> ReadProblem {
        let since = self.lost_since.map_or(now, |(since, _)| since);
        self.lost_since = Some((since, revision));
        ReadProblem::Stale
    }
}
