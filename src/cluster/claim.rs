//! What a node makes of the records that it reads: which shards it owns, until when it may act, and
//! what it writes next.
//!
//! Pure: records and times are arguments, the times on the node's own monotonic clock. `member`
//! reads, writes and waits.
//!
//! Invariants:
//! - A node owns a shard if the record says so, never because a write of its own had no answer.
//! - A read counts only if it has the node's own last renewal. A server of the records that fell
//!   behind would otherwise make every node look silent.
//! - A step needs a current lease: after a pause, a node renews and reads first.
//! - A shard that was taken by force is neither served nor given away before the owner before has
//!   noticed.
//! - An owner renews the record of the shard right behind its own, so that a claim that rests on an
//!   older read fails. Its lease counts from when the renewal of its own record was sent. A read
//!   with that renewal confirms it as well as the answer to it.
//! - A node writes no record under a name that another living process has. It waits until that one
//!   has ended, or was silent for the expiry.
//! - A bucket that lost the node's renewals for the expiry was restored from an older backup, or its
//!   server fell behind. The node renews its record as it is there. Only the leader of the bucket
//!   takes a write, so that no read from another server counts before.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{
    NodeAddress,
    balance::{BalanceStep, ClusterView, NodeId, next_steps},
    lease::{LeaseIntervals, LiveNodes},
    marks::ShardMarks,
    records::{
        ClusterRecords, NodeRecord, OwnershipRecord, OwnershipScope, ShardPosition, StoredRecord,
        Versioned,
    },
    shard_address,
};
use gridhook_journal::changelog::KnownMarks;

/// What a node is called, and the rules of its cluster. All nodes should have the same rules, and
/// do not while an operator changes them: at most one node writes to a shard nevertheless.
#[derive(Clone, Debug)]
pub struct ClaimSettings {
    /// Its identifier, unique to one start of its process.
    pub me: NodeId,
    /// Its name, which it keeps.
    pub name: String,
    /// Host and port of its listener for other nodes, that of the first shard.
    pub address: String,
    /// Whether the listener is bound there, so that no other process has the address.
    pub is_address_bound: bool,
    /// The release of its program.
    pub version: String,
    /// The number of shards, with the control plane.
    pub shards: usize,
    /// The shard with the control plane, if it is one of its own.
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

/// A change of a shard's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnershipChange {
    pub shard: usize,
    /// Its new record.
    pub record: OwnershipRecord,
    /// The revision that the record must have.
    pub revision: u64,
    /// What the record said, if the change may be made again after a mere renewal by the owner.
    pub insists: Option<OwnershipRecord>,
}

/// Why a read does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadProblem {
    /// It is older than the node's own last renewal.
    Stale,
    /// Another process has the node's name: one that started later, or one that runs while this one
    /// starts.
    NameTaken,
}

/// What a node is for a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardRole {
    /// Another node owns it, or none.
    Standby(Option<NodeAddress>),
    /// This node owns it.
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
    /// When the last renewal was sent.
    sent: Option<Duration>,
    /// When the last confirmed renewal was sent.
    confirmed: Option<Duration>,
    read: Option<Duration>,
    /// The process that had the name when this one started, as long as it may run, and the revision
    /// of its record.
    namesake: Option<(NodeId, u64)>,
    /// Since when that record was seen to change.
    namesake_since: Option<Duration>,
    /// Since when reads lack the node's renewals, and the revision of its record there.
    lost_since: Option<(Duration, u64)>,
    /// How long each request for a shard was seen, in time in which records could be read.
    requests: BTreeMap<(usize, NodeId), Duration>,
    /// The claims and the times from which their leases count.
    leases: BTreeMap<usize, (u64, Duration)>,
    /// The shards that are taken by force, and from when on the node may act.
    forced: BTreeMap<usize, Option<Duration>>,
    draining: BTreeSet<usize>,
    /// The claims that the server has given up.
    given_up: BTreeSet<(usize, u64)>,
    /// Nodes whose processes have ended, as far as can be seen from here, and the last revisions of
    /// their records. A renewal proves the opposite.
    gone: BTreeMap<NodeId, u64>,
    leaving: bool,
    /// Of which shards the node has all that the changelog had: once, or since an operator removed
    /// its record.
    complete: Vec<bool>,
    /// Whether an operator has removed the node's record while it ran, and it has not caught up
    /// since. It writes none before: the changelog would be kept for a node that may not be able to
    /// follow it.
    is_forgotten: bool,
    /// The shards that the node could not serve, and until when it leaves each to others.
    failed: BTreeMap<usize, Duration>,
    /// The shards that the node cannot serve before an operator has acted, and why.
    failures: BTreeMap<usize, String>,
    marks: ShardMarks,
}

impl Claims {
    /// A node that has read nothing.
    pub fn new(settings: ClaimSettings) -> Self {
        let live = LiveNodes::new(settings.intervals);
        let complete = vec![false; settings.shards];
        let marks = ShardMarks::new(settings.shards);
        Self {
            settings,
            records: ClusterRecords::default(),
            live,
            revision: 0,
            renewals: 0,
            sent: None,
            confirmed: None,
            read: None,
            namesake: None,
            namesake_since: None,
            lost_since: None,
            requests: BTreeMap::new(),
            leases: BTreeMap::new(),
            forced: BTreeMap::new(),
            draining: BTreeSet::new(),
            given_up: BTreeSet::new(),
            gone: BTreeMap::new(),
            leaving: false,
            complete,
            is_forgotten: false,
            failed: BTreeMap::new(),
            failures: BTreeMap::new(),
            marks,
        }
    }

    /// What the node is called, and the rules of its cluster.
    pub fn settings(&self) -> &ClaimSettings {
        &self.settings
    }

    /// The records as they were last read.
    pub fn records(&self) -> &ClusterRecords {
        &self.records
    }

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

    /// Whether reads have lacked the node's renewals since `since` for so long that the bucket has.
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

    /// Takes the answer to a renewal that was sent at `sent`.
    pub fn note_renewal(&mut self, sent: Duration, revision: u64) {
        self.revision = revision;
        self.confirmed = Some(sent);
        self.namesake = None;
        self.lost_since = None;
    }

    /// When the last confirmed renewal was sent.
    pub fn confirmed(&self) -> Option<Duration> {
        self.confirmed
    }

    /// The renewals of the records of what the node owns, to be sent once the renewal of its own
    /// record was confirmed.
    pub fn shard_renewals(&self) -> Vec<OwnershipChange> {
        let shards = (0..self.settings.shards).filter(|shard| {
            let claim = self.claim_number(*shard);
            claim.is_some_and(|claim| !self.given_up.contains(&(*shard, claim)))
        });
        shards
            .map(|shard| self.edit_record(shard, |_| {}))
            .collect()
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
                // The answer to the renewal was lost, or is late.
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
    /// what a process that has ended once wrote, too, but only one that runs goes on for the expiry.
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

    /// Takes the shards that the node cannot serve before an operator has acted, and why.
    pub fn note_failures(&mut self, failures: BTreeMap<usize, String>) {
        failures.keys().for_each(|shard| self.give_up_owned(*shard));
        self.failures = failures;
    }

    /// Gives up a claim that cannot be served.
    fn give_up_owned(&mut self, shard: usize) {
        if let Some(claim) = self.claim_number(shard) {
            self.given_up.insert((shard, claim));
        }
    }

    /// The other nodes with the addresses at which each would serve a shard. Of each shard the owner
    /// that the records name is the first.
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
                    node: node.id.clone(),
                    address: shard_address(&node.address, number),
                };
                addresses.push((number, address));
            }
        }
        addresses
    }

    /// What is known of records that the changelog of a shard has acknowledged.
    pub fn known_marks(&self, shard: usize) -> KnownMarks {
        self.marks.known(shard)
    }

    /// Takes note that a node's process has ended, as far as can be seen from here, if it has not
    /// renewed its record since the last read.
    pub fn note_gone(&mut self, node: &NodeId) {
        if let Some((node, revision)) = self.records.revisions().find(|(id, _)| id == node) {
            self.gone.insert(node, revision);
        }
    }

    /// Takes no shard any more, and gives up what it has.
    pub fn stop_claiming(&mut self) {
        self.leaving = true;
    }

    /// Takes whether the server has everything of each shard, by its number.
    pub fn note_complete(&mut self, complete: impl IntoIterator<Item = bool>) {
        self.complete.clear();
        self.complete.extend(complete);
        self.complete.resize(self.settings.shards, false);
        self.is_forgotten &= self.is_behind();
    }

    /// Whether the node has not everything of a shard. An owner has all that the changelog has.
    fn is_behind(&self) -> bool {
        let mut shards = self.complete.iter().enumerate();
        shards.any(|(shard, is_complete)| !is_complete && self.claim_number(shard).is_none())
    }

    /// The sequence up to which the changelog of a shard may be trimmed.
    pub fn trimmable_before(&self, shard: usize) -> u64 {
        self.records.trimmable_before(shard)
    }

    /// The same once the changelog is large.
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
        // It may have been lost meanwhile, and another one won.
        if self.claim_number(shard) == Some(claim) {
            self.given_up.insert((shard, claim));
        }
        if let Some(pause) = pause {
            self.failed.insert(shard, now + pause);
        }
    }

    /// What the node writes next: nothing without a current lease.
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
        self.draining.clear();
        let mut changes = Vec::new();
        for step in steps {
            match step {
                BalanceStep::Claim(shard) | BalanceStep::Force(shard) => {
                    if matches!(step, BalanceStep::Force(_)) {
                        self.forced.insert(shard, None);
                    } else {
                        self.forced.remove(&shard);
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
                    self.draining.insert(shard);
                }
                BalanceStep::Drain(_) => {}
            }
        }
        for shard in 0..self.settings.shards {
            let is_given_up = self
                .claim_number(shard)
                .is_some_and(|claim| self.given_up.contains(&(shard, claim)));
            if is_given_up && self.is_past_force(shard, now) {
                changes.push(self.edit_record(shard, |record| record.owner_id = None));
            }
        }
        changes
    }

    /// Takes the answer to a change. One that was sent after the last renewal of the node's record
    /// renews the lease.
    pub fn note_change(&mut self, change: OwnershipChange, revision: u64, now: Duration) {
        let OwnershipChange { shard, record, .. } = change;
        let written = std::mem::take(&mut self.records.shards[shard].written);
        self.records.shards[shard] = Versioned {
            value: record,
            revision,
            written,
        };
        if let (Some(claim), Some(confirmed)) = (self.claim_number(shard), self.confirmed) {
            self.leases.insert(shard, (claim, confirmed));
        }
        self.note_owner(shard, now);
    }

    /// What the node is for a shard.
    pub fn role_for(&self, shard: usize) -> ShardRole {
        match self.claim_number(shard) {
            Some(claim) if self.given_up.contains(&(shard, claim)) => ShardRole::Standby(None),
            Some(claim) => ShardRole::Owner {
                claim,
                draining: self.draining.contains(&shard),
            },
            None => ShardRole::Standby(self.owner_address(shard)),
        }
    }

    /// Until when the node may act for a shard that it owns; [`None`] if it may not.
    pub fn acts_until(&self, shard: usize, now: Duration) -> Option<Duration> {
        let (claim, confirmed) = self.leases.get(&shard)?;
        let is_owned = self.claim_number(shard) == Some(*claim);
        (is_owned && self.is_past_force(shard, now))
            .then_some(*confirmed + self.settings.intervals.act_wait())
    }

    pub fn alive_nodes(&self) -> BTreeSet<NodeId> {
        let mut alive = self.live.alive_nodes();
        alive.retain(|node| !self.gone.contains_key(node));
        alive
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

    /// Whether the owner before this one has noticed that it lost the shard. Until then this node
    /// neither acts nor gives the shard to a node that would act at once.
    fn is_past_force(&self, shard: usize, now: Duration) -> bool {
        self.forced
            .get(&shard)
            .is_none_or(|from| from.is_some_and(|from| from <= now))
    }

    fn has_lease(&self, now: Duration) -> bool {
        self.confirmed
            .is_some_and(|confirmed| self.settings.intervals.may_act(confirmed, now))
    }

    fn takes_none(&self, now: Duration) -> bool {
        let could_serve_none = (0..self.settings.shards).all(|shard| self.avoids_shard(shard, now));
        self.leaving || could_serve_none
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
        has_copy && (!is_me || (self.complete[shard] && !self.avoids_shard(shard, now)))
    }

    fn avoids_shard(&self, shard: usize, now: Duration) -> bool {
        let is_paused = self.failed.get(&shard).is_some_and(|until| now < *until);
        let has_conflict = self.marks.known(shard).conflict.is_some();
        is_paused || has_conflict || self.failures.contains_key(&shard)
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
            node: id.clone(),
            address: shard_address(&record.address, shard),
        })
    }

    /// An owner by force may act once the one before it has noticed.
    fn note_owner(&mut self, shard: usize, now: Duration) {
        match self.claim_number(shard) {
            Some(claim) => {
                self.given_up
                    .retain(|(of, given)| *of != shard || *given == claim);
                if let Some(from @ None) = self.forced.get_mut(&shard) {
                    *from = Some(now + self.settings.intervals.act_wait());
                }
            }
            None => {
                self.draining.remove(&shard);
                // One that is still being asked for keeps its mark: the answer may have been lost.
                if self.forced.get(&shard).is_some_and(Option::is_some) {
                    self.forced.remove(&shard);
                }
            }
        }
    }
}
