//! Checks that stored records of the control plane can be read.

use serde::Deserialize;

use crate::{
    audit::AuditRecord,
    deployment::{DeploymentRecord, DeploymentTemplate},
    filter_version::FilterVersion,
    followed::FollowedRecord,
    namespace::NamespaceRecord,
    numbers::NextNumbers,
    proposal::Proposal,
    resource_group::ResourceGroupRecord,
    session::SessionRecord,
    subscription::SubscriptionRecord,
    token::TokenRecord,
    topic::{DomainTopic, TopicRecord},
};
use gridhook_store::keys::MetaKind;

/// Checks that a record of the control plane can be read. Records of other kinds are not checked.
///
/// # Errors
/// The record cannot be read.
pub fn check_record(kind: MetaKind, value: &[u8]) -> serde_json::Result<()> {
    fn check_json<T: for<'de> Deserialize<'de>>(value: &[u8]) -> serde_json::Result<()> {
        serde_json::from_slice::<T>(value).map(drop)
    }
    match kind {
        MetaKind::Topic => check_json::<TopicRecord>(value),
        MetaKind::Subscription => check_json::<SubscriptionRecord>(value),
        MetaKind::Numbers => check_json::<NextNumbers>(value),
        MetaKind::Proposal => check_json::<Proposal>(value),
        MetaKind::DomainTopic => check_json::<DomainTopic>(value),
        MetaKind::Filter => check_json::<FilterVersion>(value),
        MetaKind::Namespace => check_json::<NamespaceRecord>(value),
        MetaKind::Followed => check_json::<FollowedRecord>(value),
        MetaKind::Token => check_json::<TokenRecord>(value),
        MetaKind::Audit => check_json::<AuditRecord>(value),
        MetaKind::ResourceGroup => check_json::<ResourceGroupRecord>(value),
        MetaKind::Deployment => check_json::<DeploymentRecord>(value),
        MetaKind::Session => check_json::<SessionRecord>(value),
        MetaKind::DeploymentTemplate => check_json::<DeploymentTemplate>(value),
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
