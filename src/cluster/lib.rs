//! Sharing shards among the nodes of a cluster: who is alive (`lease`), and which shard a node takes
//! or gives up (`balance`). Every node has a copy of each shard.
//!
//! Both are pure: what a node has read and the time are arguments. [`ShardClaim`] and
//! [`MemberEnd`] are the two ends of a channel: the member ([`member::Member`]) reads and writes the
//! records of the cluster and says which [`Role`] this node has for a shard; the server holds the claim and
//! serves.
//!
//! These rules decide who *should* own a shard. That no two nodes ever write to one is the fence of
//! its changelog (`journal::changelog`), whatever is decided here.

pub mod balance;
pub mod claim;
pub mod lease;
mod marks;
pub mod member;
pub mod membership;
#[cfg(feature = "nats")]
pub mod nats;
pub mod records;

use std::{
    hash::Hasher as _,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use siphasher::sip::SipHasher13;
use tokio::sync::{mpsc, watch};

use self::{
    balance::NodeId,
    records::{CopyProgress, ShardPosition},
};
use gridhook_clock::Lease;
use gridhook_journal::changelog::{KnownMarks, StreamMark};

/// The shard, of `shards`, that a topic, domain or namespace of the resource group belongs to, and
/// everything within it. Names differ in more than their case. All releases must agree: a cluster
/// keeps its shards for ever.
pub fn shard_of(name: &str, shards: usize) -> usize {
    let mut hasher = SipHasher13::new();
    hasher.write(name.to_ascii_lowercase().as_bytes());
    let shards = shards.max(1) as u64;
    usize::try_from(hasher.finish() % shards).expect("less than a number of shards")
}

/// The number of the control plane's shard in a cluster with `all` shards, if it has one of its
/// own.
pub fn control_of(all: usize) -> Option<usize> {
    all.checked_sub(1).filter(|last| *last > 0)
}

/// The name of the bucket with the records of a cluster.
pub fn bucket_name(cluster: &str) -> String {
    format!("GH_{cluster}")
}

/// The name of the stream with the changelog of a shard, one of `all` with the control plane.
pub fn stream_name(cluster: &str, shard: usize, all: usize) -> String {
    if control_of(all) == Some(shard) {
        format!("GH_{cluster}_control")
    } else {
        format!("GH_{cluster}_{shard}")
    }
}

/// A node, and how other nodes reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAddress {
    /// The identifier of the node, unique to one start of its process.
    pub id: NodeId,
    /// Host and port of the node's listener for other nodes.
    pub address: String,
}

/// The role of this node for a shard.
#[derive(Clone, Debug)]
pub enum Role {
    /// The node follows the changelog, and forwards requests to the owner, if there is one.
    Standby { owner: Option<NodeAddress> },
    /// The node has the claim: it fences the changelog and serves. A new claim of the same node has
    /// a new lease.
    Owner(Lease),
    /// It has the claim and must give it up: it finishes what is in flight, and then calls
    /// [`ShardClaim::give_up`]. This role may follow that of a standby directly.
    Draining(Lease),
}

impl Role {
    /// The lease of the claim that this node has and the server has not given up.
    pub fn lease(&self) -> Option<&Lease> {
        match self {
            Self::Owner(lease) | Self::Draining(lease) => {
                Some(lease).filter(|lease| !lease.is_over())
            }
            Self::Standby { .. } => None,
        }
    }

    /// Whether this is the role of the claim with this lease.
    pub fn is_of(&self, claim: &Lease) -> bool {
        match self {
            Self::Owner(lease) | Self::Draining(lease) => lease.is_same(claim),
            Self::Standby { .. } => false,
        }
    }
}

/// What the server and the member report to each other about a shard.
#[derive(Debug, Default)]
pub struct ShardProgress {
    /// What this node reports to the others. Written by the server.
    reported: Mutex<ShardPosition>,
    /// The last sequence that the local store has synced. Written by the server.
    pub flushed: AtomicU64,
    /// The sequence up to which the changelog may be trimmed, as far as all nodes are concerned
    /// (`ClusterRecords::trimmable_through`). Written by the member; 0 while it is not known.
    pub trimmable: AtomicU64,
    /// The sequence up to which the changelog may be trimmed once it is large
    /// (`ClusterRecords::trimmable_if_large`). Written by the member; 0 while it is not known.
    pub trimmable_if_large: AtomicU64,
    /// The newest format of records that all living nodes read. Written by the member.
    pub format: AtomicU8,
    /// Whether the local store has applied all that the changelog had: once, or since an operator
    /// removed the record of the node. Written by the server; the member takes it back.
    is_complete: AtomicBool,
    /// The known marks: records that the changelog has acknowledged, as far as any node knows.
    /// Written by the member.
    known_marks: Mutex<KnownMarks>,
    /// Why this node cannot serve the shard before an operator has acted. Written by the server.
    failure: Mutex<Option<String>>,
}

impl ShardProgress {
    /// Records the time and the epoch of an owner's clock: of this process, or of an earlier one of
    /// this node.
    pub fn record_clock(&self, clock: ShardPosition) {
        let mut reported = self.reported.lock();
        reported.time = clock.time;
        reported.expiry_paused = clock.expiry_paused;
        reported.epoch = clock.epoch;
    }

    /// The position of this node in the shard, for its record.
    pub fn position(&self) -> ShardPosition {
        ShardPosition {
            flushed: self.flushed.load(Ordering::Acquire),
            ..*self.reported.lock()
        }
    }

    /// Records the position that the local store has applied.
    pub fn note_applied(&self, mark: StreamMark) {
        let mut reported = self.reported.lock();
        reported.applied = mark.position;
        reported.mark = mark;
    }

    /// Records the size of the changelog and the number of servers that it lacks, as its owner
    /// sees them.
    pub fn note_stream(&self, bytes: u64, missing_replicas: u64) {
        let mut reported = self.reported.lock();
        reported.stream_bytes = bytes;
        reported.missing_replicas = missing_replicas;
    }

    /// The known marks: records that the changelog has acknowledged, as far as any node knows.
    pub fn known_marks(&self) -> KnownMarks {
        *self.known_marks.lock()
    }

    /// Records what all nodes know of these records.
    pub fn note_known_marks(&self, marks: KnownMarks) {
        *self.known_marks.lock() = marks;
    }

    /// Why this node cannot serve the shard.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// Records why this node cannot serve the shard before an operator has acted, or that it can
    /// again. It claims no shard that has failed, and its copy does not count.
    pub fn note_failure(&self, failure: Option<String>) {
        if failure.is_some() {
            self.note_doubt();
        }
        *self.failure.lock() = failure;
    }

    /// Whether the local store is complete. Before, the node does not claim the shard.
    pub fn is_complete(&self) -> bool {
        self.is_complete.load(Ordering::Acquire)
    }

    /// Records that the local store is complete.
    pub fn note_complete(&self) {
        self.is_complete.store(true, Ordering::Release);
    }

    /// Records that the local store may lack something: it must apply all of the changelog again.
    pub fn note_doubt(&self) {
        self.is_complete.store(false, Ordering::Release);
    }

    /// The copy of the owner's store that this node fetches.
    pub fn copy_progress(&self) -> Option<CopyProgress> {
        self.reported.lock().copy
    }

    /// Records how much of the owner's store this node has fetched. It claims no shard meanwhile.
    pub fn note_copy(&self, copy: Option<CopyProgress>) {
        self.reported.lock().copy = copy;
    }
}

/// Why an owner gave a shard up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenUp {
    /// The owner has finished what was in flight and has released the changelog, on request or
    /// because it stops. One that has not begun to serve gives up at once; the next owner fences
    /// what it may have appended.
    Released,
    /// Another node has fenced the owner.
    Fenced,
    /// The owner cannot serve, so another node should try first.
    Failed,
}

/// The server's end of the claim of a shard.
pub struct ShardClaim {
    pub shard: usize,
    /// The role of this node for the shard. The sender is gone when the member has ended.
    pub role: watch::Receiver<Role>,
    /// State that both ends share: what the server reports, and what the member returns.
    pub progress: Arc<ShardProgress>,
    given_up: mpsc::UnboundedSender<(Lease, GivenUp)>,
}

impl ShardClaim {
    /// Gives up the claim with this lease, and ends the lease. The role is that of the claim no
    /// longer afterwards. A claim that was lost meanwhile is not given up again, nor a newer one in
    /// its place.
    pub fn give_up(&self, claim: &Lease, why: GivenUp) {
        claim.end_for_good();
        // A member that has ended writes no record any more, so the claim expires.
        self.given_up.send((claim.clone(), why)).ok();
    }
}

/// The member's end of the claim of a shard.
pub struct MemberEnd {
    pub shard: usize,
    /// The role of this node for the shard.
    pub role: watch::Sender<Role>,
    /// State that both ends share: what the server reports, and what the member returns.
    pub progress: Arc<ShardProgress>,
    /// The claims that the server has given up.
    pub given_up: mpsc::UnboundedReceiver<(Lease, GivenUp)>,
}

/// Makes both ends of the claim of a shard, as a standby of an unknown owner that is not complete.
pub fn shard_claim(shard: usize) -> (ShardClaim, MemberEnd) {
    let (role_sender, role) = watch::channel(Role::Standby { owner: None });
    let (given_up_sender, given_up) = mpsc::unbounded_channel();
    let progress: Arc<ShardProgress> = Arc::default();
    let claim = ShardClaim {
        shard,
        role,
        progress: Arc::clone(&progress),
        given_up: given_up_sender,
    };
    (
        claim,
        MemberEnd {
            shard,
            role: role_sender,
            progress,
            given_up,
        },
    )
}
