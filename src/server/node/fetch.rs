//! A node that cannot follow the changelog fetches the store of the owner: its next record was
//! removed.
//!
//! The owner makes a checkpoint and sends it over a connection between nodes (`router::owner`).
//! Once all of it has arrived and opens, it takes the place of the store here. The changelog is
//! kept from its position on, because the record of this node has that. Then the node follows as
//! any other.
//!
//! Invariants:
//! - Only a store that is new, or was found to follow this cluster's changelog before, is replaced.
//!   It is a prefix of the changelog, as that of the owner is, so nothing is lost with it.
//! - A store is fetched only if the changelog has the record behind it.

use std::{
    io::{self, Read},
    pin::Pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use bytes::Bytes;
use hyper::{
    Response, StatusCode,
    body::{Body as _, Incoming},
};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};

use super::{ClusterNode, FollowError, follow::StoppableLog, standing::NextStep};
use crate::{
    ServerError,
    forward::{ForwardTimes, Hops},
    front::hop::ListenerSide,
    io_error,
    local_store::LocalStore,
    router::owner::{STORE, node_request},
    shutdown::StopSignals,
};
use gridhook_cluster::{GivenUp, NodeAddress, Role, ShardProgress, records::CopyProgress};
use gridhook_journal::changelog::Changelog as _;
use gridhook_repair::backup::{self, SentStore, StoreReceiver, TransferError};

/// The longest time without a piece of the store.
const PIECE_WAIT: Duration = Duration::from_secs(30);

/// The limits of time of the request for the store, for which a connection is made each time.
const FETCH_TIMES: ForwardTimes = ForwardTimes {
    idle_max: Duration::ZERO,
    read_max: PIECE_WAIT,
};

/// The pause before a store is fetched again.
const FETCH_RETRY_PAUSE: Duration = Duration::from_secs(1);

/// The pieces that wait for the disk.
const PIECES_WAITING: usize = 4;

/// The maximum size of a refusal.
const REFUSAL_BYTES: usize = 4096;

/// Whether the store of the owner may replace this one, which cannot follow the changelog of the
/// cluster `id`.
pub(super) fn may_fetch(store: &LocalStore, id: &str, error: &FollowError) -> bool {
    match error {
        FollowError::Trimmed { applied: 0, .. } => true,
        FollowError::Trimmed { .. } => store.is_of_cluster(id),
        _ => false,
    }
}

/// How a fetch of a store ends.
#[derive(PartialEq, Eq)]
enum FetchEnd {
    /// A store has arrived.
    Arrived,
    /// The claims of this node have ended.
    ClaimsEnded,
    /// A signal stops the process.
    Signal,
}

impl ClusterNode {
    /// Replaces the store by a copy of the owner's.
    ///
    /// # Errors
    /// If the new store does not open, or the claims of this node have ended.
    pub(super) async fn replace_store(
        &self,
        error: &FollowError,
        signals: &mut StopSignals,
    ) -> Result<NextStep, ServerError> {
        let shard = self.claim.shard;
        tracing::warn!(shard, %error, "this node fetches a copy of the store from the owner");
        let progress = &self.claim.progress;
        progress.note_doubt();
        progress.note_copy(Some(CopyProgress::default()));
        let end = tokio::select! {
            biased;
            () = signals.wait_for_signal() => FetchEnd::Signal,
            end = self.fetch_store() => end,
        };
        if end == FetchEnd::Arrived {
            let store = Arc::clone(&self.store);
            let replacement = tokio::task::spawn_blocking(move || store.replace_store()).await;
            replacement
                .map_err(|error| io_error("opening the store")(io::Error::other(error)))??;
            self.process.cluster_context.copies.add(1);
            tracing::info!(shard, "the copy of the store is in place");
        }
        progress.note_copy(None);
        match end {
            FetchEnd::Signal => Ok(NextStep::Leave),
            FetchEnd::ClaimsEnded => self.leave_or_fail(signals).await,
            // The claims may have ended while the store was put in place.
            FetchEnd::Arrived if self.claim.role.has_changed().is_err() => {
                self.leave_or_fail(signals).await
            }
            FetchEnd::Arrived => Ok(NextStep::Follow),
        }
    }

    /// Fetches the store of the owner, whichever node that is, until one has arrived.
    async fn fetch_store(&self) -> FetchEnd {
        let mut role = self.claim.role.clone();
        let mut last_problem = String::new();
        loop {
            let current_role = role
                .wait_for(|role| !matches!(role, Role::Standby { owner: None }))
                .await;
            let owner = match current_role.map(|role| role.clone()) {
                Ok(Role::Standby { owner }) => owner,
                // The shard was claimed before it was known that it cannot be served.
                Ok(Role::Owner(lease) | Role::Draining(lease)) => {
                    self.claim.give_up(&lease, GivenUp::Failed);
                    None
                }
                Err(_) => return FetchEnd::ClaimsEnded,
            };
            if let Some(NodeAddress { address, .. }) = owner {
                let hops = Hops::new(
                    self.build_forwarder(FETCH_TIMES, None),
                    ListenerSide::Operators,
                );
                let lost = hops.forwarder().wait_until_lost(address.clone());
                let outcome = tokio::select! {
                    result = self.fetch_from(&hops, &address) => result,
                    () = lost => Err(broken_transfer("the owner has changed")),
                };
                let Err(error) = outcome else {
                    return FetchEnd::Arrived;
                };
                self.claim.progress.note_copy(Some(CopyProgress::default()));
                if last_problem != error.to_string() {
                    tracing::warn!(shard = self.claim.shard, address, %error, "the store was not \
                        fetched; trying again");
                }
                last_problem = error.to_string();
            }
            sleep(FETCH_RETRY_PAUSE).await;
        }
    }

    async fn fetch_from(&self, hops: &Hops<String>, address: &str) -> Result<(), TransferError> {
        let request = node_request("GET", STORE, String::new()).map_err(broken_transfer)?;
        let owner_response = hops
            .send_to_owner(request, PIECE_WAIT)
            .await
            .map_err(broken_transfer)?;
        // The connection stays open to the end.
        let response = owner_response.response;
        let status = response.status();
        if status != StatusCode::OK {
            let reason = read_refusal(response).await?;
            return Err(TransferError::Refused(format!(
                "the owner returned {status}: {reason}"
            )));
        }
        let (pieces, piece_receiver) = mpsc::channel(PIECES_WAITING);
        let store = Arc::clone(&self.store);
        let log = Arc::clone(&self.log);
        let progress = Arc::clone(&self.claim.progress);
        let receiving = tokio::task::spawn_blocking(move || {
            receive_store(&store, &log, &progress, piece_receiver)
        });
        let result = send_pieces(response, pieces).await;
        let sent_store = receiving.await.map_err(broken_transfer)?;
        // An error of the receiver says more than the end of the connection.
        match (result, sent_store) {
            (_, Err(error)) => Err(error),
            (Err(error), Ok(_)) => Err(TransferError::Early(error)),
            (Ok(()), Ok(sent)) => {
                let shard = self.claim.shard;
                tracing::info!(
                    shard,
                    address,
                    applied = sent.applied,
                    bytes = sent.total_bytes(),
                    "the store has arrived"
                );
                Ok(())
            }
        }
    }
}

fn broken_transfer(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> TransferError {
    TransferError::Early(io::Error::other(why))
}

/// Sends the pieces of a body to the receiver, until it stops.
async fn send_pieces(response: Response<Incoming>, pieces: mpsc::Sender<Bytes>) -> io::Result<()> {
    let mut body = response.into_body();
    while let Some(piece) = next_piece(&mut body).await? {
        if pieces.send(piece).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

async fn next_piece(body: &mut Incoming) -> io::Result<Option<Bytes>> {
    loop {
        let frame = timeout(
            PIECE_WAIT,
            std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)),
        )
        .await;
        match frame
            .map_err(|_| io::Error::other("nothing more came"))?
            .transpose()
            .map_err(io::Error::other)?
        {
            None => return Ok(None),
            Some(frame) => {
                if let Ok(piece) = frame.into_data() {
                    return Ok(Some(piece));
                }
            }
        }
    }
}

async fn read_refusal(response: Response<Incoming>) -> Result<String, TransferError> {
    let mut body = response.into_body();
    let mut text = Vec::new();
    while let Some(piece) = next_piece(&mut body).await.map_err(TransferError::Early)? {
        text.extend_from_slice(&piece);
        if text.len() >= REFUSAL_BYTES {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Receives a store that the changelog has the next record of. Blocks.
fn receive_store(
    store: &LocalStore,
    log: &StoppableLog,
    progress: &ShardProgress,
    pieces: mpsc::Receiver<Bytes>,
) -> Result<SentStore, TransferError> {
    let mut reader = PieceReader {
        pieces,
        piece: Bytes::new(),
    };
    let mut receiver = FollowableStore {
        log,
        progress,
        bytes: 0,
    };
    let _turn = store.lock_arrival();
    backup::receive_store(
        store.data_dir(),
        &mut reader,
        store.options(),
        &mut receiver,
    )
}

/// A store that arrives, as long as the changelog has the next record of it.
struct FollowableStore<'a> {
    log: &'a StoppableLog,
    progress: &'a ShardProgress,
    /// The bytes of all its files.
    bytes: u64,
}

impl FollowableStore<'_> {
    fn note_received(&self, received: u64) {
        self.progress.note_copy(Some(CopyProgress {
            received,
            bytes: self.bytes,
        }));
    }
}

impl StoreReceiver for FollowableStore<'_> {
    fn begin(&mut self, sent: &SentStore) -> Result<(), TransferError> {
        // From here on the changelog is kept for it.
        self.progress.flushed.store(sent.applied, Ordering::Release);
        self.bytes = sent.total_bytes();
        self.note_received(0);
        check_log_follows(self.log, sent.applied)
    }

    fn note_arrived(&mut self, bytes: u64) {
        self.note_received(bytes);
    }

    fn accept(&mut self, sent: &SentStore) -> Result<(), TransferError> {
        // The log may have been trimmed before the owner has seen the position.
        check_log_follows(self.log, sent.applied)
    }
}

/// Checks that the changelog still has what follows a store that has applied records up to
/// `applied`.
fn check_log_follows(log: &StoppableLog, applied: u64) -> Result<(), TransferError> {
    match log.bounds() {
        Ok(bounds) if bounds.first > applied + 1 => Err(TransferError::Refused(format!(
            "the store of the owner has applied records up to {applied}, and the changelog begins \
             at {} now",
            bounds.first
        ))),
        Ok(_) => Ok(()),
        Err(error) => Err(TransferError::Refused(error.to_string())),
    }
}

/// Reads the pieces that arrive.
struct PieceReader {
    pieces: mpsc::Receiver<Bytes>,
    piece: Bytes,
}

impl Read for PieceReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.piece.is_empty() {
            let Some(piece) = self.pieces.blocking_recv() else {
                return Ok(0);
            };
            self.piece = piece;
        }
        let read = self.piece.len().min(buffer.len());
        buffer[..read].copy_from_slice(&self.piece.split_to(read));
        Ok(read)
    }
}
