//! The balance: which shards a node claims, requests and gives up, from the ownership records
//! alone.
//!
//! With P shards and N nodes that are alive, each node gets floor(P/N) or ceil(P/N) shards. A node
//! claims shards without a living owner up to the higher number. The node with the fewest requests
//! a shard from the one with the most, if that has at least two more.
//!
//! Only a node with a complete copy of a shard is eligible for it. If no such node is below its
//! share, the one with the fewest claims the shard all the same. As long as not all nodes are
//! eligible for all shards, the shares may differ by more than one.
//!
//! A request is written to the record of the shard. The owner finishes what is in flight and gives
//! the shard up for the node that requested it. If it does not, the shard is claimed by force. A
//! node that is about to stop finishes what is in flight and gives everything up; it has no share
//! any more, and stays the owner of what it has not given up yet.
//!
//! Every node decides for itself. Two nodes may claim the same shard at once; the write of the
//! record decides, and the other one decides again from what it then reads.
//!
//! Invariants:
//! - A balanced cluster does nothing: no decision depends on time or chance.
//! - A shard moves from a node that has at least two more than its next owner, so the steps end.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{Hash, Hasher},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;

/// The identifier of a node, unique to one start of its process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub String);

/// The ownership of a shard, as its record says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardRecord {
    pub owner: Option<NodeId>,
    /// The node that requests it, and for how long the reader has seen the request, in time in which
    /// it could read.
    pub request: Option<(NodeId, Duration)>,
}

/// The records of a cluster, as a node has read them.
#[derive(Clone, Copy, Debug)]
pub struct ClusterView<'a> {
    /// The node that reads.
    pub me: &'a NodeId,
    pub alive: &'a BTreeSet<NodeId>,
    /// The nodes that are about to stop. They are alive until they have given everything up.
    pub leaving: &'a BTreeSet<NodeId>,
    /// The record of each shard, by its number.
    pub shards: &'a [ShardRecord],
    /// The nodes that may own each shard: those with a complete copy that are alive, neither stop
    /// nor are drained, and have not failed to serve it.
    pub eligible: &'a [BTreeSet<NodeId>],
    /// Whether the node itself stops: it gives up also what no other node is eligible for.
    pub is_stopping: bool,
    /// How long an owner has to give up a shard that another node requests: longer than its own limit
    /// for finishing what is in flight. A shard that was given up stays reserved for the node that
    /// requested it for as long.
    pub drain_wait: Duration,
}

/// A step of a node. For a shard without a step, the node keeps what it has.
///
/// A node takes a step only while its lease lasts (`LeaseIntervals::may_act` of `lease`). After a
/// pause it reads again first: others may take it for dead, and would take from it at once what it
/// has just claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BalanceStep {
    /// Become the owner of a shard that has no living owner.
    Claim(usize),
    /// Become the owner of a shard whose living owner did not give it up. That one may act until
    /// its lease ends, so the new owner acts, or gives the shard up again, only after
    /// `LeaseIntervals::act_wait` of `lease`.
    Force(usize),
    /// Request a shard from its owner.
    Steal(usize),
    /// Finish what is in flight and give the shard up. The request stays in the record: no other
    /// node claims the shard.
    Drain(usize),
}

impl BalanceStep {
    /// The same step for the shard whose number is higher by `count`.
    pub(super) fn moved_by(self, count: usize) -> Self {
        match self {
            Self::Claim(shard) => Self::Claim(shard + count),
            Self::Force(shard) => Self::Force(shard + count),
            Self::Steal(shard) => Self::Steal(shard + count),
            Self::Drain(shard) => Self::Drain(shard + count),
        }
    }
}

/// The next steps of a node, which takes all that it is entitled to at once. A node that is not
/// alive itself does nothing.
pub fn next_steps(view: &ClusterView<'_>) -> Vec<BalanceStep> {
    if view.leaving.contains(view.me) {
        return plan_drains(view);
    }
    if !view.alive.contains(view.me) {
        return Vec::new();
    }
    let mut plan = BalancePlan::new(*view);
    for (number, shard) in view.shards.iter().enumerate() {
        plan.count_shard(number, shard);
    }
    plan.claim_free_shards();
    // Shards that are free, or will be, even out the shares without a move.
    if plan.free.is_empty() && !plan.has_leaving_owner {
        plan.request_shards();
    }
    plan.steps
}

impl ClusterView<'_> {
    fn is_eligible(&self, node: &NodeId, shard: usize) -> bool {
        let nodes = self.eligible.get(shard);
        nodes.is_some_and(|nodes| nodes.contains(node))
    }
}

/// The steps of a node that stays, as they are found.
struct BalancePlan<'a> {
    view: ClusterView<'a>,
    steps: Vec<BalanceStep>,
    /// The number of shards that each node will have.
    counts: BTreeMap<&'a NodeId, usize>,
    /// The shards that no node has or was promised.
    free: Vec<usize>,
    /// The shards of other nodes that this one may own, with their owners.
    candidates: Vec<(usize, &'a NodeId)>,
    /// Whether the owner of one of them is about to stop.
    has_leaving_owner: bool,
}

impl<'a> BalancePlan<'a> {
    fn new(view: ClusterView<'a>) -> Self {
        let takes_any = |node: &NodeId| view.eligible.iter().any(|nodes| nodes.contains(node));
        let mut counts = BTreeMap::new();
        for node in view.alive {
            if !view.leaving.contains(node) && takes_any(node) {
                counts.insert(node, 0);
            }
        }
        Self {
            view,
            steps: Vec::new(),
            counts,
            free: Vec::new(),
            candidates: Vec::new(),
            has_leaving_owner: false,
        }
    }

    /// Counts a shard for the node that will have it, and adds the step that a request for it
    /// needs.
    fn count_shard(&mut self, number: usize, shard: &'a ShardRecord) {
        let ClusterView {
            me,
            alive,
            leaving,
            drain_wait,
            ..
        } = self.view;
        let owner = shard.owner.as_ref().filter(|owner| alive.contains(*owner));
        let next_owner = match (owner, self.valid_request(number, shard)) {
            (None, None) => {
                self.free.push(number);
                return;
            }
            (Some(owner), Some((by, waited))) if owner != by => {
                if owner == me {
                    self.steps.push(BalanceStep::Drain(number));
                } else if by == me && waited >= drain_wait {
                    self.steps.push(BalanceStep::Force(number));
                }
                by
            }
            // It was given up for a node that does not take it.
            (None, Some((by, waited))) if by != me && waited >= drain_wait => {
                self.free.push(number);
                return;
            }
            (None, Some((by, _))) => {
                // It was given up for this node.
                if by == me {
                    self.steps.push(BalanceStep::Claim(number));
                }
                by
            }
            (Some(owner), Some(_) | None) => {
                if owner != me && self.view.is_eligible(me, number) {
                    self.candidates.push((number, owner));
                    self.has_leaving_owner |= leaving.contains(owner);
                }
                owner
            }
        };
        if let Some(count) = self.counts.get_mut(next_owner) {
            *count += 1;
        }
    }

    /// The request for a shard. That of a node that died meanwhile, is about to stop, or is not
    /// eligible any more, does not count.
    fn valid_request(
        &self,
        number: usize,
        shard: &'a ShardRecord,
    ) -> Option<(&'a NodeId, Duration)> {
        let ClusterView { alive, leaving, .. } = self.view;
        let (by, waited) = shard.request.as_ref()?;
        let is_valid =
            alive.contains(by) && !leaving.contains(by) && self.view.is_eligible(by, number);
        is_valid.then_some((by, *waited))
    }

    /// Claims free shards up to the share of a node, and those that no other node would claim.
    fn claim_free_shards(&mut self) {
        let ClusterView {
            me,
            shards,
            eligible,
            ..
        } = self.view;
        let share_max = shards.len().div_ceil(self.counts.len().max(1));
        // A free shard that this node cannot serve does not keep it from requesting others.
        self.free.retain(|shard| self.view.is_eligible(me, *shard));
        // Shards with few eligible nodes come first. Nodes that claim at the same time begin with
        // different shards.
        self.free
            .sort_by_key(|shard| (eligible[*shard].len(), rank_node(me, *shard)));
        for shard in self.free.clone() {
            let own_count = self.count_of(me);
            if own_count < share_max || self.has_fewest(shard) {
                self.steps.push(BalanceStep::Claim(shard));
                self.counts.insert(me, own_count + 1);
            }
        }
    }

    /// Requests shards, one after another, from the node that has the most by then.
    fn request_shards(&mut self) {
        let me = self.view.me;
        self.candidates
            .sort_by_key(|(shard, _)| rank_node(me, *shard));
        while let Some(index) = self.best_candidate() {
            let (shard, owner) = self.candidates.remove(index);
            self.steps.push(BalanceStep::Steal(shard));
            let owner_count = self.count_of(owner);
            self.counts.insert(owner, owner_count - 1);
            self.counts.insert(me, self.count_of(me) + 1);
        }
    }

    /// The index of the first candidate of the owner with the most shards. Its owner has at least
    /// two more than this node, which has no more than the other eligible nodes: otherwise several
    /// nodes would take from one that then has too few.
    fn best_candidate(&self) -> Option<usize> {
        let own_count = self.count_of(self.view.me);
        let mut best_candidate = None;
        let mut most = own_count + 1;
        for (index, (shard, owner)) in self.candidates.iter().enumerate() {
            let owner_count = self.count_of(owner);
            if owner_count > most && self.has_fewest(*shard) {
                best_candidate = Some(index);
                most = owner_count;
            }
        }
        best_candidate
    }

    fn count_of(&self, node: &NodeId) -> usize {
        self.counts.get(node).copied().unwrap_or_default()
    }

    /// Whether none of the nodes that are eligible for a shard has fewer shards than this one.
    fn has_fewest(&self, shard: usize) -> bool {
        let own_count = self.count_of(self.view.me);
        let mut counts = self.view.eligible[shard]
            .iter()
            .filter_map(|node| self.counts.get(node));
        counts.all(|count| own_count <= *count)
    }
}

/// The shards that a node that leaves gives up.
fn plan_drains(view: &ClusterView<'_>) -> Vec<BalanceStep> {
    let ClusterView {
        me,
        alive,
        leaving,
        shards,
        eligible,
        is_stopping,
        ..
    } = *view;
    // A node that was drained serves on what no other one can take, unless all were drained.
    let serves_on = !is_stopping && alive.iter().any(|node| !leaving.contains(node));
    let mut steps = Vec::new();
    for (number, shard) in shards.iter().enumerate() {
        let nodes = eligible.get(number);
        let has_other = nodes.is_some_and(|nodes| nodes.iter().any(|node| node != me));
        if shard.owner.as_ref() == Some(me) && (has_other || !serves_on) {
            steps.push(BalanceStep::Drain(number));
        }
    }
    steps
}

/// The order in which nodes prefer shards: the same at each call, and another one for each node.
fn rank_node(node: &NodeId, shard: usize) -> u64 {
    let mut hasher = SipHasher13::new();
    (node, shard).hash(&mut hasher);
    hasher.finish()
}
