//! The copies of a shard: which nodes should have one, and when a node removes one that is not
//! wanted any more.
//!
//! The nodes with a copy of a shard are chosen by a hash of their names and the shard's number
//! (rendezvous hashing), so that a node that joins or goes changes no more than it must. A node
//! counts as long as it has a record, unless it has been dead, or drained by an operator, for
//! `replace_after`: then others take its place.
//!
//! Every node decides for itself, and two may see another cluster for a while. So a copy is removed
//! in two steps: the record of the node says first that nobody may count on the copy
//! ([`CopyState::Surplus`]), and the node reads the records again. Of two nodes that would both
//! remove theirs at once, the one that wrote later sees that of the other.
//!
//! Invariants:
//! - A copy is removed only while as many chosen nodes as `copies`, which are alive, have complete
//!   ones.
//! - A node that removes a copy neither claims the shard nor says that it has one, until the server
//!   has reported the end.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::Hasher as _,
    time::Duration,
};

use siphasher::sip::SipHasher13;

use super::{
    balance::NodeId,
    claim::ClaimSettings,
    records::{ClusterRecords, CopyState},
};

/// The nodes of these names that should have a copy of a shard. All releases must agree, or nodes
/// of two releases would fetch and remove copies in turn.
pub fn choose_nodes<'a>(
    shard: usize,
    copies: usize,
    names: impl IntoIterator<Item = &'a str>,
) -> BTreeSet<&'a str> {
    let rank = |name: &str| {
        let mut hasher = SipHasher13::new();
        hasher.write(name.as_bytes());
        // No name has this byte.
        hasher.write(&[0xff]);
        hasher.write(&(shard as u64).to_le_bytes());
        hasher.finish()
    };
    let mut ranking: Vec<(u64, &str)> = names.into_iter().map(|name| (rank(name), name)).collect();
    ranking.sort_unstable();
    ranking
        .into_iter()
        .rev()
        .take(copies)
        .map(|(_, name)| name)
        .collect()
}

/// What the server of a node has of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HeldCopy {
    /// Nothing.
    #[default]
    None,
    /// A copy that is not complete.
    Incomplete,
    /// A copy that has applied all that the changelog had: once, or since an operator removed the
    /// record of the node.
    Complete,
}

/// The copies of one node.
#[derive(Debug)]
pub(super) struct CopyPlan {
    /// How long each node was dead or drained, in time in which records could be read.
    away: BTreeMap<String, Duration>,
    held: Vec<HeldCopy>,
    wanted: BTreeSet<usize>,
    /// How long each copy was seen not to be needed.
    spare: BTreeMap<usize, Duration>,
    surplus: BTreeSet<usize>,
    removing: BTreeSet<usize>,
}

impl CopyPlan {
    pub(super) fn new(shards: usize) -> Self {
        Self {
            away: BTreeMap::new(),
            held: vec![HeldCopy::None; shards],
            wanted: BTreeSet::new(),
            spare: BTreeMap::new(),
            surplus: BTreeSet::new(),
            removing: BTreeSet::new(),
        }
    }

    /// Takes what the server has of a shard.
    pub(super) fn note_held(&mut self, shard: usize, held: HeldCopy) {
        self.held[shard] = held;
        if held == HeldCopy::None {
            self.removing.remove(&shard);
            self.surplus.remove(&shard);
        }
    }

    /// What the record of the node says of a shard.
    pub(super) fn copy_state(&self, shard: usize) -> CopyState {
        match self.held[shard] {
            HeldCopy::None => CopyState::None,
            HeldCopy::Incomplete => CopyState::Incomplete,
            HeldCopy::Complete
                if self.surplus.contains(&shard) || self.removing.contains(&shard) =>
            {
                CopyState::Surplus
            }
            HeldCopy::Complete => CopyState::Complete,
        }
    }

    /// Whether the node has a copy of a shard, or should fetch one.
    pub(super) fn keeps_copy(&self, shard: usize) -> bool {
        let has_any = self.held[shard] != HeldCopy::None;
        (has_any || self.wanted.contains(&shard)) && !self.removing.contains(&shard)
    }

    /// Whether the node may become the owner of a shard, as far as its copy is concerned.
    pub(super) fn may_own(&self, shard: usize) -> bool {
        self.held[shard] == HeldCopy::Complete && !self.removing.contains(&shard)
    }

    /// Whether the node has not everything of a shard that it keeps.
    pub(super) fn is_behind(&self, shard: usize) -> bool {
        self.keeps_copy(shard) && self.held[shard] != HeldCopy::Complete
    }

    /// The names of the nodes that count when copies are divided. The state of one whose record
    /// cannot be read is not known, but it is a node.
    pub(super) fn counted_nodes(
        &self,
        records: &ClusterRecords,
        replace_after: Duration,
    ) -> BTreeSet<String> {
        let is_there = |name: &&String| {
            self.away
                .get(*name)
                .is_none_or(|away| *away < replace_after)
        };
        let unreadable = records
            .unreadable
            .iter()
            .filter(|(_, (is_there, _))| *is_there)
            .map(|(name, _)| name);
        records
            .nodes
            .keys()
            .filter(is_there)
            .chain(unreadable)
            .cloned()
            .collect()
    }

    /// What was seen before counts no longer for the removal of a copy.
    pub(super) fn begin_again(&mut self) {
        self.spare.clear();
        self.surplus.clear();
    }

    /// Takes records that were read, `passed` after those before.
    pub(super) fn read(
        &mut self,
        settings: &ClaimSettings,
        records: &ClusterRecords,
        alive: &BTreeSet<NodeId>,
        passed: Duration,
    ) {
        let before = std::mem::take(&mut self.away);
        for (name, node) in &records.nodes {
            let is_drained = records
                .drained
                .get(name)
                .is_some_and(|(drained, _)| *drained);
            if is_drained || !alive.contains(&node.value.id) {
                let since = before
                    .get(name)
                    .map_or(Duration::ZERO, |away| *away + passed);
                self.away.insert(name.clone(), since);
            }
        }
        let counted_nodes = self.counted_nodes(records, settings.replace_after);
        // Its own record may not be written yet.
        let own = self
            .away
            .get(&settings.name)
            .is_none_or(|away| *away < settings.replace_after);
        let names = counted_nodes
            .iter()
            .map(String::as_str)
            .chain(own.then_some(settings.name.as_str()));
        let names: BTreeSet<&str> = names.collect();
        for shard in 0..settings.shards {
            let copies = if settings.control == Some(shard) {
                names.len()
            } else {
                settings.copies
            };
            let chosen = choose_nodes(shard, copies, names.iter().copied());
            let is_wanted = chosen.contains(settings.name.as_str());
            let has_one = |name: &&&str| {
                let node = records.nodes.get(**name).map(|node| &node.value);
                let node =
                    node.filter(|node| alive.contains(&node.id) && node.name != settings.name);
                node.is_some_and(|node| node.copy_state(shard) == CopyState::Complete)
            };
            let others = chosen.iter().filter(has_one).count();
            if is_wanted {
                self.wanted.insert(shard);
            } else {
                self.wanted.remove(&shard);
            }
            self.decide_copy(
                settings,
                records,
                shard,
                !is_wanted && others >= settings.copies,
                passed,
            );
        }
    }

    /// Decides about the copy of a shard, `passed` after the last time.
    fn decide_copy(
        &mut self,
        settings: &ClaimSettings,
        records: &ClusterRecords,
        shard: usize,
        is_spare: bool,
        passed: Duration,
    ) {
        if self.removing.contains(&shard) {
            return;
        }
        if !is_spare || self.held[shard] == HeldCopy::None {
            self.spare.remove(&shard);
            self.surplus.remove(&shard);
            return;
        }
        let since = *self
            .spare
            .entry(shard)
            .and_modify(|since| *since += passed)
            .or_default();
        // A node that was dead when this one started counts as alive until it proves silent.
        if since < 2 * settings.intervals.expiry() {
            return;
        }
        let is_settled = match self.held[shard] {
            // Nobody counts on it.
            HeldCopy::Incomplete | HeldCopy::None => true,
            HeldCopy::Complete => {
                self.surplus.insert(shard);
                let own = records
                    .nodes
                    .get(&settings.name)
                    .filter(|own| own.value.id == settings.me);
                own.is_some_and(|own| own.value.copy_state(shard) == CopyState::Surplus)
            }
        };
        let owner = records
            .shards
            .get(shard)
            .and_then(|shard| shard.value.owner_id.as_ref());
        if is_settled && owner != Some(&settings.me) {
            self.spare.remove(&shard);
            self.removing.insert(shard);
        }
    }
}
