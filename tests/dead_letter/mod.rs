//! Dead letters: files, folders, the order of turns, and all of it with a journal that fails.

mod actor;
mod browse;
mod crashes;
mod event;
mod file;
mod gone;
mod namespace;
mod notifier;
mod outage;
mod sabotage;
mod sink;
mod staging;
mod stores;
mod totals;
mod world;

use bytes::BufMut;
use gridhook::{
    dead_letter::{DeadLetterTarget, file::FileContext},
    event::{
        Event, EventRanges, PartitionId, Schema, Seq, SubscriptionId, SubscriptionKey, TextRange,
        Timestamp,
        chunk::{Chunk, ChunkBuilder, EncodedEvent, RunningTotals},
    },
    policy::{
        dead_letter_store::FOLDER,
        edition::FileLayout,
        outcome::{Failure, Reason},
        record::DeadLetterRecord,
    },
};

/// 2020-08-13T17:18:14.026575Z
const PUBLISHED: Timestamp = Timestamp(1_597_339_094_026_575);

const TOPIC: &str =
    "/subscriptions/s/resourceGroups/g/providers/Microsoft.EventGrid/topics/myCustomSchemaTopic";

const FORM: FileContext<'static> = FileContext {
    layout: FileLayout::Basic,
    delivery: Schema::EventGrid,
    topic: TOPIC,
    properties: &[],
};

fn subscription_key(subscription: u32) -> SubscriptionKey {
    SubscriptionKey {
        partition: PartitionId(1),
        subscription: SubscriptionId(subscription),
    }
}

fn target(folder: &str) -> DeadLetterTarget {
    DeadLetterTarget {
        store: FOLDER.to_owned(),
        folder: folder.to_owned(),
        subscription_name: "my-subscription".to_owned(),
        delivery_schema: Schema::EventGrid,
        topic: TOPIC.to_owned(),
        source: TOPIC.to_owned(),
        layout: FileLayout::Basic,
        properties: Vec::new(),
        delay: std::time::Duration::from_secs(24 * 3600),
        retry: [20, 40].map(std::time::Duration::from_millis).to_vec(),
        outage_window: std::time::Duration::from_secs(4 * 3600),
        drop_where_not_found: true,
    }
}

/// An event with the stored form `wire`; the strings are stored behind it, as for the custom
/// schema.
fn event(schema: Schema, wire: &str, [id, event_type, subject]: [&str; 3]) -> Event {
    let mut draft = ChunkBuilder::new(schema);
    draft.push(|out| {
        out.put_slice(wire.as_bytes());
        let wire_end = out.len();
        let mut put = |text: &str| {
            let start = out.len() as u32;
            out.put_slice(text.as_bytes());
            TextRange {
                start,
                len: text.len() as u32,
            }
        };
        let ranges = EventRanges {
            id: put(id),
            event_type: put(event_type),
            subject: put(subject),
            ..EventRanges::default()
        };
        EncodedEvent { wire_end, ranges }
    });
    let sealed = draft.into_chunks().pop().expect("one event is one chunk");
    let chunk = Chunk::decode(
        Seq(7),
        sealed.stamp_record(PUBLISHED, RunningTotals::default()),
    )
    .expect("whole");
    chunk.decode_events().expect("whole").remove(0)
}

/// The result in the samples.
fn dead() -> DeadLetterRecord {
    DeadLetterRecord {
        reason: Reason::MaxDeliveryAttemptsExceeded,
        attempts: 1,
        outcome: Failure::NotFound.into(),
        status: None,
        published: PUBLISHED,
        tried: Some(Timestamp(PUBLISHED.0 + 20_000)),
        given_up: Timestamp(PUBLISHED.0 + 30_000),
    }
}
