//! A subscription as it is wished, while its endpoint has yet to agree.
//!
//! A proposal lies beside the subscription that it would make or change, not in it: until the endpoint agrees nothing of
//! it runs, no event is read for it, and what is in force goes on as it was. When it agrees, the proposal becomes the
//! subscription in one write; a new one begins behind the newest event of that moment. It ends with the next wish for the
//! same subscription, and with its deletion; if its time passes it stays, as the failure that it is.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{
    control::record::subscription::SubscriptionRecord, event::Timestamp, policy::validation,
    subscription::ValidationCode,
};

/// A wish that waits for its endpoint.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proposal {
    /// By which the endpoint gives its word.
    pub ticket: ValidationCode,
    /// What is wished; the number and the version are given when it comes into force.
    pub record: Arc<SubscriptionRecord>,
}

/// How far a wish has come: `provisioningState`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProvisioningState {
    /// It is in force.
    Succeeded,
    /// Its endpoint has yet to agree.
    AwaitingManualAction,
    /// Its endpoint did not agree in time.
    Failed,
}

/// A subscription as a client of the control plane sees it.
#[derive(Clone, Debug)]
pub struct Provisioned {
    /// What was wished last, unless that failed and something else is in force.
    pub record: Arc<SubscriptionRecord>,
    /// How far that has come.
    pub state: ProvisioningState,
    /// What events are delivered by at present. [`None`]: they are not.
    pub in_force: Option<Arc<SubscriptionRecord>>,
}

impl Provisioned {
    /// What is told of what is in force and what is proposed; nothing where there is neither.
    pub fn of(in_force: Option<Arc<SubscriptionRecord>>, proposal: Option<&Proposal>, now: Timestamp) -> Option<Self> {
        let Some(Proposal { ticket, record }) = proposal else {
            let record = in_force?;
            return Some(Self {
                record: Arc::clone(&record),
                state: ProvisioningState::Succeeded,
                in_force: Some(record),
            });
        };
        if validation::is_over(ticket.until(), now) {
            let record = in_force.as_ref().unwrap_or(record);
            return Some(Self { record: Arc::clone(record), state: ProvisioningState::Failed, in_force });
        }
        Some(Self { record: Arc::clone(record), state: ProvisioningState::AwaitingManualAction, in_force })
    }
}
