//! The memory of a slice of the log in a subscription: the bytes of a chunk that leaves with one
//! request, else copies of the matching events, so that a small event keeps no chunk in memory.

use std::sync::Arc;

use gridhook::{
    event::{
        Lane, PartitionId, Schema, Seq, SubscriptionId, SubscriptionKey, Timestamp,
        chunk::{Chunk, RunningTotals},
    },
    journal::LogSlice,
    policy::{Input, record::Cursor},
    record::subscription::SubscriptionRecord,
    store::damage::Damage,
    subscription::{DeliveryPlan, SharedState, SliceRead, filter_slice},
};
use serde_json::json;

use crate::{support::chunks::sealed, support::publisher::rules};

/// A chunk of ten events, each of 1,001 bytes, of which the first `matching` match.
fn chunk(first: u64, matching: usize) -> Chunk {
    let events: Vec<(&str, usize)> = (0..10)
        .map(|index| (if index < matching { "a" } else { "b" }, 1_000))
        .collect();
    let bytes = sealed(&events)
        .remove(0)
        .stamp_record(Timestamp(1), RunningTotals::default());
    Chunk::decode(Seq(first), bytes).expect("it was just sealed")
}

/// A subscription to subjects that begin with `a`.
fn plan(events_max: u32, kilobytes: u32, order_key: Option<&str>) -> Arc<DeliveryPlan> {
    let mut record = json!({
        "number": 1, "version": 0, "name": "audit", "filter": {"subjectBeginsWith": "a"},
        "delivery_schema": "EventGridSchema", "dead_letter": null, "labels": [],
        "webhook": {
            "endpoint_url": "http://127.0.0.1:9/", "max_events_per_batch": events_max,
            "preferred_batch_size_in_kilobytes": kilobytes,
        },
        "retry": {"max_delivery_attempts": 1, "event_time_to_live_in_minutes": 60},
    });
    if let Some(key) = order_key {
        record["order_key"] = json!(key);
    }
    let record: SubscriptionRecord = serde_json::from_value(record).expect("a record");
    let (rules, edition) = (rules(), Arc::clone(&rules().editions["current"]));
    Arc::new(
        DeliveryPlan::new(
            Arc::new(record),
            Schema::EventGrid,
            edition,
            &rules.delivery,
        )
        .expect("a plan"),
    )
}

/// For each event that is kept: whether it is in the memory of its chunk.
fn kept(plan: &Arc<DeliveryPlan>, share: usize, chunks: Vec<Chunk>) -> (Seq, Vec<bool>) {
    let key = SubscriptionKey {
        partition: PartitionId(1),
        subscription: SubscriptionId(1),
    };
    let shared = SharedState::new(key, Arc::clone(plan), Cursor::default(), Seq::FIRST);
    let upto = chunks.last().expect("a chunk").end_seq();
    let stored: Vec<_> = chunks
        .iter()
        .flat_map(|chunk| chunk.decode_events().expect("whole events"))
        .collect();
    let slice = LogSlice {
        chunks,
        upto,
        is_missing: false,
    };
    let read = SliceRead {
        lane: Lane::LIVE,
        from: Seq::FIRST,
        slice,
    };
    let Input::Read { upto, events, .. } =
        filter_slice(&shared, plan, &Damage::default(), share, read)
    else {
        panic!("nothing is damaged");
    };
    let in_chunk = events.iter().map(|event| {
        let stored = &stored[(event.seq.0 - 1) as usize];
        assert_eq!(event.wire_bytes(), stored.wire_bytes());
        event.wire_bytes().as_ptr() == stored.wire_bytes().as_ptr()
    });
    (upto, in_chunk.collect())
}

#[test]
fn a_chunk_is_shared_if_one_request_can_hold_it_and_most_of_it_matches() {
    let share = 1 << 20;
    let rows = [
        ("all match", plan(10, 64, None), 10, true),
        ("half of the bytes match", plan(10, 64, None), 6, true),
        ("a small part matches", plan(10, 64, None), 4, false),
        ("one request has fewer events", plan(9, 64, None), 10, false),
        ("one request has fewer bytes", plan(10, 9, None), 10, false),
        (
            "events of a key wait for each other",
            plan(10, 64, Some("subject")),
            10,
            false,
        ),
    ];
    for (what, plan, matching, is_shared) in rows {
        let found = kept(&plan, share, vec![chunk(1, matching)]);
        assert_eq!(found, (Seq(11), vec![is_shared; matching]), "{what}");
    }
}

#[test]
fn each_chunk_of_a_slice_is_shared_or_copied_by_itself() {
    let (upto, in_chunk) = kept(
        &plan(10, 64, None),
        1 << 20,
        vec![chunk(1, 10), chunk(11, 1), chunk(21, 10)],
    );
    assert_eq!(upto, Seq(31));
    assert_eq!(
        in_chunk,
        [vec![true; 10], vec![false], vec![true; 10]].concat()
    );
}

#[test]
fn the_events_of_a_chunk_that_do_not_fit_in_the_share_are_read_again() {
    // Two of ten: too few to keep the chunk for.
    let (upto, in_chunk) = kept(&plan(10, 64, None), 2_100, vec![chunk(1, 10)]);
    assert_eq!((upto, in_chunk), (Seq(3), vec![false, false]));
}
