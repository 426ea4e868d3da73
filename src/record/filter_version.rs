//! A stored version of a subscription's filter.

use serde::{Deserialize, Serialize};

use crate::subscription::SubscriptionRecord;
use gridhook_event::Name;
use gridhook_policy::filter::Filter;

/// A version of a subscription's filter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilterVersion {
    pub name: Name,
    pub filter: Filter,
}

impl FilterVersion {
    pub fn from_record(record: &SubscriptionRecord) -> Self {
        Self {
            name: record.name.clone(),
            filter: record.filter.clone(),
        }
    }
}
