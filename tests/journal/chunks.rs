use bytes::{BufMut, Bytes};
use gridhook::event::{
    EventRanges, Schema, Seq, TextRange, Timestamp, Transformation,
    chunk::{Chunk, ChunkBuilder, EncodedEvent, RunningTotals, end_of},
};
use proptest::prelude::*;

use super::chunk;

/// The offset of the event count in a chunk.
const COUNT: usize = 26;

#[test]
fn a_chunk_is_read_back_as_it_was_written() {
    let bytes = chunk(3, 100);
    let read = Chunk::decode(Seq(5), bytes.clone()).expect("a whole chunk");
    assert_eq!(
        (read.count, read.end_seq(), read.bytes_len()),
        (3, Seq(8), bytes.len())
    );
    assert_eq!(end_of(Seq(5), &bytes), Some(Seq(8)));
    let events = read.decode_events().expect("whole events");
    assert_eq!(
        events
            .iter()
            .map(|event| (event.seq, event.wire_len()))
            .collect::<Vec<_>>(),
        [(Seq(5), 100), (Seq(6), 100), (Seq(7), 100)]
    );
}

#[test]
fn a_chunk_is_the_same_whether_its_table_fits_in_front_of_the_events_or_not() {
    for (count, wire_bytes) in [(1, 40), (1, 600), (3, 20_000), (90, 600), (400, 40)] {
        let wire = |index: usize| {
            format!(
                "{{\"id\":\"{index:03}\",\"pad\":\"{}\"}}",
                "x".repeat(wire_bytes - 21)
            )
        };
        let sealed = |body_bytes: usize| {
            let mut draft = ChunkBuilder::new(Schema::EventGrid).with_body_bytes(body_bytes);
            for index in 0..count {
                draft.push(|out| {
                    let id = TextRange {
                        start: out.len() as u32 + 7,
                        len: 3,
                    };
                    out.put_slice(wire(index).as_bytes());
                    EncodedEvent {
                        wire_end: out.len(),
                        ranges: EventRanges {
                            id,
                            ..EventRanges::default()
                        },
                    }
                });
            }
            draft.into_chunks().pop().expect("a chunk")
        };
        let expected = sealed(0).stamp_record(Timestamp(9), RunningTotals::default());
        for body_bytes in [count * wire_bytes * 3 / 4, 1 << 20] {
            assert_eq!(
                sealed(body_bytes).stamp_record(Timestamp(9), RunningTotals::default()),
                expected,
                "{count} of {wire_bytes}"
            );
            let appended = sealed(body_bytes)
                .into_log_chunk(Seq(5), Timestamp(9), RunningTotals::default())
                .expect("a chunk");
            assert!((expected.len()..expected.len() * 8 / 5).contains(&appended.record_memory()));
            for (index, event) in appended
                .decode_events()
                .expect("whole events")
                .iter()
                .enumerate()
            {
                assert_eq!(
                    (event.to_wire_bytes(), &*event.id()),
                    (wire(index).into(), &*format!("{index:03}"))
                );
            }
        }
    }
}

/// Two events of a request with this trace context.
fn traced(place: &str) -> Bytes {
    let mut draft = ChunkBuilder::new(Schema::CloudEvents).with_trace(place);
    for wire in ["{\"id\":\"one\"}", "{\"id\":\"two\"}"] {
        draft.push(|out| {
            let start = out.len() as u32;
            out.put_slice(wire.as_bytes());
            EncodedEvent {
                wire_end: out.len(),
                ranges: EventRanges {
                    id: TextRange {
                        start: start + 7,
                        len: 3,
                    },
                    ..EventRanges::default()
                },
            }
        });
    }
    let sealed = draft.into_chunks().pop().expect("a chunk");
    sealed.stamp_record(Timestamp(9), RunningTotals::default())
}

#[test]
fn the_place_in_a_trace_stands_beside_an_event_and_stays_with_it_where_it_is_held() {
    let place = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01 vendor=1";
    let bytes = traced(place);
    assert_eq!((bytes[0], end_of(Seq(5), &bytes)), (3, Some(Seq(7))));
    let events = Chunk::decode(Seq(5), bytes)
        .and_then(|chunk| chunk.decode_events())
        .expect("whole events");
    for (event, id) in events.iter().zip(["one", "two"]) {
        let held = Chunk::decode(event.seq, ChunkBuilder::encode_single(event))
            .and_then(|chunk| chunk.decode_events())
            .expect("one event");
        for event in [event, &held[0], &event.detach_from_chunk()] {
            assert_eq!((event.trace(), &*event.id()), (Some(place), id));
            assert_eq!(
                event.to_wire_bytes(),
                format!("{{\"id\":\"{id}\"}}"),
                "the wire form is what was published"
            );
        }
    }
}

#[test]
fn an_event_that_leaves_its_chunk_keeps_its_transformation() {
    let event = &Chunk::decode(Seq(1), chunk(1, 20))
        .and_then(|chunk| chunk.decode_events())
        .expect("an event")[0];
    let transformed = event
        .clone()
        .with_transformation(Transformation::Failed("why".to_owned()));
    assert_eq!(
        transformed.detach_from_chunk().transformation(),
        transformed.transformation()
    );
}

#[test]
fn a_chunk_without_places_in_traces_costs_nothing_for_them() {
    let bytes = chunk(1, 20);
    let event = &Chunk::decode(Seq(1), bytes.clone())
        .and_then(|chunk| chunk.decode_events())
        .expect("an event")[0];
    assert_eq!(
        (
            bytes[0],
            event.trace(),
            ChunkBuilder::encode_single(event)[0]
        ),
        (2, None, 2)
    );
    let other = [&[4], &bytes[1..]].concat();
    assert!(
        Chunk::decode(Seq(1), other.clone().into()).is_err() && end_of(Seq(1), &other).is_none()
    );
}

#[test]
fn a_traced_chunk_that_is_cut_anywhere_is_damaged() {
    let bytes = traced("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    for cut in 0..bytes.len() {
        let events =
            Chunk::decode(Seq(1), bytes.slice(..cut)).and_then(|chunk| chunk.decode_events());
        assert!(events.is_err(), "cut at {cut}");
    }
}

#[test]
fn a_chunk_that_is_cut_anywhere_is_damaged() {
    let bytes = chunk(3, 20);
    for cut in 0..bytes.len() {
        let events =
            Chunk::decode(Seq(1), bytes.slice(..cut)).and_then(|chunk| chunk.decode_events());
        assert!(events.is_err(), "cut at {cut}");
    }
}

#[test]
fn a_chunk_that_claims_four_thousand_million_events_is_damaged_before_room_is_made_for_them() {
    let mut bytes = chunk(3, 20).to_vec();
    bytes[COUNT..COUNT + 4].fill(0xff);
    assert!(Chunk::decode(Seq(1), bytes.into()).is_err());
}

#[test]
fn a_chunk_that_ends_past_all_counting_is_damaged() {
    assert!(Chunk::decode(Seq(u64::MAX - 1), chunk(3, 20)).is_err());
    assert_eq!(end_of(Seq(u64::MAX - 1), &chunk(3, 20)), None);
}

proptest! {
    #[test]
    fn a_chunk_with_one_byte_changed_is_read_or_refused_without_a_panic(at in 0usize..200, byte: u8) {
        let mut bytes = chunk(3, 20).to_vec();
        let at = at % bytes.len();
        bytes[at] = byte;
        if let Ok(chunk) = Chunk::decode(Seq(1), bytes.into())
            && let Ok(events) = chunk.decode_events()
        {
            for event in events {
                prop_assert!(event.wire_len() <= chunk.bytes_len());
                prop_assert!(event.id().len() <= 3 * chunk.bytes_len());
            }
        }
    }

    #[test]
    fn random_bytes_are_no_chunk_and_no_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), first: u64) {
        let refused = Chunk::decode(Seq(first), bytes.into()).and_then(|chunk| chunk.decode_events()).is_err();
        prop_assert!(refused);
    }
}
