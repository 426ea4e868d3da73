//! The handle on a node's part in its cluster: how the node sees the cluster, and the requests that
//! an operator may make.

use std::collections::BTreeSet;

use tokio::{
    sync::{mpsc, oneshot, watch},
    time::Instant,
};

use super::{
    balance::NodeId,
    records::{ClusterRecords, RecordError},
};

/// The cluster as one of its nodes sees it.
#[derive(Clone, Debug, Default)]
pub struct ClusterSnapshot {
    /// The node that sees the cluster.
    pub me: Option<NodeId>,
    pub records: ClusterRecords,
    pub alive: BTreeSet<NodeId>,
    /// Number of times that this node has become the owner of a shard.
    pub takeovers: u64,
    /// The time of the last read of the records; [`None`] before the first one.
    pub read: Option<Instant>,
    /// Why the records could not be read since then.
    pub problem: Option<String>,
    /// The shards for which this node has a current lease.
    pub leased: BTreeSet<usize>,
    pub end: Option<MembershipEnd>,
}

/// Why a request of an operator failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("there is no shard {shard}; expected 0 to {last}")]
    Shard { shard: usize, last: usize },
    /// No node of this name is alive.
    #[error("no node {0} is alive; alive are {1}")]
    NotAlive(String, String),
    #[error("no node {0} has a record; the nodes are {1}")]
    NoRecord(String, String),
    /// The node takes no shard.
    #[error("the node {0} gives everything up; end that with drain --end, or name another node")]
    Leaving(String),
    #[error(
        "the node {0} has not caught up with the changelog yet; wait until cluster status shows it \
         as standby"
    )]
    CatchingUp(String),
    /// The node is no node that is gone for good.
    #[error(
        "the node {0} is alive, or was a moment ago; stop it, wait for cluster.expiry, and try \
         again"
    )]
    Alive(String),
    /// The record of the node is of a newer release.
    #[error("the record of the node {0} cannot be read by this release; ask a node of a newer one")]
    Unreadable(String),
    /// The records could not be read or written.
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("the node is stopping")]
    Stopping,
}

/// Why a node has left its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MembershipEnd {
    /// Its process stops.
    Left,
    /// Another process has the name of the node: one that started later, or one that ran before
    /// this one.
    NameTaken,
}

/// Where the result of a request goes.
pub(super) type Reply = oneshot::Sender<Result<(), RequestError>>;

/// A request to the member.
pub(super) enum Command {
    Leave,
    Move {
        shard: usize,
        node: String,
        reply: Reply,
    },
    Drain {
        node: String,
        /// Whether the node is to be drained, or takes shards again.
        drained: bool,
        reply: Reply,
    },
    Forget {
        node: String,
        reply: Reply,
    },
}

/// A handle on the `Member` of this process. Clones refer to the same one.
#[derive(Clone)]
pub struct Membership {
    /// The cluster as the node sees it.
    pub snapshot: watch::Receiver<ClusterSnapshot>,
    pub(super) commands: mpsc::UnboundedSender<Command>,
}

impl Membership {
    /// Takes no shard any more, gives up what the node has once the server has given it up, and
    /// ends.
    pub fn begin_leave(&self) {
        // One that has ended has left.
        self.commands.send(Command::Leave).ok();
    }

    /// Requests that the owner of a shard gives it up to the node of this name.
    ///
    /// # Errors
    /// If there is no such shard or node, or the request was not written.
    pub async fn move_shard(&self, shard: usize, node: String) -> Result<(), RequestError> {
        self.send_request(|reply| Command::Move { shard, node, reply })
            .await
    }

    /// Requests that the node of this name gives everything up and takes nothing, or withdraws the
    /// request.
    ///
    /// # Errors
    /// If no node has this name, or the request was not written.
    pub async fn drain_node(&self, node: String, drained: bool) -> Result<(), RequestError> {
        self.send_request(|reply| Command::Drain {
            node,
            drained,
            reply,
        })
        .await
    }

    /// Removes the record of a node that is gone for good: the changelog keeps nothing for it any
    /// more.
    ///
    /// # Errors
    /// If no node has this name, if the node is alive, or if the record was not removed.
    pub async fn forget_node(&self, node: String) -> Result<(), RequestError> {
        self.send_request(|reply| Command::Forget { node, reply })
            .await
    }

    async fn send_request(
        &self,
        command: impl FnOnce(Reply) -> Command,
    ) -> Result<(), RequestError> {
        let (reply_sender, reply) = oneshot::channel();
        self.commands
            .send(command(reply_sender))
            .map_err(|_| RequestError::Stopping)?;
        reply.await.map_err(|_| RequestError::Stopping)?
    }
}
