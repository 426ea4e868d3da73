//! The pure parts, each alone: what is done for every event between the socket and the disk. `cargo
//! bench --bench pure`.

use std::{collections::VecDeque, hint::black_box, sync::Arc, time::Duration};

use bytes::{BufMut, Bytes, BytesMut};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gridhook::{
    config::Editions,
    event::{
        Event, EventRanges, Lane, RequestId, Schema, Seq, TextRange, Timestamp,
        chunk::{Chunk, ChunkBuilder, EncodedEvent, RunningTotals, SealedChunk},
    },
    policy::{
        CoreStep, Effect, Input, Subscription, SubscriptionSettings,
        batch::BatchLimits,
        edition::EndpointKind,
        filter::{Filter, index::FilterIndex, view::EventView},
        outcome::{Outcome, RequestResult},
        record::{Cursor, EndpointId, LaneCursor, SeqSet},
        retry::Jitter,
    },
    store::records::StoredRecord,
};
use serde_json::json;

/// What the server allocates with.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Events of a request.
const EVENTS: usize = 100;

/// A request's events in wire form, half a kibibyte each.
fn sealed() -> Vec<SealedChunk> {
    let mut draft = ChunkBuilder::new(Schema::EventGrid);
    for number in 0..EVENTS {
        draft.push(|out| write(out, number));
    }
    draft.into_chunks()
}

fn write(out: &mut BytesMut, number: usize) -> EncodedEvent {
    let pad = "x".repeat(240);
    let wire = format!(
        r#"{{"id":"{number:019}","subject":"/bench/{number:04}","eventType":"Bench.Event","eventTime":"2026-11-20T17:18:13Z","dataVersion":"1","metadataVersion":"1","topic":"orders","data":{{"total":{number},"pad":"{pad}"}}}}"#
    );
    let before = out.len();
    let span = |text: &str| {
        let start = wire.find(text).map_or(0, |at| before + at);
        TextRange {
            start: start as u32,
            len: text.len() as u32,
        }
    };
    let ranges = EventRanges {
        id: span(&format!("{number:019}")),
        subject: span(&format!("/bench/{number:04}")),
        event_type: span("Bench.Event"),
        ..EventRanges::default()
    };
    out.put_slice(wire.as_bytes());
    EncodedEvent {
        wire_end: out.len(),
        ranges,
    }
}

fn stamped() -> Bytes {
    let chunk = sealed().pop().expect("a chunk");
    chunk.stamp_record(Timestamp(1_615_410_176_000_000), RunningTotals::default())
}

fn events() -> Vec<Event> {
    Chunk::decode(Seq::FIRST, stamped())
        .and_then(|chunk| chunk.decode_events())
        .expect("a sound chunk")
}

fn filter(json: serde_json::Value) -> Filter {
    serde_json::from_value(json).expect("a filter")
}

fn filters(criterion: &mut Criterion) {
    let events = events();
    let kinds = [
        (
            "type and prefix",
            json!({"includedEventTypes": ["Bench.Event"], "subjectBeginsWith": "/bench"}),
        ),
        (
            "a number in data",
            json!({"advancedFilters": [{"operatorType": "NumberGreaterThan", "key": "data.total", "value": 50}]}),
        ),
    ];
    let mut group = criterion.benchmark_group("filter");
    group.throughput(Throughput::Elements(events.len() as u64));
    for (name, json) in kinds {
        let filter = filter(json);
        group.bench_function(name, |bench| {
            bench.iter(|| {
                events
                    .iter()
                    .filter(|event| filter.matches(black_box(event)))
                    .count()
            });
        });
    }
    for size in [10, 1_000] {
        let filters: Vec<_> = (0..size)
            .map(|number| filter(json!({"subjectBeginsWith": format!("/bench/{number:04}")})))
            .collect();
        let index = FilterIndex::new(&filters);
        group.bench_function(format!("an index of {size}"), |bench| {
            bench.iter(|| {
                events
                    .iter()
                    .map(|event| {
                        index
                            .find_candidates(&EventView::new(black_box(event)))
                            .len()
                    })
                    .sum::<usize>()
            });
        });
    }
    group.finish();
}

fn chunks(criterion: &mut Criterion) {
    let bytes = stamped();
    let mut group = criterion.benchmark_group("chunk");
    group.throughput(Throughput::Elements(EVENTS as u64));
    group.bench_function("seal", |bench| bench.iter(sealed));
    group.bench_function("read", |bench| {
        bench.iter(|| {
            Chunk::decode(Seq::FIRST, black_box(bytes.clone()))
                .and_then(|chunk| chunk.decode_events())
        });
    });
    group.finish();
}

fn records(criterion: &mut Criterion) {
    let lane = LaneCursor {
        lane: Lane::LIVE,
        read: Seq(1_000_000),
        end: None,
        open: [Seq(999_990)].into_iter().collect(),
        done: SeqSet::default(),
    };
    let cursor = Cursor {
        lanes: vec![lane],
        began: Seq::FIRST,
        ..Cursor::default()
    };
    let bytes = cursor.encode();
    let mut group = criterion.benchmark_group("cursor");
    group.bench_function("encode", |bench| bench.iter(|| black_box(&cursor).encode()));
    group.bench_function("decode", |bench| {
        bench.iter(|| Cursor::decode(black_box(&bytes)))
    });
    group.finish();
}

/// How a subscription with the defaults is served.
fn settings() -> SubscriptionSettings {
    let editions = Editions::load(None, None).expect("the program's own editions are sound");
    SubscriptionSettings {
        version: 1,
        edition: editions.get("current").expect("it has this one"),
        destination: EndpointKind::Webhook,
        endpoint: EndpointId::default(),
        attempts_max: 30,
        since: Timestamp::default(),
        time_to_live: Duration::from_secs(24 * 60 * 60),
        batch: BatchLimits {
            events_max: 1,
            bytes_preferred: 64 * 1024,
            schema: Schema::EventGrid,
        },
        grouping: Arc::new([]),
        order: None,
        concurrency_max: 16,
        rate_max: None,
        backlog_min: 256,
        suspend_after: 10,
        hold_after_failing: None,
        reconnect_interval: Duration::ZERO,
        request_timeout: Duration::from_secs(200),
        dead_letter: false,
        dead_letter_in_probation: false,
        hold_when_gone: false,
        transform: None,
        pull: None,
    }
}

/// A hundred events are appended, read, sent one by one, taken, and all of it becomes durable.
fn deliver(core: &mut Subscription, events: &[Event], end: &mut Seq, now: Timestamp) -> usize {
    let first = *end;
    *end = end.plus(events.len() as u64);
    let mut inputs = VecDeque::from([Input::Appended { end: *end }]);
    let mut sent = 0;
    while let Some(input) = inputs.pop_front() {
        let CoreStep { write, effects } = core.process_input(input, now, Jitter(0.0));
        for effect in effects {
            match effect {
                Effect::ReadLog { lane, from, .. } => {
                    let placed = (first.0..)
                        .zip(events)
                        .skip((from.0 - first.0) as usize)
                        .map(|(seq, event)| {
                            let mut event = event.clone();
                            event.seq = Seq(seq);
                            event
                        });
                    let events: Vec<Event> = placed.collect();
                    inputs.push_back(Input::Read {
                        lane,
                        from,
                        upto: *end,
                        total: events.len() as u64,
                        events,
                    });
                }
                Effect::Send { request, .. } => {
                    sent += request.items.len();
                    let result = RequestResult {
                        status: Some(200),
                        ..RequestResult::from_outcome(Outcome::Delivered)
                    };
                    inputs.push_back(Input::Finished {
                        request: request.id,
                        result,
                    });
                }
                // All are as young as the first, where it is read.
                Effect::FindPosition { before } => {
                    inputs.push_back(Input::Position {
                        before,
                        at: first,
                        appended: Some(now),
                    });
                }
                // Nothing fails, so nothing else is asked for.
                _ => {}
            }
        }
        if black_box(write).is_some() {
            inputs.push_back(Input::Durable);
        }
    }
    sent
}

fn core(criterion: &mut Criterion) {
    let lane = LaneCursor::new(Lane::LIVE, Seq::FIRST, None);
    let cursor = Cursor {
        lanes: vec![lane],
        began: Seq::FIRST,
        ..Cursor::default()
    };
    let events = events();
    let now = Timestamp(1_615_410_176_000_000);
    let mut machine = Subscription::from_records(
        settings(),
        &cursor,
        Seq::FIRST,
        Vec::new(),
        RequestId(1),
        now,
    );
    let mut end = Seq::FIRST;
    assert_eq!(
        deliver(&mut machine, &events, &mut end, now),
        EVENTS,
        "each event is sent once"
    );
    let mut group = criterion.benchmark_group("core");
    group.throughput(Throughput::Elements(EVENTS as u64));
    group.bench_function("deliver", |bench| {
        bench.iter(|| deliver(&mut machine, &events, &mut end, now))
    });
    group.finish();
}

criterion_group!(pure, filters, chunks, records, core);
criterion_main!(pure);
