//! What a node makes of the records that it reads: which shards it owns, until when it may act, and
//! what it writes next.
//!
//! Pure: records and times are arguments, the times on the node's own monotonic clock. `member`
//! reads, writes and waits.
//!
//! Invariants:
//! - A node owns a shard if the record says so, never because a write of its own had no response.
//! - A read counts only if it has the node's own last renewal. A server of the records that fell
//!   behind would otherwise make every node look silent.
//! - A step needs a current lease: after a pause, a node renews and reads first.
//! - A shard that was taken by force is neither served nor given away before the owner before has
//!   noticed.
//! - An owner renews the record of the shard right behind its own, so that a claim that rests on an
//!   older read fails. Its lease counts from when the renewal of its own record was sent. A read
//!   with that renewal confirms it as well as the response to it.
//! - A node writes no record under a name that another living process has. It waits until that one
//!   has ended, or was silent for the expiry.
//! - A bucket that lost the node's renewals for the expiry was restored from an older backup, or
//!   its server fell behind. The node renews its record as it is there. Only the leader of the
//!   bucket takes a write, so that no read from another server counts before.

mod changes;
mod own_record;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

pub use self::{changes::OwnershipChange, own_record::ReadProblem};
use super::{
    NodeAddress,
    balance::NodeId,
    lease::{LeaseIntervals, LiveNodes},
    marks::ShardMarks,
    records::{ClusterRecords, NodeRecord, OwnershipScope},
};
use gridhook_journal::changelog::KnownMarks;

/// The name of a node, and the rules of its cluster. All nodes should have the same rules, and do
/// not while an operator changes them: at most one node writes to a shard nevertheless.
#[derive(Clone, Debug)]
pub struct ClaimSettings {
    /// The identifier of the node, unique to one start of its process.
    pub me: NodeId,
    /// The name of the node, the same after each start.
    pub name: String,
    /// Host and port of the node's listener for other nodes.
    pub address: String,
    /// Whether the listener is bound to `address`, so that no other process has it.
    pub is_address_bound: bool,
    /// The release of the node's program.
    pub version: String,
    /// The number of shards, with the control plane.
    pub shards: usize,
    /// The shard with the control plane, if it has no topics.
    pub control: Option<usize>,
    pub intervals: LeaseIntervals,
    /// How long an owner has to give up a shard that is wanted.
    pub drain_wait: Duration,
    /// The names in ownership records.
    pub scope: OwnershipScope,
    /// The settings that should be the same on all nodes, by key, for the other nodes to compare.
    pub shared: BTreeMap<String, String>,
    /// The newest format of records of the changelog that the node reads.
    pub format: u8,
}

/// The role of a node for a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardRole {
    /// Another node owns the shard, or none.
    Standby(Option<NodeAddress>),
    /// This node owns the shard.
    Owner {
        /// The number of the claim, which differs from that of every other one.
        claim: u64,
        /// Whether the node is asked to give it up.
        draining: bool,
    },
}

/// The claims of a node.
pub struct Claims {
    settings: ClaimSettings,
    records: ClusterRecords,
    live: LiveNodes,
    /// The revision of the node's own record.
    revision: u64,
    renewals: u64,
    /// The time at which the last renewal was sent.
    last_sent_at: Option<Duration>,
    /// The time at which the last confirmed renewal was sent.
    confirmed_at: Option<Duration>,
    last_read_at: Option<Duration>,
    /// The process that had the name when this one started, as long as it may run, and the revision
    /// of its record.
    namesake: Option<(NodeId, u64)>,
    /// The time since which that record was seen to change.
    namesake_since: Option<Duration>,
    /// The time since which reads lack the node's renewals, and the revision of its record in them.
    lost_since: Option<(Duration, u64)>,
    /// How long each request for a shard was seen, in time in which records could be read.
    requests: BTreeMap<(usize, NodeId), Duration>,
    /// The claims and the times from which their leases count.
    leases: BTreeMap<usize, (u64, Duration)>,
    /// The shards that are taken by force, and from when on the node may act.
    forced_shards: BTreeMap<usize, Option<Duration>>,
    draining_shards: BTreeSet<usize>,
    /// The claims that the server has given up.
    given_up_claims: BTreeSet<(usize, u64)>,
    /// Nodes whose processes have ended, as far as can be seen from here, and the last revisions of
    /// their records. A renewal proves the opposite.
    gone_nodes: BTreeMap<NodeId, u64>,
    leaving: bool,
    /// For each shard, whether the node has had all of its changelog: once, or since an operator
    /// removed its record.
    complete_shards: Vec<bool>,
    /// Whether an operator has removed the node's record while it ran, and it has not caught up
    /// since. It writes none before: the changelog would be kept for a node that may not be able to
    /// follow it.
    is_forgotten: bool,
    /// The shards that the node could not serve, and until when it leaves each to others.
    paused_shards: BTreeMap<usize, Duration>,
    /// The shards that the node cannot serve before an operator has acted, and why.
    failure_causes: BTreeMap<usize, String>,
    marks: ShardMarks,
}

impl Claims {
    /// A node that has read nothing.
    pub fn new(settings: ClaimSettings) -> Self {
        let live = LiveNodes::new(settings.intervals);
        let complete_shards = vec![false; settings.shards];
        let marks = ShardMarks::new(settings.shards);
        Self {
            settings,
            records: ClusterRecords::default(),
            live,
            revision: 0,
            renewals: 0,
            last_sent_at: None,
            confirmed_at: None,
            last_read_at: None,
            namesake: None,
            namesake_since: None,
            lost_since: None,
            requests: BTreeMap::new(),
            leases: BTreeMap::new(),
            forced_shards: BTreeMap::new(),
            draining_shards: BTreeSet::new(),
            given_up_claims: BTreeSet::new(),
            gone_nodes: BTreeMap::new(),
            leaving: false,
            complete_shards,
            is_forgotten: false,
            paused_shards: BTreeMap::new(),
            failure_causes: BTreeMap::new(),
            marks,
        }
    }

    pub fn settings(&self) -> &ClaimSettings {
        &self.settings
    }

    /// The records as they were last read.
    pub fn records(&self) -> &ClusterRecords {
        &self.records
    }

    /// Records the shards that the node cannot serve before an operator has acted, and why.
    pub fn note_failures(&mut self, failures: BTreeMap<usize, String>) {
        failures.keys().for_each(|shard| self.give_up_owned(*shard));
        self.failure_causes = failures;
    }

    /// Gives up a claim that cannot be served.
    fn give_up_owned(&mut self, shard: usize) {
        if let Some(claim) = self.claim_number(shard) {
            self.given_up_claims.insert((shard, claim));
        }
    }

    /// The other nodes as possible owners of each shard. The owner that the records name is the
    /// first.
    pub fn other_owners(&self) -> Vec<(usize, NodeAddress)> {
        let nodes = self.records.nodes.values().map(|node| &node.value);
        let others: Vec<_> = nodes.filter(|node| node.id != self.settings.me).collect();
        let mut addresses = Vec::new();
        for (number, shard) in self.records.shards.iter().enumerate() {
            let (named, unnamed): (Vec<&NodeRecord>, Vec<&NodeRecord>) = others
                .iter()
                .copied()
                .partition(|node| shard.value.owner_id.as_ref() == Some(&node.id));
            for node in named.into_iter().chain(unnamed) {
                let address = NodeAddress {
                    id: node.id.clone(),
                    address: node.address.clone(),
                };
                addresses.push((number, address));
            }
        }
        addresses
    }

    /// The known marks: records that the changelog of a shard has acknowledged.
    pub fn known_marks(&self, shard: usize) -> KnownMarks {
        self.marks.known(shard)
    }

    /// Records that a node's process has ended, as far as can be seen from here, if it has not
    /// renewed its record since the last read.
    pub fn note_gone(&mut self, node: &NodeId) {
        if let Some((node, revision)) = self.records.revisions().find(|(id, _)| id == node) {
            self.gone_nodes.insert(node, revision);
        }
    }

    /// Takes no shard any more, and gives up what it has.
    pub fn stop_claiming(&mut self) {
        self.leaving = true;
    }

    /// Records whether the server has everything of each shard, by its number.
    pub fn note_complete(&mut self, complete: impl IntoIterator<Item = bool>) {
        self.complete_shards.clear();
        self.complete_shards.extend(complete);
        self.complete_shards.resize(self.settings.shards, false);
        self.is_forgotten &= self.is_behind();
    }

    /// Whether the node has not everything of a shard. An owner has all that the changelog has.
    fn is_behind(&self) -> bool {
        let mut shards = self.complete_shards.iter().enumerate();
        shards.any(|(shard, is_complete)| !is_complete && self.claim_number(shard).is_none())
    }

    /// The sequence up to which the changelog of a shard may be trimmed.
    pub fn trimmable_through(&self, shard: usize) -> u64 {
        self.records.trimmable_through(shard)
    }

    /// The sequence up to which the changelog of a shard may be trimmed once it is large.
    pub fn trimmable_if_large(&self, shard: usize) -> u64 {
        self.records.trimmable_if_large(shard, &self.alive_nodes())
    }

    /// The newest format of records that all living nodes read.
    pub fn common_format(&self) -> u8 {
        let own = self.settings.format;
        self.records.common_format(own, &self.alive_nodes())
    }

    /// The node fetches a copy that it can follow with: the changelog is kept for it.
    pub fn note_copy(&mut self) {
        self.is_forgotten = false;
    }

    /// Whether the node writes no record before it has caught up, because an operator has removed
    /// its record.
    pub fn is_forgotten(&self) -> bool {
        self.is_forgotten
    }

    /// Whether the node may stop: it leaves and owns nothing.
    pub fn has_left(&self) -> bool {
        self.leaving && (0..self.settings.shards).all(|shard| self.claim_number(shard).is_none())
    }

    /// The server has given a claim up. `pause`: for how long the node leaves the shard to others,
    /// because it could not serve it.
    pub fn give_up(&mut self, shard: usize, claim: u64, pause: Option<Duration>, now: Duration) {
        // The claim may have been lost meanwhile, and another one won.
        if self.claim_number(shard) == Some(claim) {
            self.given_up_claims.insert((shard, claim));
        }
        if let Some(pause) = pause {
            self.paused_shards.insert(shard, now + pause);
        }
    }

    /// The role of the node for a shard.
    pub fn role_for(&self, shard: usize) -> ShardRole {
        match self.claim_number(shard) {
            Some(claim) if self.given_up_claims.contains(&(shard, claim)) => {
                ShardRole::Standby(None)
            }
            Some(claim) => ShardRole::Owner {
                claim,
                draining: self.draining_shards.contains(&shard),
            },
            None => ShardRole::Standby(self.owner_address(shard)),
        }
    }

    /// The time until which the node may act for a shard that it owns; [`None`] if it may not.
    pub fn acts_until(&self, shard: usize, now: Duration) -> Option<Duration> {
        let (claim, confirmed) = self.leases.get(&shard)?;
        let is_owned = self.claim_number(shard) == Some(*claim);
        (is_owned && self.is_past_force(shard, now))
            .then_some(*confirmed + self.settings.intervals.act_wait())
    }

    pub fn alive_nodes(&self) -> BTreeSet<NodeId> {
        let mut alive = self.live.alive_nodes();
        alive.retain(|node| !self.gone_nodes.contains_key(node));
        alive
    }

    /// Whether the owner before this one has noticed that it lost the shard. Until then this node
    /// neither acts nor gives the shard to a node that would act at once.
    fn is_past_force(&self, shard: usize, now: Duration) -> bool {
        self.forced_shards
            .get(&shard)
            .is_none_or(|from| from.is_some_and(|from| from <= now))
    }

    fn has_lease(&self, now: Duration) -> bool {
        self.confirmed_at
            .is_some_and(|confirmed| self.settings.intervals.may_act(confirmed, now))
    }

    fn takes_none(&self, now: Duration) -> bool {
        let could_serve_none = (0..self.settings.shards).all(|shard| self.avoids_shard(shard, now));
        self.leaving || could_serve_none
    }

    fn avoids_shard(&self, shard: usize, now: Duration) -> bool {
        let is_paused = self
            .paused_shards
            .get(&shard)
            .is_some_and(|until| now < *until);
        let has_conflict = self.marks.known(shard).conflict.is_some();
        is_paused || has_conflict || self.failure_causes.contains_key(&shard)
    }

    /// The number of this node's claim of a shard.
    fn claim_number(&self, shard: usize) -> Option<u64> {
        let record = &self.records.shards.get(shard)?.value;
        (record.owner_id.as_ref() == Some(&self.settings.me)).then_some(record.claims)
    }

    fn owner_address(&self, shard: usize) -> Option<NodeAddress> {
        let id = self.records.shards.get(shard)?.value.owner_id.as_ref()?;
        let record = self
            .records
            .find_node(id)
            .filter(|_| self.alive_nodes().contains(id))?;
        Some(NodeAddress {
            id: id.clone(),
            address: record.address.clone(),
        })
    }

    /// Updates what is kept for a shard after its record was read or written. An owner by force may
    /// act once the one before it has noticed.
    fn note_owner(&mut self, shard: usize, now: Duration) {
        match self.claim_number(shard) {
            Some(claim) => {
                self.given_up_claims
                    .retain(|(of, given)| *of != shard || *given == claim);
                if let Some(from @ None) = self.forced_shards.get_mut(&shard) {
                    *from = Some(now + self.settings.intervals.act_wait());
                }
            }
            None => {
                self.draining_shards.remove(&shard);
                // A shard that this node still tries to take by force stays in `forced_shards`: the
                // response to its claim may have been lost.
                if self.forced_shards.get(&shard).is_some_and(Option::is_some) {
                    self.forced_shards.remove(&shard);
                }
            }
        }
    }
}
