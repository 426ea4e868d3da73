//! What a node writes to the records of shards: claims, requests and releases, as the balance and a
//! current lease allow.

use std::{collections::BTreeSet, time::Duration};

use super::Claims;
use crate::{
    balance::{BalanceStep, ClusterView, NodeId, next_steps},
    records::{NodeRecord, OwnershipRecord, Versioned},
};

/// A change of a shard's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnershipChange {
    pub shard: usize,
    /// The record of the shard after the change.
    pub record: OwnershipRecord,
    /// The revision that the record must have.
    pub revision: u64,
    /// The earlier record, if the change may be made again after a mere renewal by the owner.
    pub insists: Option<OwnershipRecord>,
}

impl Claims {
    /// The renewals of the records of what the node owns, to be sent right behind the renewal of
    /// its own record.
    pub fn shard_renewals(&self) -> Vec<OwnershipChange> {
        let shards = (0..self.settings.shards).filter(|shard| {
            let claim = self.claim_number(*shard);
            claim.is_some_and(|claim| !self.given_up_claims.contains(&(*shard, claim)))
        });
        shards
            .map(|shard| self.edit_record(shard, |_| {}))
            .collect()
    }

    /// Decides the changes that the node writes next: none without a current lease.
    pub fn decide_changes(&mut self, now: Duration) -> Vec<OwnershipChange> {
        if !self.has_lease(now) {
            return Vec::new();
        }
        let me = self.settings.me.clone();
        let alive = self.alive_nodes();
        let mut leaving = self.records.leaving_nodes();
        if self.takes_none(now) {
            leaving.insert(me.clone());
        }
        let waited = |shard, by: &NodeId| {
            let wait = self.requests.get(&(shard, by.clone()));
            wait.copied().unwrap_or_default()
        };
        let shards = self.records.shards.iter().enumerate();
        let shards: Vec<_> = shards
            .map(|(number, shard)| shard.value.shard_record(|by| waited(number, by)))
            .collect();
        let eligible: Vec<_> = (0..shards.len())
            .map(|shard| self.eligible_nodes(shard, &alive, &leaving, now))
            .collect();
        // The control plane takes no events, so it does not count as a share.
        let topics_end = self.settings.control.unwrap_or(shards.len());
        let mut steps = Vec::new();
        for range in [0..topics_end, topics_end..shards.len()] {
            let view = ClusterView {
                me: &me,
                alive: &alive,
                leaving: &leaving,
                shards: &shards[range.clone()],
                eligible: &eligible[range.clone()],
                is_stopping: self.takes_none(now),
                drain_wait: self.settings.drain_wait,
            };
            let next = next_steps(&view).into_iter();
            steps.extend(next.map(|step| step.moved_by(range.start)));
        }
        self.draining_shards.clear();
        let mut changes = Vec::new();
        for step in steps {
            match step {
                BalanceStep::Claim(shard) | BalanceStep::Force(shard) => {
                    if matches!(step, BalanceStep::Force(_)) {
                        self.forced_shards.insert(shard, None);
                    } else {
                        self.forced_shards.remove(&shard);
                    }
                    let change = self.edit_record(shard, |record| {
                        record.owner_id = Some(me.clone());
                        record.wanted_by = None;
                        record.claims += 1;
                    });
                    let is_forced = matches!(step, BalanceStep::Force(_));
                    changes.push(if is_forced {
                        self.with_request_again(change)
                    } else {
                        change
                    });
                }
                BalanceStep::Steal(shard) => {
                    changes.push(self.request_handover(shard, &me));
                }
                BalanceStep::Drain(shard) if self.is_past_force(shard, now) => {
                    self.draining_shards.insert(shard);
                }
                BalanceStep::Drain(_) => {}
            }
        }
        for shard in 0..self.settings.shards {
            let is_given_up = self
                .claim_number(shard)
                .is_some_and(|claim| self.given_up_claims.contains(&(shard, claim)));
            if is_given_up && self.is_past_force(shard, now) {
                changes.push(self.edit_record(shard, |record| record.owner_id = None));
            }
        }
        changes
    }

    /// Records a change that was written. The lease of the claim then counts from the last
    /// confirmed renewal of the node's own record.
    pub fn note_change(&mut self, change: OwnershipChange, revision: u64, now: Duration) {
        let OwnershipChange { shard, record, .. } = change;
        let written = std::mem::take(&mut self.records.shards[shard].written);
        self.records.shards[shard] = Versioned {
            value: record,
            revision,
            written,
        };
        if let (Some(claim), Some(confirmed)) = (self.claim_number(shard), self.confirmed_at) {
            self.leases.insert(shard, (claim, confirmed));
        }
        self.note_owner(shard, now);
    }

    /// The change that asks the owner of a shard to give it up to `node`.
    pub fn request_handover(&self, shard: usize, node: &NodeId) -> OwnershipChange {
        self.with_request_again(
            self.edit_record(shard, |record| record.wanted_by = Some(node.clone())),
        )
    }

    /// The change again, after the record was changed: if all that changed is its revision.
    pub fn retry_change(&self, change: OwnershipChange) -> Option<OwnershipChange> {
        let Versioned {
            value, revision, ..
        } = self.records.shards.get(change.shard)?;
        let insists = change.insists.as_ref()?;
        let is_renewal = OwnershipRecord {
            mark: value.mark,
            ..insists.clone()
        } == *value;
        let record = OwnershipRecord {
            mark: self.marks.known(change.shard).highest,
            ..change.record.clone()
        };
        is_renewal.then_some(OwnershipChange {
            revision: *revision,
            record,
            ..change
        })
    }

    fn with_request_again(&self, change: OwnershipChange) -> OwnershipChange {
        let insists = self
            .records
            .shards
            .get(change.shard)
            .map(|shard| shard.value.clone());
        OwnershipChange { insists, ..change }
    }

    fn edit_record(
        &self,
        shard: usize,
        edit: impl FnOnce(&mut OwnershipRecord),
    ) -> OwnershipChange {
        let Versioned {
            value, revision, ..
        } = self.records.shards[shard].clone();
        let mut record = OwnershipRecord {
            scope: self.settings.scope.clone(),
            partition_id: shard.to_string(),
            mark: self.marks.known(shard).highest,
            ..value
        };
        edit(&mut record);
        OwnershipChange {
            shard,
            record,
            revision,
            insists: None,
        }
    }

    /// The nodes that may own a shard.
    fn eligible_nodes(
        &self,
        shard: usize,
        alive: &BTreeSet<NodeId>,
        leaving: &BTreeSet<NodeId>,
        now: Duration,
    ) -> BTreeSet<NodeId> {
        let nodes = self.records.nodes.values().map(|node| &node.value);
        nodes
            .filter(|node| alive.contains(&node.id) && !leaving.contains(&node.id))
            .filter(|node| self.could_own(node, shard, now))
            .map(|node| node.id.clone())
            .collect()
    }

    /// Whether a node has a complete copy of a shard that it can serve.
    fn could_own(&self, node: &NodeRecord, shard: usize, now: Duration) -> bool {
        let position = node.positions.get(shard);
        let has_copy = position.is_some_and(|position| position.complete && !position.failed);
        let is_me = node.id == self.settings.me;
        has_copy && (!is_me || (self.complete_shards[shard] && !self.avoids_shard(shard, now)))
    }
}
