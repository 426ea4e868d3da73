//! What a store's control plane says of partitions and numbers, for whoever makes a damaged one sound: of its records no more
//! is read than that.

use serde::{Deserialize, Serialize};

use crate::{
    dead_letter::Totals,
    event::{PartitionId, SubscriptionId},
    journal::salvage::Plane,
};

/// Of a topic's record.
#[derive(Deserialize)]
struct Topic {
    partitions: Vec<PartitionId>,
}

/// Of an event subscription's record.
#[derive(Deserialize)]
struct Subscription {
    number: SubscriptionId,
}

/// The numbers given out.
#[derive(Default, Deserialize, Serialize)]
struct Numbers {
    partitions: u32,
    subscriptions: u32,
}

/// How the control plane's records are read.
pub fn plane() -> Plane {
    Plane {
        partitions: |record| Some(serde_json::from_slice::<Topic>(record).ok()?.partitions),
        subscription: |record| Some(serde_json::from_slice::<Subscription>(record).ok()?.number),
        numbers: |record, partition, subscription| {
            let known: Numbers = record.and_then(|record| serde_json::from_slice(record).ok()).unwrap_or_default();
            let numbers = Numbers {
                partitions: known.partitions.max(partition.0),
                subscriptions: known.subscriptions.max(subscription.0),
            };
            ("numbers", serde_json::to_vec(&numbers).expect("numbers are JSON"))
        },
        account: |record, dealt_with| {
            let known = record.and_then(|record| Totals::decode(record).ok()).unwrap_or_default();
            known.accept_loss(dealt_with).encode()
        },
    }
}
