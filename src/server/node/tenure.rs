//! One ownership: its lease, its replicated store, and how it ends.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::watch;

use super::SYNC_INTERVAL;
use crate::{
    cluster::{Lease, Role, ShardProgress},
    journal::{
        FatalHandler,
        changelog::Changelog,
        replicated::{OwnershipEnd, ReplicatedStore},
    },
    server::startup::exit_on_store_error,
    store::StoreError,
};

/// The interval between two trims of the changelog.
const TRIM_INTERVAL: Duration = Duration::from_secs(10);

/// How a tenure ends.
pub(in crate::server) enum TenureEnd {
    /// The node gives the shard up when requests in flight have finished.
    Asked,
    /// Another node owns the shard, or may soon.
    Lost,
}

/// One ownership.
pub(in crate::server) struct Tenure {
    pub(in crate::server) lease: Lease,
    pub(in crate::server) store: Arc<ReplicatedStore>,
    role: watch::Receiver<Role>,
    failed: Arc<watch::Sender<bool>>,
}

impl Tenure {
    pub(super) fn begin(lease: Lease, store: Arc<ReplicatedStore>, role: watch::Receiver<Role>) -> Self {
        Self { lease, store, role, failed: Arc::new(watch::Sender::new(false)) }
    }

    /// Called by the journal when nothing can be written any more. A failure of the local store ends the process, as it does
    /// without a cluster.
    pub(in crate::server) fn on_failure(&self) -> FatalHandler {
        let (lease, store, failed) = (self.lease.clone(), Arc::clone(&self.store), Arc::clone(&self.failed));
        Box::new(move |error: &StoreError| {
            lease.end();
            match store.ended() {
                None | Some(OwnershipEnd::Local(_)) => exit_on_store_error(error),
                Some(end) => tracing::warn!(reason = %end, "this node does not own the store any more"),
            }
            failed.send_replace(true);
        })
    }

    /// Returns when it ends.
    pub(in crate::server) async fn ended(&self) -> TenureEnd {
        let (mut role, mut failed) = (self.role.clone(), self.failed.subscribe());
        // A claim that was lost and won again is another one.
        let is_mine = |role: &Role| matches!(role, Role::Owner(_)) && !self.lease.is_over();
        let changed = role.wait_for(|role| !is_mine(role));
        tokio::select! {
            _ = failed.wait_for(|failed| *failed) => TenureEnd::Lost,
            role = changed => match role.map(|role| role.clone()) {
                Ok(Role::Draining(_)) => TenureEnd::Asked,
                Ok(_) | Err(_) => TenureEnd::Lost,
            },
        }
    }

    /// Whether it has ended, and not by a failure of the local store.
    pub(in crate::server) fn is_lost(&self) -> bool {
        let end = self.store.ended();
        end.map_or_else(|| self.lease.is_over(), |end| !matches!(end, OwnershipEnd::Local(_)))
    }

    /// From now on nothing is sent or written.
    pub(in crate::server) fn fence(&self) {
        self.lease.end();
        self.store.stop();
    }

    /// Releases the changelog, so that the next owner need not wait. The journal must have ended.
    pub(in crate::server) async fn release(&self) {
        let store = Arc::clone(&self.store);
        let released = tokio::task::spawn_blocking(move || store.release());
        if tokio::time::timeout(SYNC_INTERVAL, released).await.is_err() {
            tracing::warn!("the changelog was not released; the next owner fences it");
            self.store.stop();
        }
        self.lease.end();
    }
}

/// Returns when a tenure ends: never, without one.
pub(in crate::server) async fn ended(tenure: Option<&Tenure>) -> TenureEnd {
    match tenure {
        Some(tenure) => tenure.ended().await,
        None => std::future::pending().await,
    }
}

/// Reports the positions of an owner, and trims the changelog.
pub(super) async fn report(
    progress: Arc<ShardProgress>,
    store: Arc<ReplicatedStore>,
    log: Arc<dyn Changelog>,
    keep_bytes: u64,
) {
    let rounds = TRIM_INTERVAL.as_secs() / SYNC_INTERVAL.as_secs();
    for round in 1.. {
        progress.applied.store(store.applied(), Ordering::Release);
        progress.flushed.store(store.flushed(), Ordering::Release);
        if store.ended().is_some() {
            return;
        }
        if round % rounds == 0 {
            trim(Arc::clone(&log), &progress, keep_bytes).await;
        }
        tokio::time::sleep(SYNC_INTERVAL).await;
    }
}

/// Trims the changelog below what all nodes have synced.
pub(super) async fn trim(log: Arc<dyn Changelog>, progress: &ShardProgress, keep_bytes: u64) {
    let synced = |position: &AtomicU64| position.load(Ordering::Acquire);
    let through = synced(&progress.flushed_by_all).min(synced(&progress.flushed));
    if through == 0 {
        return;
    }
    let trimmed = tokio::task::spawn_blocking(move || log.trim(through, keep_bytes)).await;
    if let Ok(Err(error)) = trimmed {
        tracing::warn!(%error, "the changelog was not trimmed");
    }
}
