//! A stored version of a subscription's filter.

use serde::{Deserialize, Serialize};

use crate::subscription::SubscriptionRecord;
use gridhook_event::Name;
use gridhook_policy::filter::Filter;

/// A version of a subscription's filter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilterVersion {
    /// The subscription's name.
    pub name: Name,
    /// The filter.
    pub filter: Filter,
}

impl FilterVersion {
    /// The version of `record`.
    pub fn of(record: &SubscriptionRecord) -> Self {
        Self {
            name: record.name.clone(),
            filter: record.filter.clone(),
        }
    }
}
