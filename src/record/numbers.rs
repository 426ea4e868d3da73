//! The stored numbers of partitions and subscriptions.

use serde::{Deserialize, Serialize};

use gridhook_event::{PartitionId, SubscriptionId};

/// The numbers assigned so far.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NextNumbers {
    /// The largest number of a partition.
    pub partitions: u32,
    /// The largest number of a subscription.
    pub subscriptions: u32,
}

impl NextNumbers {
    /// At least the largest numbers in the store: a change may have used some and not have been
    /// completed.
    pub fn at_least(self, partition: PartitionId, subscription: SubscriptionId) -> Self {
        Self {
            partitions: self.partitions.max(partition.0),
            subscriptions: self.subscriptions.max(subscription.0),
        }
    }
}
