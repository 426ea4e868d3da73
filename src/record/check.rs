//! Checks that stored records of the control plane can be read.

use serde::Deserialize;

use crate::{
    audit::AuditRecord,
    deployment::{DeploymentRecord, DeploymentTemplate},
    filter_version::FilterVersion,
    namespace::NamespaceRecord,
    numbers::NextNumbers,
    proposal::Proposal,
    resource_group::ResourceGroupRecord,
    subscription::SubscriptionRecord,
    token::TokenRecord,
    topic::{DomainTopic, TopicRecord},
};
use gridhook_store::keys::MetaKind;

/// Checks that a record of the control plane can be read. Records of other kinds are not checked.
///
/// # Errors
/// The reason, if it cannot be read.
pub fn check_record(kind: MetaKind, value: &[u8]) -> Result<(), String> {
    fn check<T: for<'de> Deserialize<'de>>(value: &[u8]) -> Result<(), String> {
        serde_json::from_slice::<T>(value)
            .map(drop)
            .map_err(|error| error.to_string())
    }
    match kind {
        MetaKind::Topic => check::<TopicRecord>(value),
        MetaKind::Subscription => check::<SubscriptionRecord>(value),
        MetaKind::Numbers => check::<NextNumbers>(value),
        MetaKind::Proposal => check::<Proposal>(value),
        MetaKind::DomainTopic => check::<DomainTopic>(value),
        MetaKind::Filter => check::<FilterVersion>(value),
        MetaKind::Namespace => check::<NamespaceRecord>(value),
        MetaKind::Token => check::<TokenRecord>(value),
        MetaKind::Audit => check::<AuditRecord>(value),
        MetaKind::ResourceGroup => check::<ResourceGroupRecord>(value),
        MetaKind::Deployment => check::<DeploymentRecord>(value),
        MetaKind::DeploymentTemplate => check::<DeploymentTemplate>(value),
        MetaKind::Format
        | MetaKind::Floor
        | MetaKind::DeadLetters
        | MetaKind::Job
        | MetaKind::Redrive
        | MetaKind::Secret
        | MetaKind::Loss
        | MetaKind::Applied => Ok(()),
    }
}
