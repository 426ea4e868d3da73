//! The balance: which shards a node claims, asks for and gives up, from the ownership records
//! alone.
//!
//! With P shards and N nodes that are alive, each node gets floor(P/N) or ceil(P/N) shards. A node
//! claims shards without a living owner up to the higher number. The node with the fewest asks the
//! one with the most for a shard, if that has at least two more.
//!
//! Only a node with a complete copy of a shard is eligible for it. If no such node is below its
//! share, the one with the fewest claims the shard all the same. As long as not all nodes are
//! eligible for all shards, the shares may differ by more than one.
//!
//! A request goes like this: the record says who wants it, and the owner finishes what is in flight
//! and gives it up for that node. If it does not, the shard is claimed by force. A node that is
//! about to stop finishes what is in flight and gives everything up; it has no share any more, and
//! stays the owner of what it has not given up yet.
//!
//! Every node decides for itself. Two nodes may want the same shard at once; the write of the
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

/// The name of a node, unique to one start of its process.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub String);

/// The ownership of a shard, as its record says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardRecord {
    pub owner: Option<NodeId>,
    /// The node that asked for the shard, and for how long the reader has seen that, in time in
    /// which it could read.
    pub wanted: Option<(NodeId, Duration)>,
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
    /// How long an owner has to give up a shard that is wanted, longer than its own limit for
    /// finishing what is in flight. A shard is kept for the node that asked for it for the same
    /// time.
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
    /// Ask the owner of a shard for it.
    Steal(usize),
    /// Finish what is in flight and give the shard up. The request stays in the record: no other
    /// node claims the shard.
    Drain(usize),
}

impl BalanceStep {
    /// The step for the shard whose number is higher by `count`.
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
    let ClusterView {
        me,
        alive,
        leaving,
        shards,
        eligible,
        drain_wait,
        ..
    } = *view;
    let stays = |node: &&NodeId| !leaving.contains(*node);
    let may_own = |node: &NodeId, shard: usize| {
        let nodes = eligible.get(shard);
        nodes.is_some_and(|nodes| nodes.contains(node))
    };
    // A request of a node that died meanwhile, is about to stop, or is not eligible any more,
    // counts for nothing.
    let handover_wanted = |number: usize, shard: &ShardRecord| {
        let request = shard.wanted.clone();
        request.filter(|(by, _)| alive.contains(by) && stays(&by) && may_own(by, number))
    };
    if leaving.contains(me) {
        return plan_drains(view);
    }
    if !alive.contains(me) {
        return Vec::new();
    }
    let mut steps = Vec::new();
    // Each shard counts for the node that will have it.
    let takes_any = |node: &&NodeId| eligible.iter().any(|nodes| nodes.contains(*node));
    let mut counts: BTreeMap<&NodeId, usize> = alive
        .iter()
        .filter(stays)
        .filter(takes_any)
        .map(|node| (node, 0))
        .collect();
    let mut free = Vec::new();
    let mut steals = Vec::new();
    let mut is_any_left = false;
    for (number, shard) in shards.iter().enumerate() {
        let owner = shard.owner.as_ref().filter(|owner| alive.contains(*owner));
        let heir = match (owner, handover_wanted(number, shard)) {
            (None, None) => {
                free.push(number);
                continue;
            }
            (Some(owner), Some((by, waited))) if *owner != by => {
                if owner == me {
                    steps.push(BalanceStep::Drain(number));
                } else if by == *me && waited >= drain_wait {
                    steps.push(BalanceStep::Force(number));
                }
                alive.get(&by)
            }
            // The shard was given up for a node that does not take it.
            (None, Some((by, waited))) if by != *me && waited >= drain_wait => {
                free.push(number);
                continue;
            }
            // The shard was given up for this node.
            (None, Some((by, _))) => {
                if by == *me {
                    steps.push(BalanceStep::Claim(number));
                }
                alive.get(&by)
            }
            (Some(owner), Some(_) | None) => {
                if owner != me && may_own(me, number) {
                    steals.push((number, owner));
                    is_any_left |= leaving.contains(owner);
                }
                Some(owner)
            }
        };
        if let Some(count) = heir.and_then(|heir| counts.get_mut(heir)) {
            *count += 1;
        }
    }
    let most = shards.len().div_ceil(counts.len().max(1));
    // A shard that this node cannot serve does not keep it from asking for others.
    free.retain(|shard| may_own(me, *shard));
    // What few can take comes first. Nodes that claim at the same time begin with different shards.
    free.sort_by_key(|shard| (eligible[*shard].len(), rank_node(me, *shard)));
    for shard in &free {
        let own = counts.get(me).copied().unwrap_or_default();
        if own < most || has_fewest(me, &eligible[*shard], &counts) {
            steps.push(BalanceStep::Claim(*shard));
            counts.insert(me, own + 1);
        }
    }
    // Shards that are free, or will be, even out the shares without a move.
    if free.is_empty() && !is_any_left {
        steals.sort_by_key(|(shard, _)| rank_node(me, *shard));
        steps.extend(next_steals(view, steals, counts));
    }
    steps
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

/// The shards that a node asks for, of these with their owners.
fn next_steals<'a>(
    view: &ClusterView<'a>,
    mut steals: Vec<(usize, &'a NodeId)>,
    mut counts: BTreeMap<&'a NodeId, usize>,
) -> Vec<BalanceStep> {
    let ClusterView { me, eligible, .. } = *view;
    let mut steps = Vec::new();
    loop {
        let own = counts.get(me).copied().unwrap_or_default();
        let count = |owner: &NodeId| counts.get(owner).copied().unwrap_or_default();
        // The poorest take first. Otherwise several nodes would take from one that then has too
        // little.
        let is_for_me = |(at, (shard, owner)): &(usize, &(usize, &NodeId))| {
            let is_due = count(owner) >= own + 2;
            (is_due && has_fewest(me, &eligible[*shard], &counts)).then_some((*at, count(owner)))
        };
        let due = steals
            .iter()
            .enumerate()
            .filter_map(|steal| is_for_me(&steal));
        // The richest gives first, and of its shards the first one.
        let Some((at, theirs)) = due.max_by_key(|(at, count)| (*count, std::cmp::Reverse(*at)))
        else {
            return steps;
        };
        let (shard, owner) = steals.remove(at);
        steps.push(BalanceStep::Steal(shard));
        counts
            .entry(owner)
            .and_modify(|count| *count = theirs.saturating_sub(1));
        counts.insert(me, own + 1);
    }
}

/// Whether none of the nodes that are eligible has fewer shards than this one.
fn has_fewest(me: &NodeId, eligible: &BTreeSet<NodeId>, counts: &BTreeMap<&NodeId, usize>) -> bool {
    let own = counts.get(me).copied().unwrap_or_default();
    eligible
        .iter()
        .filter_map(|node| counts.get(node))
        .all(|count| own <= *count)
}

/// A number that differs from node to node.
fn rank_node(node: &NodeId, shard: usize) -> u64 {
    let mut hasher = SipHasher13::new();
    (node, shard).hash(&mut hasher);
    hasher.finish()
}
