//! Builds chunks of a log from events.

use bytes::BufMut;
use gridhook::event::{
    EventRanges, Schema, TextRange,
    chunk::{ChunkBuilder, EncodedEvent, SealedChunk},
};

/// Seals events with these subjects, and this number of further bytes.
pub(crate) fn sealed(events: &[(&str, usize)]) -> Vec<SealedChunk> {
    let mut draft = ChunkBuilder::new(Schema::EventGrid);
    for (subject, bytes) in events {
        draft.push(|out| {
            let start = out.len() as u32;
            out.put_slice(subject.as_bytes());
            out.put_bytes(b'.', *bytes);
            let ranges = EventRanges {
                subject: TextRange {
                    start,
                    len: subject.len() as u32,
                },
                ..EventRanges::default()
            };
            EncodedEvent {
                wire_end: out.len(),
                ranges,
            }
        });
    }
    draft.into_chunks()
}
