//! A node that should have no copy of a shard: it removes the one that it has, and waits until it
//! should have one again.
//!
//! What stays is an empty store. With that it begins to follow again, from a copy of the owner's
//! store if the changelog was trimmed, as a new node does.
//!
//! Invariants:
//! - The driver learns that the copy is no more before anything of it is removed.
//! - Only a store that was found to follow this cluster's changelog is removed.

use std::{
    io,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use super::{ClusterError, ClusterNode, wait_for_claim};
use crate::{ServerError, io_error, shutdown::StopSignals};
use gridhook_cluster::{GivenUp, copies::HeldCopy, membership::MembershipEnd};

/// The pause before a store that could not be removed is tried again.
const AGAIN_PAUSE: Duration = Duration::from_secs(5);

/// How long the signal that ends a process may be on its way to each of its shards.
const SIGNAL_WAIT: Duration = Duration::from_secs(1);

/// Returns once this node should have no copy of the shard.
pub(super) async fn wait_until_unwanted(mut keeps: watch::Receiver<bool>) {
    if keeps.wait_for(|keeps| !keeps).await.is_err() {
        // The driver has ended, and with it the claims.
        std::future::pending::<()>().await;
    }
}

impl ClusterNode {
    /// Waits as long as this node should have no copy of the shard, and removes the one that it
    /// has. Returns false if a signal stops the process.
    ///
    /// # Errors
    /// If the copy is not removed, or the claims of this node have ended.
    pub(super) async fn wait_without_copy(
        &self,
        signals: &mut StopSignals,
    ) -> Result<bool, ServerError> {
        let mut keeps = self.claim.keeps.clone();
        if *keeps.borrow() {
            return Ok(true);
        }
        let had_one = self.claim.progress.held_copy() != HeldCopy::None;
        self.claim.progress.note_held(HeldCopy::None);
        self.claim.progress.note_failure(None);
        let mut role = self.claim.role.clone();
        let mut removes = had_one;
        loop {
            if removes {
                removes = !self.remove_copy().await?;
            }
            tokio::select! {
                biased;
                () = signals.wait_for_signal() => return Ok(false),
                kept = keeps.wait_for(|keeps| *keeps) => {
                    return if kept.is_ok() { Ok(true) } else { self.stop_or_fail(signals).await };
                }
                lease = wait_for_claim(&mut role) => match lease {
                    // Nothing can be served with an empty store.
                    Some(lease) => self.give_claim_up(&lease, GivenUp::Failed).await,
                    None => return self.stop_or_fail(signals).await,
                },
                () = sleep(AGAIN_PAUSE), if removes => {}
            }
        }
    }

    /// Returns false if the store is not removed yet.
    async fn remove_copy(&self) -> Result<bool, ServerError> {
        let shard = self.claim.shard;
        let progress = &self.claim.progress;
        if !self.store.is_of_cluster(&self.id) {
            let folder = self.store.data_dir().display();
            tracing::warn!(shard, %folder, "the store is not known to be of this cluster, so it is \
                not removed");
            return Ok(true);
        }
        let store = Arc::clone(&self.store);
        let outcome = tokio::task::spawn_blocking(move || store.clear()).await;
        let is_removed =
            outcome.map_err(|error| io_error("removing the store")(io::Error::other(error)))??;
        if is_removed {
            progress.applied.store(0, Ordering::Release);
            progress.flushed.store(0, Ordering::Release);
            tracing::info!(
                shard,
                "other nodes have the copies of the shard, so the one of this node was removed"
            );
        }
        Ok(is_removed)
    }
}

impl ClusterNode {
    /// What follows from the end of the claims: all end with the first shard of a process that
    /// stops, whose signal reaches the others at the same time. Returns false if it does.
    ///
    /// # Errors
    /// If no signal comes.
    pub(super) async fn stop_or_fail(
        &self,
        signals: &mut StopSignals,
    ) -> Result<bool, ServerError> {
        if timeout(SIGNAL_WAIT, signals.wait_for_signal())
            .await
            .is_ok()
        {
            return Ok(false);
        }
        let end = self.membership.snapshot.borrow().end;
        Err(match end {
            Some(MembershipEnd::NameTaken) => ClusterError::NameTaken {
                node: self.name.clone(),
            },
            Some(MembershipEnd::Left) | None => {
                ClusterError::Engine("the claims of this node have ended".to_owned())
            }
        }
        .into())
    }
}
