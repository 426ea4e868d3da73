//! A standby: it follows the changelog until a claim is won, and takes the shard. What fails is
//! tried again, left to another node, or shown until an operator acts.

use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use super::{
    ClusterError, ClusterNode,
    fetch::may_fetch,
    follow::{LOST_LOOKS, is_lost, replication_options},
    tenure::{self, Tenure, TenureEnd, claim_ended},
    wait_for_claim,
};
use crate::{ServerError, shutdown::StopSignals};
use gridhook_clock::{Clock, Lease};
use gridhook_cluster::{GivenUp, membership::MembershipEnd};
use gridhook_journal::{
    changelog::{Changelog, ChangelogError},
    replicated::{FollowError, ReplicatedStore, ReplicationOptions},
};

/// The longest delay of the signal that ends a process, on its way to each of its shards.
const SIGNAL_WAIT: Duration = Duration::from_secs(1);

/// The pause before a store that could not follow the changelog is tried again.
const FAILED_PAUSE: Duration = Duration::from_secs(10);

/// The result of a wait of a standby.
pub(crate) enum Standing {
    /// The node owns the store.
    Owner(Tenure),
    /// A signal stops the process.
    Stopped,
}

impl ClusterNode {
    /// Follows the changelog until the claim is won, and takes the shard.
    ///
    /// # Errors
    /// If the local store cannot follow the changelog.
    pub(crate) async fn stand_by(
        &mut self,
        clock: &Clock,
        signals: &mut StopSignals,
    ) -> Result<Standing, ServerError> {
        loop {
            if let Some(cause) = self.store.failure() {
                self.fail(cause.to_owned());
                if self.wait_for_end(signals).await? {
                    continue;
                }
                return self.stop_standing().await;
            }
            let mut follower = self.follow();
            let mut role = self.claim.role.clone();
            let lease = tokio::select! {
                // The claims of a process that stops end at the same time.
                biased;
                () = signals.wait_for_signal() => None,
                failed = follower.wait_for_failure() => {
                    follower.stop().await;
                    let goes_on = if may_fetch(&self.store, &self.id, &failed) {
                        self.replace_store(&failed, signals).await?
                    } else {
                        self.wait_after_failure(failed, signals).await?
                    };
                    if goes_on {
                        continue;
                    }
                    return self.stop_standing().await;
                }
                lease = wait_for_claim(&mut role) => {
                    if lease.is_none()
                        && let Err(ended) = self.stop_or_fail(signals).await
                    {
                        follower.stop().await;
                        return Err(ended);
                    }
                    lease
                }
            };
            self.log
                .is_stopped
                .store(lease.is_none(), Ordering::Release);
            follower.stop().await;
            let Some(lease) = lease else {
                return self.stop_standing().await;
            };
            let taken = {
                let mut take = pin!(self.take_ownership(lease.clone(), clock.clone()));
                let interruption = tokio::select! {
                    biased;
                    () = signals.wait_for_signal() => Err(None),
                    end = claim_ended(&mut role, &lease) => Err(Some(end)),
                    taken = &mut take => Ok(taken),
                };
                if interruption.is_err() {
                    // Another node need not wait for the response to an append. It fences what may
                    // have been appended.
                    self.claim.give_up(&lease, GivenUp::Released);
                    self.log.is_stopped.store(true, Ordering::Release);
                    take.await.iter().for_each(Tenure::fence_off);
                }
                interruption
            };
            let taken = match taken {
                Ok(taken) => taken,
                Err(None) => return self.stop_standing().await,
                Err(Some(end)) => {
                    match end {
                        TenureEnd::Asked => {
                            tracing::info!("asked to give the store up while it was taken")
                        }
                        TenureEnd::Lost => {
                            tracing::info!("the claim was lost while the store was taken")
                        }
                    }
                    self.log.is_stopped.store(false, Ordering::Release);
                    continue;
                }
            };
            match taken {
                Ok(tenure) => return Ok(Standing::Owner(tenure)),
                Err(error) if self.may_try_again(&error) => {
                    if matches!(error, FollowError::Log(ChangelogError::Full)) {
                        // Only an owner trims it otherwise.
                        tenure::trim_changelog(
                            Arc::clone(&self.log) as _,
                            &self.claim.progress,
                            self.stream.without_kept_records(),
                        )
                        .await;
                    }
                    tracing::warn!(shard = self.claim.shard, %error, "the claimed shard was not \
                        taken; another node may try");
                    self.give_claim_up(&lease, GivenUp::Failed).await;
                }
                Err(error) => {
                    // Another node need not wait for the claim to expire.
                    self.give_claim_up(&lease, GivenUp::Failed).await;
                    if !self.wait_after_failure(error, signals).await? {
                        return self.stop_standing().await;
                    }
                }
            }
        }
    }

    /// Whether the shard may be served later that could not be taken.
    fn may_try_again(&self, error: &FollowError) -> bool {
        let is_lost_now = is_lost(error) && !self.is_lost_for_good();
        matches!(error, FollowError::Log(_))
            || is_lost_now
            || may_fetch(&self.store, &self.id, error)
    }

    async fn stop_standing(&mut self) -> Result<Standing, ServerError> {
        self.begin_leave();
        self.left().await;
        Ok(Standing::Stopped)
    }

    /// Waits after the store could not follow the changelog. Returns false if a signal stops the
    /// process; otherwise it may be tried again.
    ///
    /// # Errors
    /// If the claims of this node have ended.
    async fn wait_after_failure(
        &self,
        error: FollowError,
        signals: &mut StopSignals,
    ) -> Result<bool, ServerError> {
        self.fail(ClusterError::from(error).to_string());
        self.wait_for_end(signals).await
    }

    /// Waits a while for the end of the process. Returns false if a signal stops it.
    ///
    /// # Errors
    /// If the claims of this node have ended.
    async fn wait_for_end(&self, signals: &mut StopSignals) -> Result<bool, ServerError> {
        let mut role = self.claim.role.clone();
        let role_end = async { while role.changed().await.is_ok() {} };
        tokio::select! {
            biased;
            () = signals.wait_for_signal() => Ok(false),
            () = role_end => self.stop_or_fail(signals).await,
            () = tokio::time::sleep(FAILED_PAUSE) => Ok(true),
        }
    }

    /// Decides after the claims have ended: all end with the first shard of a process that stops,
    /// whose signal reaches the others at the same time. Returns false if the process stops.
    ///
    /// # Errors
    /// If no signal comes.
    pub(super) async fn stop_or_fail(
        &self,
        signals: &mut StopSignals,
    ) -> Result<bool, ServerError> {
        let signal = tokio::time::timeout(SIGNAL_WAIT, signals.wait_for_signal());
        if signal.await.is_ok() {
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

    /// Counts a look that found the changelog to be lost.
    fn is_lost_for_good(&self) -> bool {
        self.lost.fetch_add(1, Ordering::AcqRel) >= LOST_LOOKS
    }

    /// Appends the fence, and applies what is before it.
    async fn take_ownership(&self, lease: Lease, clock: Clock) -> Result<Tenure, FollowError> {
        let store = self.store.open_store();
        let name = self.name.clone();
        let log: Arc<dyn Changelog> = Arc::clone(&self.log) as _;
        let began = clock.now();
        let read = clock.clone();
        let options = ReplicationOptions {
            format: self.claim.progress.format.load(Ordering::Acquire),
            ..replication_options()
        };
        let opening = tokio::task::spawn_blocking(move || {
            ReplicatedStore::open(store, log, &name, clock, options)
        });
        let store = Arc::new(opening.await.expect("opening a store does not panic")?);
        let took = read.now().since(began);
        tracing::info!(
            shard = self.claim.shard,
            epoch = store.epoch(),
            ?took,
            "this node owns the store"
        );
        let progress = Arc::clone(&self.claim.progress);
        let log: Arc<dyn Changelog> = Arc::clone(&self.log) as _;
        actix_rt::spawn(tenure::report_positions(
            progress,
            Arc::clone(&store),
            log,
            self.stream,
        ));
        Ok(Tenure::begin(lease, store, self.claim.role.clone()))
    }
}
