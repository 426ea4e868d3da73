//! Reads partition and subscription numbers from the control plane's records, for the repair of a
//! damaged store. All other fields are ignored.

use serde::{Deserialize, Serialize};

use gridhook_dead_letter::DeadLetterTotals;
use gridhook_event::{PartitionId, SubscriptionId};
use gridhook_repair::salvage::ControlRecords;

/// The used part of a topic's record.
#[derive(Deserialize)]
struct TopicNumbers {
    partitions: Vec<PartitionId>,
}

/// The used part of an event subscription's record.
#[derive(Deserialize)]
struct SubscriptionNumber {
    number: SubscriptionId,
}

/// The highest numbers that the control plane has assigned. They are never assigned again.
#[derive(Default, Deserialize, Serialize)]
struct GivenNumbers {
    partitions: u32,
    subscriptions: u32,
}

/// Functions that read and write the control plane's records.
pub fn control_records() -> ControlRecords {
    ControlRecords {
        partitions: |record| {
            Some(
                serde_json::from_slice::<TopicNumbers>(record)
                    .ok()?
                    .partitions,
            )
        },
        subscription: |record| {
            Some(
                serde_json::from_slice::<SubscriptionNumber>(record)
                    .ok()?
                    .number,
            )
        },
        numbers: |record, partition, subscription| {
            let known: GivenNumbers = record
                .and_then(|record| serde_json::from_slice(record).ok())
                .unwrap_or_default();
            let numbers = GivenNumbers {
                partitions: known.partitions.max(partition.0),
                subscriptions: known.subscriptions.max(subscription.0),
            };
            (
                "numbers",
                serde_json::to_vec(&numbers).expect("numbers serialize to JSON"),
            )
        },
        dead_letter_totals: |record, handled| {
            let totals = record
                .and_then(|record| DeadLetterTotals::decode(record).ok())
                .unwrap_or_default();
            totals.accept_loss(handled).encode()
        },
    }
}
