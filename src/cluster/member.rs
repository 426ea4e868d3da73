//! A node's part in its cluster: it renews its record, reads those of the others, and writes what
//! `claim` decides.
//!
//! A turn is one renewal, one read and the changes that follow, each with a limit of time, once in
//! an interval. An owner that vanished or a claim that was given up leads to a read and a decision
//! at once, without another renewal; a request of an operator leads to a whole turn.
//!
//! To see at once that an owner was killed, a node holds a connection to each other owner. If it ends
//! and the address refuses a new one, the owner counts as dead, unless it renews its record. A wrong
//! guess does no harm: the fence of the changelog stops the former owner.

mod owners;
mod requests;

use std::{
    collections::{BTreeMap, BTreeSet},
    future::{Future, pending},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, sleep_until, timeout},
};

pub use self::owners::{OwnerConnection, OwnerHandshake};
use self::owners::{OwnerWatches, wait_until_any_closed, wait_until_closed};
use super::{
    GivenUp, MemberEnd, NodeAddress, Role,
    balance::NodeId,
    claim::{ClaimSettings, Claims, OwnershipChange, ReadProblem, ShardRole},
    lease::CallLimit,
    membership::{ClusterSnapshot, Command, Membership, MembershipEnd},
    records::{RecordError, RecordStore, SettingDifference, encode_record, node_key, shard_key},
};
use gridhook_clock::Lease;

/// How often a change is tried while the owner renews its record.
const CHANGE_TRIES: u32 = 4;

/// How often a read is made again that lacks the node's own last renewal, and the pause before.
const STALE_TRIES: u32 = 3;
const STALE_PAUSE: Duration = Duration::from_millis(10);

/// How long a node that could not serve a shard leaves it to others.
const FAILED_SHARD_PAUSE: Duration = Duration::from_secs(5);

/// The driver of a node's claims: it reads and writes the records of the cluster, and publishes the
/// node's role for each shard.
pub struct Member<S> {
    store: S,
    claims: Claims,
    claim_ends: Vec<MemberEnd>,
    handshake: OwnerHandshake,
    /// For each shard, the number of the claim that its role was published for.
    published_claims: Vec<Option<u64>>,
    began: Instant,
    snapshot: watch::Sender<ClusterSnapshot>,
    commands: mpsc::UnboundedReceiver<Command>,
    takeovers: u64,
    problem: Option<String>,
    limit: CallLimit,
    /// Owners from handshakes, while this node cannot read the records.
    found_owners: BTreeMap<usize, NodeAddress>,
    /// The settings in which other nodes differ from this one.
    differences: BTreeSet<SettingDifference>,
}

impl<S: RecordStore> Member<S> {
    /// A node with these records, and the handle on it. It begins the connections to owners with
    /// `handshake`, and does nothing before [`Self::run`].
    pub fn new(
        store: S,
        settings: ClaimSettings,
        claim_ends: Vec<MemberEnd>,
        handshake: OwnerHandshake,
    ) -> (Self, Membership) {
        let (sender, commands) = mpsc::unbounded_channel();
        let (snapshot_sender, snapshot) = watch::channel(ClusterSnapshot::default());
        let published_claims = vec![None; claim_ends.len()];
        let limit = CallLimit::new(settings.intervals);
        let claims = Claims::new(settings);
        let began = Instant::now();
        let member = Self {
            store,
            claims,
            claim_ends,
            handshake,
            published_claims,
            began,
            snapshot: snapshot_sender,
            commands,
            takeovers: 0,
            problem: None,
            limit,
            found_owners: BTreeMap::new(),
            differences: BTreeSet::new(),
        };
        (
            member,
            Membership {
                snapshot,
                commands: sender,
            },
        )
    }

    /// Runs until the node has left.
    pub async fn run(mut self) -> MembershipEnd {
        let interval = self.claims.settings().intervals.renewal();
        let mut watches = OwnerWatches::new();
        let mut next_turn = Instant::now();
        let mut renews = true;
        loop {
            if renews {
                next_turn = Instant::now() + interval;
            }
            let outcome = self.take_turn(renews).await;
            self.publish_roles();
            if let Err(ReadProblem::NameTaken) = outcome {
                tracing::error!(
                    name = self.claims.settings().name,
                    "another process has the name of this node"
                );
                self.end_leases();
                return self.record_end(MembershipEnd::NameTaken);
            }
            if self.claims.has_left() {
                return self.record_end(MembershipEnd::Left);
            }
            if self.is_cut_off() {
                self.find_owners().await;
                self.publish_roles();
            }
            self.watch_owners(&mut watches);
            renews = tokio::select! {
                () = sleep_until(next_turn) => true,
                node = wait_until_any_closed(&mut watches) => {
                    self.note_closed(node, &mut watches).await;
                    false
                }
                (index, lease, why) = wait_until_given_up(&mut self.claim_ends) => {
                    self.note_given_up(index, &lease, why);
                    false
                }
                command = self.commands.recv() => {
                    self.execute_command(command.unwrap_or(Command::Leave)).await;
                    true
                }
            };
        }
    }

    /// Finds out whether the process of an owner has ended whose connection was closed. Watches it
    /// again if it has not.
    async fn note_closed(&mut self, node: NodeId, watches: &mut OwnerWatches) {
        let Some((owner, _)) = watches.remove(&node) else {
            return;
        };
        if self.has_ended(&owner).await {
            return;
        }
        let closed = wait_until_closed(owner.address.clone(), Arc::clone(&self.handshake), true);
        watches.insert(node, (owner, Box::pin(closed)));
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Renews, reads and writes what follows.
    async fn take_turn(&mut self, renews: bool) -> Result<(), ReadProblem> {
        self.note_progress();
        if !self.claims.may_renew() {
            if !self.read_records().await? {
                return Ok(());
            }
            self.look_for_namesake().await;
        }
        let is_current = if renews {
            self.renew_record().await
        } else {
            true
        };
        let confirmed_at = self.claims.confirmed_at();
        if !self.read_records().await? {
            return Ok(());
        }
        self.problem = None;
        if !is_current {
            // The revisions are known now.
            self.renew_record().await;
        } else if self.claims.confirmed_at() != confirmed_at {
            // The read has confirmed the renewal of the node's own record only.
            self.renew_shards(self.claims.shard_renewals()).await;
        }
        let mut has_conflict = false;
        for change in self.claims.decide_changes(self.now()) {
            let result = self.write_change(change).await;
            has_conflict |= matches!(result, Err(RecordError::Conflict));
        }
        if has_conflict {
            self.read_records().await?;
        }
        Ok(())
    }

    /// Passes what the server has reported of its shards to the claims.
    fn note_progress(&mut self) {
        let claim_ends = self.claim_ends.iter();
        let complete = claim_ends.map(|claim_end| claim_end.progress.is_complete());
        self.claims.note_complete(complete);
        let mut claim_ends = self.claim_ends.iter();
        if claim_ends.any(|claim_end| claim_end.progress.copy_progress().is_some()) {
            self.claims.note_copy();
        }
        let claim_ends = self.claim_ends.iter();
        let failures = claim_ends
            .filter_map(|claim_end| Some((claim_end.shard, claim_end.progress.failure()?)));
        self.claims.note_failures(failures.collect());
    }

    /// Renews the node's record, and then those of its shards. Returns whether the revisions of all
    /// are known.
    async fn renew_record(&mut self) -> bool {
        if self.claims.is_forgotten() || !self.claims.may_renew() {
            return true;
        }
        let positions = self
            .claim_ends
            .iter()
            .map(|claim_end| claim_end.progress.position())
            .collect();
        let sent = self.now();
        let (record, revision) = self.claims.begin_renewal(sent, positions);
        let changes = self.claims.shard_renewals();
        let key = node_key(&record.name);
        // The renewals of shards are sent right behind it, without waiting for the response.
        let write = self.write_record(&key, encode_record(&record), revision);
        let (own_result, shard_results) = tokio::join!(biased; write, self.write_all(&changes));
        let is_current = match own_result {
            Ok(revision) => {
                self.claims.note_renewal(sent, revision);
                true
            }
            Err(RecordError::Conflict) => false,
            Err(RecordError::Unavailable(why)) => {
                self.note_problem(why);
                true
            }
        };
        let are_current = self.note_results(changes, shard_results);
        self.renew_leases();
        is_current && are_current
    }

    /// Renews the records of what the node owns, all at once. Returns whether their revisions are
    /// known.
    async fn renew_shards(&mut self, changes: Vec<OwnershipChange>) -> bool {
        let results = self.write_all(&changes).await;
        let are_current = self.note_results(changes, results);
        self.renew_leases();
        are_current
    }

    async fn write_all(&self, changes: &[OwnershipChange]) -> Vec<Result<u64, RecordError>> {
        let writes = changes.iter().map(|change| async {
            self.write_record(
                &shard_key(change.shard),
                encode_record(&change.record),
                change.revision,
            )
            .await
        });
        futures_util::future::join_all(writes).await
    }

    /// Notes the results of renewals. Returns whether the revisions of all records are known.
    fn note_results(
        &mut self,
        changes: Vec<OwnershipChange>,
        results: Vec<Result<u64, RecordError>>,
    ) -> bool {
        let mut is_current = true;
        for (change, result) in changes.into_iter().zip(results) {
            match result {
                Ok(revision) => self
                    .claims
                    .note_change(change, revision, self.began.elapsed()),
                Err(error) => is_current &= error != RecordError::Conflict,
            }
        }
        is_current
    }

    /// Reads the records. Returns whether the read counts.
    async fn read_records(&mut self) -> Result<bool, ReadProblem> {
        let was_forgotten = self.claims.is_forgotten();
        let mut tries = STALE_TRIES;
        let outcome = loop {
            let stored = match self.call_store(self.store.read()).await {
                Ok(stored) => stored,
                Err(error) => {
                    self.note_problem(error.to_string());
                    return Ok(false);
                }
            };
            match self.claims.record_read(self.now(), &stored) {
                // The server that responded has not the last renewal yet.
                Err(ReadProblem::Stale) if tries > 0 => {
                    tries -= 1;
                    sleep(STALE_PAUSE).await;
                }
                outcome => break outcome,
            }
        };
        match outcome {
            Ok(()) => {
                self.compare_settings();
                if self.claims.is_forgotten() && !was_forgotten {
                    tracing::warn!(
                        "an operator has removed the record of this node: it joins again once it \
                         has caught up"
                    );
                    for claim_end in &self.claim_ends {
                        // An owner has all that the changelog has.
                        if matches!(self.claims.role_for(claim_end.shard), ShardRole::Standby(_)) {
                            claim_end.progress.note_doubt();
                        }
                    }
                }
                self.found_owners.clear();
                Ok(true)
            }
            Err(ReadProblem::Stale) => {
                self.note_problem("the records that were read are old".to_owned());
                Ok(false)
            }
            Err(ReadProblem::NameTaken) => Err(ReadProblem::NameTaken),
        }
    }

    /// Logs settings that differ from those of another node, each once.
    fn compare_settings(&mut self) {
        let differences = self
            .claims
            .records()
            .setting_differences(&self.claims.settings().me, &self.claims.alive_nodes());
        for SettingDifference {
            node,
            setting,
            here,
            there,
        } in differences.difference(&self.differences)
        {
            tracing::warn!(
                setting,
                here,
                node,
                there,
                "a node has another value of a setting that all nodes share"
            );
        }
        if differences.is_empty() && !self.differences.is_empty() {
            tracing::info!("all living nodes have the same settings again");
        }
        self.differences = differences;
    }

    async fn write_record(
        &self,
        key: &str,
        value: Bytes,
        revision: u64,
    ) -> Result<u64, RecordError> {
        self.call_store(self.store.write(key, value, revision))
            .await
    }

    /// Waits for a call to the store of the records, no longer than its limit.
    async fn call_store<T>(
        &self,
        call: impl Future<Output = Result<T, RecordError>>,
    ) -> Result<T, RecordError> {
        let sent = Instant::now();
        let Ok(response) = timeout(self.limit.get(), call).await else {
            self.limit.note_timeout();
            let why = "no response came in time".to_owned();
            return Err(RecordError::Unavailable(why));
        };
        self.limit.note_response(sent.elapsed());
        response
    }

    /// Makes a change, also if the owner renews its record meanwhile and the change may be made
    /// nevertheless.
    async fn write_change(&mut self, mut change: OwnershipChange) -> Result<(), RecordError> {
        for _ in 0..CHANGE_TRIES {
            let result = self
                .write_record(
                    &shard_key(change.shard),
                    encode_record(&change.record),
                    change.revision,
                )
                .await;
            match result {
                Ok(revision) => {
                    self.claims
                        .note_change(change, revision, self.began.elapsed());
                    return Ok(());
                }
                Err(RecordError::Conflict) if change.insists.is_some() => {
                    if self.read_records().await != Ok(true) {
                        return Err(RecordError::Conflict);
                    }
                    change = self
                        .claims
                        .retry_change(change)
                        .ok_or(RecordError::Conflict)?;
                }
                Err(error) => return Err(error),
            }
        }
        Err(RecordError::Conflict)
    }

    /// Notes that the server has given a claim up.
    fn note_given_up(&mut self, index: usize, lease: &Lease, why: GivenUp) {
        let claim_end = &self.claim_ends[index];
        // A claim that was lost before needs no release.
        let Some(claim) =
            self.published_claims[index].filter(|_| claim_end.role.borrow().is_of(lease))
        else {
            return;
        };
        let pause = (why == GivenUp::Failed).then_some(FAILED_SHARD_PAUSE);
        self.claims
            .give_up(claim_end.shard, claim, pause, self.began.elapsed());
    }

    fn note_problem(&mut self, why: String) {
        if self.problem.is_none() {
            tracing::warn!(error = why, "the records of the cluster cannot be used");
        }
        self.problem = Some(why);
    }

    /// Publishes the role of this node for each shard to the server, and the snapshot of the cluster.
    fn publish_roles(&mut self) {
        for index in 0..self.claim_ends.len() {
            self.publish_limits(index);
            if let Some(role) = self.change_role(index) {
                self.claim_ends[index].role.send_replace(role);
            }
        }
        self.renew_leases();
        let leased = self.claim_ends.iter().filter(|claim_end| {
            let role = claim_end.role.borrow();
            role.lease().is_some_and(Lease::may_act)
        });
        let snapshot = ClusterSnapshot {
            leased: leased.map(|claim_end| claim_end.shard).collect(),
            end: None,
            me: Some(self.claims.settings().me.clone()),
            records: self.claims.records().clone(),
            alive: self.claims.alive_nodes(),
            takeovers: self.takeovers,
            read: if self.problem.is_none() {
                Some(Instant::now())
            } else {
                self.snapshot.borrow().read
            },
            problem: self.problem.clone(),
        };
        self.snapshot.send_replace(snapshot);
    }

    /// Publishes up to where the server may trim the changelog of a shard, and in which format it
    /// may write.
    fn publish_limits(&self, index: usize) {
        let MemberEnd {
            shard, progress, ..
        } = &self.claim_ends[index];
        progress
            .trimmable
            .store(self.claims.trimmable_through(*shard), Ordering::Release);
        progress
            .trimmable_if_large
            .store(self.claims.trimmable_if_large(*shard), Ordering::Release);
        progress.note_known_marks(self.claims.known_marks(*shard));
        progress
            .format
            .store(self.claims.common_format(), Ordering::Release);
    }

    /// The new role for a shard, if the claims changed it. Ends the lease of a claim that is lost.
    fn change_role(&mut self, index: usize) -> Option<Role> {
        let MemberEnd { shard, role, .. } = &self.claim_ends[index];
        let published_claim = &mut self.published_claims[index];
        let shard_role = match self.found_owners.get(shard) {
            Some(owner) => ShardRole::Standby(Some(owner.clone())),
            None => self.claims.role_for(*shard),
        };
        let current_role = role.borrow().clone();
        match (shard_role, current_role) {
            (ShardRole::Owner { claim, draining }, current_role)
                if *published_claim == Some(claim) =>
            {
                match (draining, current_role) {
                    (false, Role::Draining(lease)) => Some(Role::Owner(lease)),
                    (true, Role::Owner(lease)) => Some(Role::Draining(lease)),
                    _ => None,
                }
            }
            (ShardRole::Owner { claim, draining }, current_role) => {
                end_lease(&current_role);
                *published_claim = Some(claim);
                self.takeovers += 1;
                tracing::info!(shard, claim, "the shard is claimed");
                let lease = Lease::new_unrenewed();
                Some(if draining {
                    Role::Draining(lease)
                } else {
                    Role::Owner(lease)
                })
            }
            (ShardRole::Standby(owner), Role::Standby { owner: known_owner }) => {
                (owner != known_owner).then_some(Role::Standby { owner })
            }
            (ShardRole::Standby(owner), current_role) => {
                end_lease(&current_role);
                *published_claim = None;
                tracing::info!(shard, "the shard is owned no longer");
                Some(Role::Standby { owner })
            }
        }
    }

    /// Moves the ends of the leases of what the node owns.
    fn renew_leases(&self) {
        let now = self.now();
        for (claim_end, published_claim) in self.claim_ends.iter().zip(&self.published_claims) {
            let claim = match self.claims.role_for(claim_end.shard) {
                ShardRole::Owner { claim, .. } => Some(claim),
                ShardRole::Standby(_) => None,
            };
            if claim.is_none() || claim != *published_claim {
                continue;
            }
            let until = self.claims.acts_until(claim_end.shard, now);
            if let (Some(until), Role::Owner(lease) | Role::Draining(lease)) =
                (until, &*claim_end.role.borrow())
            {
                lease.renew_until(self.began + until);
            }
        }
    }

    /// Publishes the end of the membership in the last snapshot.
    fn record_end(&self, end: MembershipEnd) -> MembershipEnd {
        self.snapshot
            .send_modify(|snapshot| snapshot.end = Some(end));
        end
    }

    /// Whether the records could not be read for so long that other nodes may have taken what this
    /// one owned.
    fn is_cut_off(&self) -> bool {
        let read = self.snapshot.borrow().read;
        let expiry = self.claims.settings().intervals.expiry();
        self.problem.is_some() && read.is_some_and(|read| read.elapsed() >= expiry)
    }

    fn end_leases(&self) {
        for claim_end in &self.claim_ends {
            end_lease(&claim_end.role.borrow());
            claim_end.role.send_replace(Role::Standby { owner: None });
        }
    }
}

fn end_lease(role: &Role) {
    if let Role::Owner(lease) | Role::Draining(lease) = role {
        lease.end_for_good();
    }
}

/// Waits until the server gives a claim up. The number is the index of its shard.
async fn wait_until_given_up(claim_ends: &mut [MemberEnd]) -> (usize, Lease, GivenUp) {
    let receivers = claim_ends.iter_mut().enumerate().map(|(index, claim_end)| {
        Box::pin(async move {
            match claim_end.given_up.recv().await {
                Some((lease, why)) => (index, lease, why),
                None => pending().await,
            }
        })
    });
    futures_util::future::select_all(receivers).await.0
}
