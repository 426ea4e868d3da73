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
    follow::{StoppableLog, count_lost_look, is_lost, replication_options},
    tenure::{self, Tenure, TenureEnd, wait_until_claim_ends},
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
const FAILED_STORE_PAUSE: Duration = Duration::from_secs(10);

/// How the wait of a standby ends.
pub(crate) enum Standing {
    /// The node owns the store.
    Owner(Tenure),
    /// A signal stops the process.
    Stopped,
}

/// What a standby does next.
pub(super) enum NextStep {
    /// Follow the changelog.
    Follow,
    /// Serve the shard.
    Serve(Tenure),
    /// Leave the cluster, because a signal stops the process.
    Leave,
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
            let next_step = match self.store.failure() {
                Some(cause) => {
                    self.fail(cause);
                    self.wait_before_retry(signals).await?
                }
                None => self.follow_until_claimed(clock, signals).await?,
            };
            match next_step {
                NextStep::Follow => {}
                NextStep::Serve(tenure) => return Ok(Standing::Owner(tenure)),
                NextStep::Leave => {
                    self.begin_leave();
                    self.wait_until_left().await;
                    return Ok(Standing::Stopped);
                }
            }
        }
    }

    /// Follows the changelog until the claim is won, and then takes the shard.
    async fn follow_until_claimed(
        &self,
        clock: &Clock,
        signals: &mut StopSignals,
    ) -> Result<NextStep, ServerError> {
        let progress = Arc::clone(&self.claim.progress);
        let log = Arc::new(StoppableLog::new(Arc::clone(&self.log) as _, progress));
        let mut following = pin!(self.follow_changelog(&log));
        let mut role = self.claim.role.clone();
        let claim = tokio::select! {
            // The claims of a process that stops end at the same time.
            biased;
            () = signals.wait_for_signal() => Ok(None),
            Some(failure) = &mut following => {
                return if may_fetch(&self.store, &self.process.cluster_id, &failure) {
                    self.replace_store(&failure, signals).await
                } else {
                    self.report_failure_and_wait(failure, signals).await
                };
            }
            lease = wait_for_claim(&mut role) => match lease {
                None => self.leave_or_fail(signals).await.map(|_| None),
                lease => Ok(lease),
            },
        };
        if let Ok(lease) = &claim {
            self.log
                .is_stopped
                .store(lease.is_none(), Ordering::Release);
        }
        // A read that takes long ends.
        log.is_stopped.store(true, Ordering::Release);
        self.haste.notify_one();
        following.await;
        let lease = claim?;
        match lease {
            Some(lease) => self.take_shard(lease, clock, signals).await,
            None => Ok(NextStep::Leave),
        }
    }

    /// Takes the shard of a claim, unless the claim ends meanwhile or a signal stops the process.
    async fn take_shard(
        &self,
        lease: Lease,
        clock: &Clock,
        signals: &mut StopSignals,
    ) -> Result<NextStep, ServerError> {
        let mut role = self.claim.role.clone();
        let mut taking = pin!(self.take_ownership(lease.clone(), clock.clone()));
        let claim_end = tokio::select! {
            biased;
            () = signals.wait_for_signal() => None,
            end = wait_until_claim_ends(&mut role, &lease) => Some(end),
            result = &mut taking => return match result {
                Ok(tenure) => Ok(NextStep::Serve(tenure)),
                Err(error) => self.give_up_failed_claim(&lease, error, signals).await,
            },
        };
        // Another node need not wait for the response to an append. It fences what may have been
        // appended.
        self.claim.give_up(&lease, GivenUp::Released);
        self.log.is_stopped.store(true, Ordering::Release);
        if let Ok(tenure) = taking.await {
            tenure.fence_off();
        }
        match claim_end {
            None => return Ok(NextStep::Leave),
            Some(TenureEnd::Requested) => {
                tracing::info!("asked to give the store up while it was taken");
            }
            Some(TenureEnd::Lost) => {
                tracing::info!("the claim was lost while the store was taken");
            }
        }
        self.log.is_stopped.store(false, Ordering::Release);
        Ok(NextStep::Follow)
    }

    /// Gives up a claim whose shard could not be taken.
    async fn give_up_failed_claim(
        &self,
        lease: &Lease,
        error: FollowError,
        signals: &mut StopSignals,
    ) -> Result<NextStep, ServerError> {
        let is_lost_for_good = is_lost(&error) && count_lost_look(&self.lost_looks);
        if !self.may_try_again(&error, is_lost_for_good) {
            // Another node need not wait for the claim to expire.
            self.give_claim_up(lease, GivenUp::Failed).await;
            return self.report_failure_and_wait(error, signals).await;
        }
        if matches!(error, FollowError::Log(ChangelogError::Full)) {
            // Only an owner trims it otherwise.
            tenure::trim_changelog(
                Arc::clone(&self.log) as _,
                &self.claim.progress,
                self.stream.without_kept_records(),
            )
            .await;
        }
        tracing::warn!(shard = self.claim.shard, %error, "the claimed shard was not taken; another \
            node may try");
        self.give_claim_up(lease, GivenUp::Failed).await;
        Ok(NextStep::Follow)
    }

    /// Whether a shard that could not be taken may be served later.
    fn may_try_again(&self, error: &FollowError, is_lost_for_good: bool) -> bool {
        matches!(error, FollowError::Log(_))
            || (is_lost(error) && !is_lost_for_good)
            || may_fetch(&self.store, &self.process.cluster_id, error)
    }

    /// Reports to operators that the store cannot follow the changelog, gives the claim up, and
    /// waits.
    ///
    /// # Errors
    /// If the claims of this node have ended.
    async fn report_failure_and_wait(
        &self,
        error: FollowError,
        signals: &mut StopSignals,
    ) -> Result<NextStep, ServerError> {
        self.fail(ClusterError::from(error).to_string());
        self.wait_before_retry(signals).await
    }

    /// Waits for [`FAILED_STORE_PAUSE`], or until a signal stops the process.
    ///
    /// # Errors
    /// If the claims of this node have ended.
    async fn wait_before_retry(&self, signals: &mut StopSignals) -> Result<NextStep, ServerError> {
        let mut role = self.claim.role.clone();
        let role_end = async { while role.changed().await.is_ok() {} };
        tokio::select! {
            biased;
            () = signals.wait_for_signal() => Ok(NextStep::Leave),
            () = role_end => self.leave_or_fail(signals).await,
            () = tokio::time::sleep(FAILED_STORE_PAUSE) => Ok(NextStep::Follow),
        }
    }

    /// The step after the end of the claims. When a process stops, its first shard ends those of all
    /// shards, and the signal reaches the others about then.
    ///
    /// # Errors
    /// If no signal arrives.
    pub(super) async fn leave_or_fail(
        &self,
        signals: &mut StopSignals,
    ) -> Result<NextStep, ServerError> {
        let signal = tokio::time::timeout(SIGNAL_WAIT, signals.wait_for_signal());
        if signal.await.is_ok() {
            return Ok(NextStep::Leave);
        }
        let end = self.process.membership.snapshot.borrow().end;
        Err(match end {
            Some(MembershipEnd::NameTaken) => ClusterError::NameTaken {
                node: self.process.name.clone(),
            },
            Some(MembershipEnd::Left) | None => {
                ClusterError::Engine("the claims of this node have ended".to_owned())
            }
        }
        .into())
    }

    /// Appends the fence, and applies what is before it.
    async fn take_ownership(&self, lease: Lease, clock: Clock) -> Result<Tenure, FollowError> {
        let store = self.store.open_store();
        let name = self.process.name.clone();
        let log: Arc<dyn Changelog> = Arc::clone(&self.log) as _;
        let start_clock = clock.clone();
        let start = clock.now();
        let options = ReplicationOptions {
            format: self.claim.progress.format.load(Ordering::Acquire),
            ..replication_options()
        };
        let opening = tokio::task::spawn_blocking(move || {
            ReplicatedStore::take_shard(store, log, &name, clock, options)
        });
        let store = Arc::new(opening.await.expect("opening a store does not panic")?);
        let took = start_clock.now().since(start);
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
