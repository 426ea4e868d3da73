//! The stored record of a resource group that was created by itself. A group that only has
//! resources is not stored.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::topic::ArmScope;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResourceGroupRecord {
    /// Its Azure subscription and its name.
    pub scope: ArmScope,
    /// `location`, stored and returned.
    pub location: String,
    /// `tags`, stored and returned.
    pub tags: BTreeMap<String, String>,
}

impl ResourceGroupRecord {
    pub fn key(&self) -> String {
        key(&self.scope)
    }
}

/// The key of the record of a resource group; names are compared without case.
pub fn key(scope: &ArmScope) -> String {
    format!(
        "{}/{}",
        scope.subscription.to_lowercase(),
        scope.resource_group.to_lowercase()
    )
}
