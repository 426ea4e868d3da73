//! A subscription, new or changed, whose endpoint has not passed validation.
//!
//! A proposal is stored beside the subscription that it would create or change. Until the endpoint
//! confirms, no actor runs for it, no event is read for it, and the current subscription continues.
//! On confirmation, the proposal becomes the subscription in one write; a new subscription begins
//! behind the newest event of that moment. The next change or deletion of the subscription removes
//! the proposal. A proposal that times out stays and is shown as failed.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::subscription::SubscriptionRecord;
use gridhook_event::Timestamp;
use gridhook_policy::validation;

/// The stored code of a manual validation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValidationCode {
    pub id: String,
    /// SHA-256 of its token.
    token: [u8; 32],
    /// Expiration time in microseconds.
    until: u64,
}

impl ValidationCode {
    /// The code of this token, of which only the hash is stored.
    pub fn new(id: String, token: &str, until: u64) -> Self {
        Self {
            id,
            token: Sha256::digest(token).into(),
            until,
        }
    }

    /// Compares the token in constant time.
    pub fn is_token(&self, token: &str) -> bool {
        let digest: [u8; 32] = Sha256::digest(token).into();
        digest.ct_eq(&self.token).into()
    }

    pub fn expiry(&self) -> Timestamp {
        Timestamp(self.until)
    }
}

/// A subscription that waits for the validation of its endpoint.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proposal {
    /// The code by which the endpoint confirms.
    pub ticket: ValidationCode,
    /// The proposed record. The number and the version are assigned on confirmation.
    pub record: Arc<SubscriptionRecord>,
}

/// The state of a change: `provisioningState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProvisioningState {
    Succeeded,
    /// The endpoint has not confirmed yet.
    AwaitingManualAction,
    /// The endpoint did not confirm in time.
    Failed,
}

/// A subscription as a client of the control plane sees it.
#[derive(Clone, Debug)]
pub struct Provisioned {
    /// The last requested record, unless it failed and another one is in force.
    pub record: Arc<SubscriptionRecord>,
    /// The state of that record.
    pub state: ProvisioningState,
    /// The record by which events are delivered. [`None`] if they are not.
    pub in_force: Option<Arc<SubscriptionRecord>>,
}

impl Provisioned {
    /// The view of a subscription and its proposal. [`None`] if there is neither.
    pub fn from_parts(
        in_force: Option<Arc<SubscriptionRecord>>,
        proposal: Option<&Proposal>,
        now: Timestamp,
    ) -> Option<Self> {
        let Some(Proposal { ticket, record }) = proposal else {
            let record = in_force?;
            return Some(Self {
                record: Arc::clone(&record),
                state: ProvisioningState::Succeeded,
                in_force: Some(record),
            });
        };
        if validation::is_over(ticket.expiry(), now) {
            let record = in_force.as_ref().unwrap_or(record);
            return Some(Self {
                record: Arc::clone(record),
                state: ProvisioningState::Failed,
                in_force,
            });
        }
        Some(Self {
            record: Arc::clone(record),
            state: ProvisioningState::AwaitingManualAction,
            in_force,
        })
    }
}
