//! One ownership: its lease, its replicated store, and how it ends.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::watch;

use super::{ClusterNode, EndGuard, SYNC_INTERVAL};
use crate::{ServerError, serve::StartEnd, shutdown::StopSignals, startup::exit_on_store_error};
use gridhook_clock::Lease;
use gridhook_cluster::{GivenUp, Role, ShardProgress};
use gridhook_dead_letter::sink::FileFence;
use gridhook_journal::{
    FatalHandler,
    changelog::{Changelog, ChangelogBounds, ChangelogError, StreamMark},
    replicated::{OwnershipEnd, ReplicatedStore},
};
use gridhook_store::StoreError;

/// The interval between two trims of the changelog.
const TRIM_INTERVAL: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug)]
pub(super) struct StreamLimits {
    /// The size at which the stream takes no more; [`None`] for the limit of its servers.
    #[cfg(feature = "nats")]
    pub(super) bytes_max: Option<u64>,
    /// The size of the newest records that stay, whatever the copies have.
    keep_bytes: u64,
    /// The size above which the stream is trimmed to what two copies have.
    large_bytes: u64,
}

impl StreamLimits {
    /// A stream of at most `bytes_max` keeps no more than leaves room for new records.
    #[cfg(feature = "nats")]
    pub(super) fn new(bytes_max: Option<u64>, keep_bytes: u64) -> Self {
        let half = bytes_max.map_or(u64::MAX, |most| most / 2);
        let large_bytes = keep_bytes.saturating_mul(2).min(half);
        Self {
            bytes_max,
            keep_bytes: keep_bytes.min(half / 2),
            large_bytes,
        }
    }

    /// Keeps no records for nodes that read on: in a full stream, room is worth more.
    pub(super) fn without_kept_records(self) -> Self {
        Self {
            keep_bytes: 0,
            ..self
        }
    }
}

/// The longest time that requests wait for a write that waits for the changelog.
const STALL_WAIT: Duration = Duration::from_secs(5);

/// The interval between two looks at a write that waits for too long.
const STALL_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) enum TenureEnd {
    /// Another node requested the shard. This one gives it up when requests in flight have finished.
    Requested,
    /// Another node owns the shard, or may soon.
    Lost,
}

pub(crate) struct Tenure {
    pub lease: Lease,
    pub store: Arc<ReplicatedStore>,
    role: watch::Receiver<Role>,
    failure: Arc<watch::Sender<bool>>,
}

impl Tenure {
    pub(super) fn begin(
        lease: Lease,
        store: Arc<ReplicatedStore>,
        role: watch::Receiver<Role>,
    ) -> Self {
        Self {
            lease,
            store,
            role,
            failure: Arc::new(watch::Sender::new(false)),
        }
    }

    /// Called by the journal when nothing can be written any more. A failure of the local store
    /// ends the process, as it does without a cluster.
    pub(crate) fn on_failure(&self) -> FatalHandler {
        let lease = self.lease.clone();
        let store = Arc::clone(&self.store);
        let failure = Arc::clone(&self.failure);
        Box::new(move |error: &StoreError| {
            lease.end_for_good();
            match store.ownership_end() {
                None | Some(OwnershipEnd::Local(_)) => exit_on_store_error(error),
                Some(end) => {
                    tracing::warn!(reason = %end, "this node does not own the store any more")
                }
            }
            failure.send_replace(true);
        })
    }

    /// The fence that keeps this node from files of the next owner.
    pub(crate) fn file_fence(&self) -> FileFence {
        FileFence {
            lease: self.lease.clone(),
            epoch: self.store.epoch(),
        }
    }

    pub(crate) async fn wait_until_ended(&self) -> TenureEnd {
        let mut role = self.role.clone();
        let mut failure = self.failure.subscribe();
        // A claim that was lost and won again is another one.
        tokio::select! {
            _ = failure.wait_for(|failure| *failure) => TenureEnd::Lost,
            end = wait_until_claim_ends(&mut role, &self.lease) => end,
        }
    }

    /// Watches whether writes wait for the changelog for too long.
    pub(crate) fn watch_writes(&self) -> WriteStall {
        let (stall_sender, stall) = watch::channel(None);
        // The next owner's run need not wait for this task.
        let tenure_store = Arc::downgrade(&self.store);
        actix_rt::spawn(async move {
            while let Some(store) = tenure_store.upgrade()
                && store.ownership_end().is_none()
            {
                let waited = store.waiting_time();
                let reason = (waited >= STALL_WAIT).then(|| {
                    if store.waits_for_space() {
                        StallReason::Full
                    } else {
                        StallReason::Unreachable
                    }
                });
                drop(store);
                stall_sender
                    .send_if_modified(|current| std::mem::replace(current, reason) != reason);
                // A write that begins now is stalled after STALL_WAIT at the earliest, and the one
                // that waits after the rest of it.
                let pause = STALL_WAIT.saturating_sub(waited).max(STALL_INTERVAL);
                tokio::time::sleep(pause).await;
            }
        });
        WriteStall(stall)
    }

    /// Whether the ownership has ended, and not by a failure of the local store.
    pub(crate) fn is_lost(&self) -> bool {
        match self.store.ownership_end() {
            Some(OwnershipEnd::Local(_)) => false,
            Some(_) => true,
            None => self.lease.is_over(),
        }
    }

    /// Stops all deliveries and writes from now on.
    pub(crate) fn fence_off(&self) {
        self.lease.end_for_good();
        self.store.stop();
    }

    /// Releases the changelog, so that the next owner need not wait. The journal must have ended.
    pub(crate) async fn release(&self) {
        let store = Arc::clone(&self.store);
        let release = tokio::task::spawn_blocking(move || store.release_shard());
        if tokio::time::timeout(SYNC_INTERVAL, release).await.is_err() {
            tracing::warn!("the changelog was not released; the next owner fences it");
            self.store.stop();
        }
        self.lease.end_for_good();
    }
}

/// Returns when the claim with this lease ends, or the node must give it up.
pub(super) async fn wait_until_claim_ends(
    role: &mut watch::Receiver<Role>,
    lease: &Lease,
) -> TenureEnd {
    let is_mine = |role: &Role| matches!(role, Role::Owner(_)) && !lease.is_over();
    let next_role = role.wait_for(|role| !is_mine(role)).await;
    match next_role.as_deref() {
        Ok(Role::Draining(_)) => TenureEnd::Requested,
        Ok(_) | Err(_) => TenureEnd::Lost,
    }
}

/// Why a write waits for the changelog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StallReason {
    /// The stream takes no record before it is trimmed.
    Full,
    Unreachable,
}

/// Whether writes wait for the changelog for so long that no request waits for them, and why.
#[derive(Clone)]
pub(crate) struct WriteStall(watch::Receiver<Option<StallReason>>);

impl WriteStall {
    /// The reason for which writes wait now; [`None`] if they do not.
    pub(crate) fn reason(&self) -> Option<StallReason> {
        *self.0.borrow()
    }

    /// Returns once writes wait for too long, with the reason.
    pub(crate) async fn wait_until_stalled(mut self) -> StallReason {
        match self.0.wait_for(Option::is_some).await.map(|reason| *reason) {
            Ok(Some(reason)) => reason,
            // The ownership has ended, and so will its requests.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }
}

/// A tenure of this process, and what its end concerns.
pub(crate) struct Ownership<'a> {
    pub tenure: Tenure,
    pub node: &'a mut ClusterNode,
    pub signals: &'a mut StopSignals,
}

impl Ownership<'_> {
    /// Runs `work`, the last writes of a start, unless the tenure ends meanwhile or a signal stops
    /// the process.
    ///
    /// # Errors
    /// Why the start ends. From then on nothing is sent.
    pub(crate) async fn run_unless_ended<T>(
        &mut self,
        work: impl Future<Output = Result<T, ServerError>>,
    ) -> Result<T, StartEnd> {
        let end = tokio::select! {
            biased;
            () = self.signals.wait_for_signal() => StartEnd::Signal,
            end = self.tenure.wait_until_ended() => StartEnd::Tenure(end),
            result = work => return result.map_err(StartEnd::Failed),
        };
        if matches!(end, StartEnd::Tenure(TenureEnd::Lost)) {
            self.tenure.fence_off();
        }
        self.tenure.lease.end_for_good();
        Err(end)
    }

    /// Waits until the journal of a start that is abandoned has ended. A write that still waits for
    /// the changelog then fails.
    pub(crate) async fn end_writes(&self, end: impl Future) {
        let _guard = EndGuard::begin(Arc::clone(&self.tenure.store));
        let mut end = pin!(end);
        if tokio::time::timeout(SYNC_INTERVAL, &mut end).await.is_err() {
            self.tenure.fence_off();
            end.await;
        }
    }

    /// Releases the changelog and gives the store up. The journal must have ended.
    pub(crate) async fn release(&self) {
        self.tenure.release().await;
        self.give_claim_up(GivenUp::Released).await;
    }

    async fn give_claim_up(&self, why: GivenUp) {
        self.node.give_claim_up(&self.tenure.lease, why).await;
    }

    /// Gives up the store that another node owns, or may own soon.
    pub(crate) async fn give_up_store(&self) {
        self.give_claim_up(GivenUp::Fenced).await;
    }

    /// Leaves the cluster during a start. The journal must have ended.
    pub(crate) async fn leave_cluster(self) {
        self.node.begin_leave();
        self.release().await;
        self.node.wait_until_left().await;
    }

    /// Ends a start that has failed. The journal must have ended. A shard beside others fails
    /// alone.
    pub(crate) async fn fail(self) {
        if self.node.is_alone {
            self.leave_cluster().await;
        } else {
            self.release().await;
        }
    }
}

/// Reports the positions of an owner, and trims the changelog.
pub(super) async fn report_positions(
    progress: Arc<ShardProgress>,
    store: Arc<ReplicatedStore>,
    log: Arc<dyn Changelog>,
    stream: StreamLimits,
) {
    let rounds = TRIM_INTERVAL.as_secs() / SYNC_INTERVAL.as_secs();
    for round in 1.. {
        if store.ownership_end().is_some() {
            return;
        }
        progress.note_applied(StreamMark {
            position: store.applied_sequence(),
            epoch: store.epoch(),
        });
        progress
            .flushed
            .store(store.flushed_sequence(), Ordering::Release);
        if round % rounds == 0 {
            trim_changelog(Arc::clone(&log), &progress, stream).await;
        }
        tokio::time::sleep(SYNC_INTERVAL).await;
    }
}

/// Trims the changelog below what all copies have synced, and once it is large below what two have.
pub(super) async fn trim_changelog(
    log: Arc<dyn Changelog>,
    progress: &ShardProgress,
    stream: StreamLimits,
) {
    let StreamLimits {
        keep_bytes,
        large_bytes,
        ..
    } = stream;
    let load = |position: &AtomicU64| position.load(Ordering::Acquire);
    let flushed = load(&progress.flushed);
    let through = load(&progress.trimmable).min(flushed);
    let through_if_large = load(&progress.trimmable_if_large).min(flushed);
    let trim = move || -> Result<ChangelogBounds, ChangelogError> {
        if through > 0 {
            log.trim(through, keep_bytes)?;
        }
        let bounds = log.bounds()?;
        if bounds.bytes <= large_bytes || through_if_large <= through {
            return Ok(bounds);
        }
        tracing::warn!(
            bytes = bounds.bytes,
            "the stream is large: it is trimmed for a node that is down, which fetches a copy \
             when it is back"
        );
        log.trim(through_if_large, keep_bytes)?;
        log.bounds()
    };
    match tokio::task::spawn_blocking(trim).await {
        Ok(Ok(bounds)) => progress.note_stream(bounds.bytes, bounds.missing_replicas),
        Ok(Err(error)) => tracing::warn!(%error, "the changelog was not trimmed"),
        Err(_) => {}
    }
}
