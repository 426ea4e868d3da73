//! What a node learns of the others without the records: that the process of an owner has ended, and
//! which node owns a shard while the records cannot be read.

use std::{
    collections::BTreeMap,
    future::{Future, pending},
    io,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    net::TcpStream,
    time::{sleep, timeout},
};

use super::Member;
use crate::{NodeAddress, Role, balance::NodeId, claim::ClaimSettings, records::RecordStore};

/// The pause between two attempts to connect to an owner.
const CONNECT_PAUSE: Duration = Duration::from_millis(50);

/// The pause after a handshake with an owner has failed.
const HANDSHAKE_PAUSE: Duration = Duration::from_secs(1);

/// Proves to the node at an address that the connection is one of its cluster, so that the node
/// keeps it open. With the number of a shard, only the owner of the shard completes it.
pub type OwnerHandshake = Arc<
    dyn Fn(TcpStream, String, Option<usize>) -> BoxFuture<'static, io::Result<OwnerConnection>>
        + Send
        + Sync,
>;

/// A connection to a node, which ends with the node's process.
pub type OwnerConnection = Box<dyn AsyncRead + Send + Unpin>;

/// A connection to each other node that owns a shard.
pub(super) type OwnerWatches =
    BTreeMap<NodeId, (NodeAddress, Pin<Box<dyn Future<Output = ()> + Send>>)>;

impl<S: RecordStore> Member<S> {
    /// Finds the owners of shards by handshakes with the other nodes: only an owner completes one. An
    /// owner that the records do not name has taken over since they were read.
    pub(super) async fn find_owners(&mut self) {
        let limit = self.claims.settings().intervals.renewal();
        let candidates = self.claims.other_owners();
        let handshakes = candidates.iter().map(|(shard, node)| async {
            let handshake = async {
                let connection = TcpStream::connect(&node.address).await?;
                (self.handshake)(connection, node.address.clone(), Some(*shard)).await
            };
            matches!(timeout(limit, handshake).await, Ok(Ok(_)))
        });
        let results = futures_util::future::join_all(handshakes).await;
        self.found_owners.clear();
        for ((shard, node), is_owner) in candidates.into_iter().zip(results) {
            if is_owner {
                self.found_owners.insert(shard, node);
            }
        }
    }

    /// Finds out whether a process that had the name of this node still runs.
    pub(super) async fn look_for_namesake(&mut self) {
        let Some(namesake) = self.claims.namesake() else {
            return;
        };
        let ClaimSettings {
            address,
            is_address_bound,
            intervals,
            ..
        } = self.claims.settings();
        // Only this process listens at its own address.
        if *is_address_bound && *address == namesake.address
            || refuses(&namesake.address, intervals.renewal()).await
        {
            self.claims.note_gone(&namesake.id);
        }
    }

    /// Watches the other nodes that own a shard.
    pub(super) fn watch_owners(&self, watches: &mut OwnerWatches) {
        let mut owners = BTreeMap::new();
        for claim_end in &self.claim_ends {
            if let Role::Standby { owner: Some(owner) } = &*claim_end.role.borrow() {
                owners
                    .entry(owner.id.clone())
                    .or_insert_with(|| owner.clone());
            }
        }
        watches.retain(|node, (owner, _)| owners.get(node) == Some(owner));
        for (node, owner) in owners {
            watches.entry(node).or_insert_with(|| {
                let closed =
                    wait_until_closed(owner.address.clone(), Arc::clone(&self.handshake), false);
                (owner, Box::pin(closed))
            });
        }
    }

    /// Whether the process of an owner has ended, as far as can be seen from here. Called when its
    /// connection has ended.
    pub(super) async fn has_ended(&mut self, owner: &NodeAddress) -> bool {
        // This limit keeps renewals in time if the address does not respond.
        let interval = self.claims.settings().intervals.renewal();
        let refuses = refuses(&owner.address, interval).await;
        if !refuses {
            sleep(CONNECT_PAUSE).await;
        }
        // A renewal that was under way may have come after the last read.
        let has_ended = refuses && self.read_records().await == Ok(true);
        if has_ended {
            tracing::info!(
                node = owner.id.0,
                address = owner.address,
                "the process of the owner has ended"
            );
            self.claims.note_gone(&owner.id);
        }
        has_ended
    }
}

/// Whether nothing listens at an address, as far as can be seen from here.
async fn refuses(address: &str, limit: Duration) -> bool {
    let connection = timeout(limit, TcpStream::connect(address)).await;
    matches!(connection, Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused)
}

/// Waits until one of the connections to owners has ended, and returns which.
pub(super) async fn wait_until_any_closed(watches: &mut OwnerWatches) -> NodeId {
    if watches.is_empty() {
        return pending().await;
    }
    let closures = watches.iter_mut().map(|(node, (_, closure))| {
        Box::pin(async move {
            closure.await;
            node.clone()
        })
    });
    futures_util::future::select_all(closures).await.0
}

/// Waits until a connection to `address` was made and has ended. With `was_open`, an earlier one has
/// ended, and it is not known whether the process has. A process may close its listener later than
/// its connections, so a refusal then counts as its end.
pub(super) async fn wait_until_closed(address: String, handshake: OwnerHandshake, was_open: bool) {
    let connection = loop {
        match TcpStream::connect(&address).await {
            Ok(connection) => break connection,
            Err(error) => {
                sleep(CONNECT_PAUSE).await;
                if was_open && error.kind() == io::ErrorKind::ConnectionRefused {
                    return;
                }
            }
        }
    };
    let Ok(mut connection) = handshake(connection, address, None).await else {
        return sleep(HANDSHAKE_PAUSE).await;
    };
    let mut unread = [0; 256];
    while connection
        .read(&mut unread)
        .await
        .is_ok_and(|read| read > 0)
    {}
}
