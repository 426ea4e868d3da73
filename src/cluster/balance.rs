//! The balance: which shards a node claims, asks for and gives up, from the ownership records alone.
//!
//! With P shards and N nodes that are alive, each node gets floor(P/N) or ceil(P/N) shards. A node claims shards without
//! a living owner up to the higher number. The node with the fewest asks the one with the most for a shard, if that has
//! at least two more: the record says who wants it, and the owner finishes what is in flight and gives it up for that
//! node. If it does not, the shard is claimed by force. A node that is about to stop finishes what is in flight and gives
//! everything up; it has no share any more, and stays the owner of what it has not given up yet.
//!
//! Every node decides for itself. Two nodes may want the same shard at once; the write of the record decides, and the
//! other one decides again from what it then reads.
//!
//! Invariants:
//! - A balanced cluster does nothing: no decision depends on time or chance.
//! - A shard moves only from a node that has at least two more than its next owner, so the steps end.

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

/// How fast a node takes what it is entitled to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Everything at once.
    Greedy,
    /// One shard in each round, so that a node that starts is not flooded.
    Balanced,
}

/// What the record of a shard says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShardRecord {
    /// Its owner, if it has one.
    pub owner: Option<NodeId>,
    /// The node that asked for it, and for how long the reader has seen that, in time in which it could read.
    pub wanted: Option<(NodeId, Duration)>,
}

/// What a node has read.
#[derive(Clone, Copy, Debug)]
pub struct ClusterView<'a> {
    /// The node itself.
    pub me: &'a NodeId,
    /// The nodes that are alive.
    pub alive: &'a BTreeSet<NodeId>,
    /// The nodes that are about to stop. They are alive until they have given everything up.
    pub leaving: &'a BTreeSet<NodeId>,
    /// The record of each shard, by its number.
    pub shards: &'a [ShardRecord],
    /// The shards that the node leaves to others for now, because it could not serve them.
    pub avoided: &'a BTreeSet<usize>,
    /// How long an owner has to give up a shard that is wanted, longer than its own limit for finishing what is in flight.
    /// So long is a shard kept for the node that asked for it.
    pub drain_wait: Duration,
}

/// A step of a node. For a shard without a step, the node keeps what it has.
///
/// A node takes a step only while its lease lasts (`LeaseIntervals::may_act` of `lease`). After a pause it reads again
/// first: others may take it for dead, and would take from it at once what it has just claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum BalanceStep {
    /// Become the owner of a shard that has no living owner.
    Claim(usize),
    /// Become the owner of a shard whose living owner did not give it up. That one may act until its lease ends, so the new
    /// owner acts, or gives the shard up again, only after `LeaseIntervals::act_wait` of `lease`.
    Force(usize),
    /// Ask the owner of a shard for it.
    Steal(usize),
    /// Finish what is in flight and give the shard up. The request stays in the record: no other node claims the shard.
    Drain(usize),
}

/// What a node does next. A node that is not alive itself does nothing.
pub fn next_steps(view: &ClusterView<'_>, strategy: Strategy) -> Vec<BalanceStep> {
    let ClusterView { me, alive, leaving, shards, avoided, drain_wait } = *view;
    let mine = |shard: &ShardRecord| shard.owner.as_ref() == Some(me);
    let stays = |node: &&NodeId| !leaving.contains(*node);
    // A request of a node that died meanwhile, or is about to stop, counts for nothing.
    let wanted = |shard: &ShardRecord| shard.wanted.clone().filter(|(by, _)| alive.contains(by) && stays(&by));
    if leaving.contains(me) {
        let owned = shards.iter().enumerate().filter(|(_, shard)| mine(shard));
        return owned.map(|(shard, _)| BalanceStep::Drain(shard)).collect();
    }
    if !alive.contains(me) {
        return Vec::new();
    }
    let mut steps = Vec::new();
    // Each shard counts for the node that will have it.
    let mut counts: BTreeMap<&NodeId, usize> = alive.iter().filter(stays).map(|node| (node, 0)).collect();
    let (mut free, mut steals, mut is_any_left) = (Vec::new(), Vec::new(), false);
    for (number, shard) in shards.iter().enumerate() {
        let owner = shard.owner.as_ref().filter(|owner| alive.contains(*owner));
        let heir = match (owner, wanted(shard)) {
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
            // It was given up for a node that does not take it.
            (None, Some((by, waited))) if by != *me && waited >= drain_wait => {
                free.push(number);
                continue;
            }
            // It was given up for this node.
            (None, Some((by, _))) => {
                if by == *me {
                    steps.push(BalanceStep::Claim(number));
                }
                alive.get(&by)
            }
            (Some(owner), Some(_) | None) => {
                if owner != me {
                    steals.push((number, owner));
                }
                is_any_left |= leaving.contains(owner);
                Some(owner)
            }
        };
        if let Some(count) = heir.and_then(|heir| counts.get_mut(heir)) {
            *count += 1;
        }
    }
    let most = shards.len().div_ceil(counts.len());
    let mut own = counts.get(me).copied().unwrap_or_default();
    let mut left = if strategy == Strategy::Greedy { usize::MAX } else { 1 };
    // A shard that nobody can serve now does not keep the others from being balanced.
    free.retain(|shard| !avoided.contains(shard));
    // Nodes that claim at the same time begin with different shards.
    free.sort_by_key(|shard| rank(me, *shard));
    let claimed: Vec<usize> = free.iter().copied().take(most.saturating_sub(own).min(left)).collect();
    steps.extend(claimed.iter().map(|shard| BalanceStep::Claim(*shard)));
    // Shards that are free, or will be, even out the shares without a move.
    if !free.is_empty() || is_any_left {
        return steps;
    }
    steals.sort_by_key(|(shard, _)| rank(me, *shard));
    while left > 0 {
        let others = || counts.iter().filter(|(node, _)| **node != me);
        let Some((richest, theirs)) = others().max_by_key(|(_, count)| **count) else { break };
        let (richest, theirs) = (*richest, *theirs);
        // The poorest take first. Otherwise several nodes would take from one that then has too little.
        let is_poorest = others().all(|(_, count)| own <= *count);
        if !is_poorest || theirs < own + 2 {
            break;
        }
        let Some(at) = steals.iter().position(|(_, owner)| *owner == richest) else { break };
        steps.push(BalanceStep::Steal(steals.remove(at).0));
        counts.insert(richest, theirs - 1);
        own += 1;
        left -= 1;
    }
    steps
}

/// A number that differs from node to node.
fn rank(node: &NodeId, shard: usize) -> u64 {
    let mut hasher = SipHasher13::new();
    (node, shard).hash(&mut hasher);
    hasher.finish()
}
