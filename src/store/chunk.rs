//! A chunk: up to 64 KiB of one request's events, as one record of the log.
//!
//! ```text
//! version 1 | schema 1 | appended 8 | running count 8 | running bytes 8 | count 4 | table length 4 | table | wire forms
//! ```
//!
//! The table has, for each event, the length of its wire form, the length of what follows it (strings that routing asks
//! for and that the wire form does not have: the defaults of a custom schema) and the places of its strings, counted
//! from its own first byte, as varints. Version 3 has one string more for each event: its place in a trace. It is written
//! where that is recorded, and nowhere else. Publishers write everything but the stamps ([`ChunkBuilder`]); the writer thread, which
//! alone knows the time of the append and what stands before it in the log, puts these in ([`SealedChunk::stamp`]) without a
//! copy of the events. The running count and bytes are those of the partition *before* this chunk: a backlog is a
//! difference of two.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};

use super::codec::{RecordReader, put_varint};
use crate::event::{self, Event, EventForms, EventRanges, Schema, Seq, TextRange, Timestamp};

/// The format of this record; 1 had no places for a custom event's topic and time, and none for a domain's topic.
const VERSION: u8 = 2;

/// The same with places in traces.
const TRACED: u8 = 3;

/// Version, schema, three stamps, count and length of the table.
const HEAD: usize = 1 + 1 + 8 + 8 + 8 + 4 + 4;

/// Where the stamps begin.
const STAMPS: usize = 2;

/// How many strings a line of the table has in a chunk of this version; [`None`] where there is no such version.
fn strings(version: u8) -> Option<usize> {
    match version {
        VERSION => Some(EventRanges::UNTRACED),
        TRACED => Some(EventRanges::COUNT),
        _ => None,
    }
}

/// 64 KiB: a reader that wants one event reads no more than this beside it.
const FULL: usize = 64 * 1024;

/// What a damaged chunk is refused for.
#[derive(Debug, thiserror::Error)]
#[error("a chunk of the log is damaged: {0}")]
pub struct DamagedChunk(&'static str);

/// The events of one request, on their way into the log. All or none of them will be there.
#[derive(Debug)]
pub struct ChunkBuilder {
    schema: Schema,
    version: u8,
    trace: Option<Box<str>>,
    full: Vec<SealedChunk>,
    open: OpenChunk,
}

#[derive(Debug, Default)]
struct OpenChunk {
    count: u32,
    table: Vec<u8>,
    wires: BytesMut,
}

/// What the writer of an event says of it.
#[derive(Clone, Copy, Debug)]
pub struct WriterStamp {
    /// The buffer's length behind the wire form.
    pub wire_end: usize,
    /// Where in the buffer the strings stand.
    pub spans: EventRanges,
}

/// A chunk that wants nothing but its stamps.
#[derive(Debug)]
pub struct SealedChunk {
    /// How many events are in it.
    pub count: u32,
    bytes: BytesMut,
}

impl ChunkBuilder {
    /// A draft without events.
    pub fn new(schema: Schema) -> Self {
        Self { schema, version: VERSION, trace: None, full: Vec::new(), open: OpenChunk::default() }
    }

    /// The same, of a request that has this place in a trace.
    #[must_use]
    pub fn traced(self, place: &str) -> Self {
        Self { version: TRACED, trace: Some(place.into()), ..self }
    }

    /// Adds the event that `write` appends to the buffer: its wire form and then, if there are any, strings that the
    /// wire form lacks. `write` returns where the wire form ends and where, in the buffer, the strings stand.
    pub fn push(&mut self, write: impl FnOnce(&mut BytesMut) -> WriterStamp) {
        let open = &mut self.open;
        let before = open.wires.len();
        let WriterStamp { wire_end, mut spans } = write(&mut open.wires);
        if let Some(place) = &self.trace {
            spans.trace = TextRange { start: open.wires.len() as u32, len: place.len() as u32 };
            open.wires.put_slice(place.as_bytes());
        }
        put_varint(&mut open.table, (wire_end - before) as u64);
        put_varint(&mut open.table, (open.wires.len() - wire_end) as u64);
        let strings = strings(self.version).expect("a draft is of a version that there is");
        for span in &spans.all()[..strings] {
            // A string that is absent stands at 0; one that is there is counted from its event's first byte.
            put_varint(&mut open.table, u64::from(span.len));
            if span.len > 0 {
                put_varint(&mut open.table, u64::from(span.start) - before as u64);
            }
        }
        open.count += 1;
        if open.wires.len() >= FULL {
            self.seal();
        }
    }

    /// One event as a chunk of its own, with the stamps that it has: what is held when the log behind it goes.
    pub fn hold(event: &Event) -> Bytes {
        let version = if event.trace().is_some() { TRACED } else { VERSION };
        let mut draft = Self { version, ..Self::new(event.schema) };
        draft.push(|out| {
            let (wire_end, spans) = event.copy_to(out);
            WriterStamp { wire_end, spans }
        });
        let chunk = draft.into_chunks().pop().expect("a draft with one event has one chunk");
        chunk.stamp(event.appended, LogTail::default())
    }

    /// How many events were added.
    pub fn count(&self) -> u32 {
        self.full.iter().map(|chunk| chunk.count).sum::<u32>() + self.open.count
    }

    /// The chunks, in order.
    pub fn into_chunks(mut self) -> Vec<SealedChunk> {
        self.seal();
        self.full
    }

    fn seal(&mut self) {
        let OpenChunk { count, table, wires } = std::mem::take(&mut self.open);
        if count == 0 {
            return;
        }
        let mut bytes = BytesMut::with_capacity(HEAD + table.len() + wires.len());
        bytes.put_u8(self.version);
        bytes.put_u8(schema_byte(self.schema));
        bytes.put_bytes(0, 24);
        bytes.put_u32(count);
        bytes.put_u32(u32::try_from(table.len()).expect("a table is far smaller than 4 GiB"));
        bytes.put_slice(&table);
        bytes.put_slice(&wires);
        self.full.push(SealedChunk { count, bytes });
    }
}

/// What the writer knows of a partition's log at one of its places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogTail {
    /// Events appended before this place.
    pub count: u64,
    /// Bytes appended before this place.
    pub bytes: u64,
}

impl SealedChunk {
    /// How many bytes the record has.
    pub fn bytes_len(&self) -> usize {
        self.bytes.len()
    }

    /// Puts the stamps in; the chunk is whole now.
    pub fn stamp(mut self, appended: Timestamp, before: LogTail) -> Bytes {
        let mut stamps = &mut self.bytes[STAMPS..STAMPS + 24];
        stamps.put_u64(appended.0);
        stamps.put_u64(before.count);
        stamps.put_u64(before.bytes);
        self.bytes.freeze()
    }
}

/// A chunk of the log, as it is read.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// The place of its first event; the others follow without a gap.
    pub first: Seq,
    /// How many events it has.
    pub count: u32,
    /// When it was appended.
    pub appended: Timestamp,
    /// What stands before it in the log.
    pub before: LogTail,
    bytes: Bytes,
    schema: Schema,
    table_len: usize,
    strings: usize,
}

impl Chunk {
    /// Reads a record's head. The table is read when the events are.
    pub fn decode(first: Seq, bytes: Bytes) -> Result<Self, DamagedChunk> {
        if u32::try_from(bytes.len()).is_err() {
            return Err(DamagedChunk("it is longer than any chunk"));
        }
        let mut head = RecordReader::new(&bytes);
        let strings = head.u8().and_then(strings).ok_or(DamagedChunk("its version is unknown"))?;
        let schema = head.u8().and_then(schema_of).ok_or(DamagedChunk("its schema is unknown"))?;
        let mut word = || head.u64().ok_or(DamagedChunk("its head is cut off"));
        let appended = Timestamp(word()?);
        let before = LogTail { count: word()?, bytes: word()? };
        let mut half = || head.u32().ok_or(DamagedChunk("its head is cut off"));
        let count = half()?;
        let table_len = half()? as usize;
        if count == 0 || bytes.len() < HEAD + table_len {
            return Err(DamagedChunk("its table is cut off"));
        }
        // A line has at least these varints: two lengths and the lengths of its strings.
        if count as usize > table_len / (2 + strings) {
            return Err(DamagedChunk("it has more events than its table"));
        }
        let ends = [(first.0, u64::from(count)), (before.count, u64::from(count)), (before.bytes, bytes.len() as u64)];
        if ends.iter().any(|(before, more)| before.checked_add(*more).is_none()) {
            return Err(DamagedChunk("it ends past all counting"));
        }
        Ok(Self { first, count, appended, before, bytes, schema, table_len, strings })
    }

    /// The place behind its last event.
    pub fn end(&self) -> Seq {
        self.first.plus(u64::from(self.count))
    }

    /// What stands in the log before its end.
    pub fn after(&self) -> LogTail {
        LogTail { count: self.before.count + u64::from(self.count), bytes: self.before.bytes + self.bytes.len() as u64 }
    }

    /// How many bytes the record has.
    pub fn bytes_len(&self) -> usize {
        self.bytes.len()
    }

    /// The events, in order. They share the chunk's bytes.
    pub fn events(&self) -> Result<Vec<Event>, DamagedChunk> {
        let mut events = Vec::with_capacity(self.count as usize);
        let forms = EventForms::new(self.count as usize);
        self.each(&mut |seq, index, wire, spans| {
            let event = Event::new(seq, self.appended, self.schema, self.bytes.clone(), wire, spans);
            events.push(event.sharing(Arc::clone(&forms), index));
        })?;
        Ok(events)
    }

    /// The ids of the events, in order, without a look at anything else.
    pub fn each_id(&self, visit: &mut dyn FnMut(Seq, &str)) -> Result<(), DamagedChunk> {
        self.each(&mut |seq, _, _, spans| visit(seq, &event::text(&self.bytes[spans.id.range()])))
    }

    /// Each line of the table: an event's place in the log and in the chunk, its wire form and its strings.
    fn each(&self, visit: &mut dyn FnMut(Seq, u32, TextRange, EventRanges)) -> Result<(), DamagedChunk> {
        let mut table = RecordReader::new(&self.bytes[HEAD..HEAD + self.table_len]);
        let mut at = HEAD + self.table_len;
        for index in 0..self.count {
            let (Some(wire_len), Some(rest_len)) = (table.varint(), table.varint()) else {
                return Err(DamagedChunk("its table is cut off"));
            };
            let left = (self.bytes.len() - at) as u64;
            if wire_len > left || rest_len > left - wire_len {
                return Err(DamagedChunk("an event is cut off"));
            }
            let end = at + (wire_len + rest_len) as usize;
            let mut span = || {
                let len = table.varint().filter(|len| *len <= self.bytes.len() as u64)?;
                if len == 0 {
                    return Some(TextRange::default());
                }
                let start = at as u64 + table.varint().filter(|start| *start <= self.bytes.len() as u64)?;
                (start + len <= end as u64).then_some(TextRange { start: start as u32, len: len as u32 })
            };
            let mut spans = [TextRange::default(); EventRanges::COUNT];
            for place in &mut spans[..self.strings] {
                *place = span().ok_or(DamagedChunk("a string lies outside of its event"))?;
            }
            let wire = TextRange { start: at as u32, len: wire_len as u32 };
            visit(self.first.plus(u64::from(index)), index, wire, EventRanges::of(spans));
            at = end;
        }
        if !table.is_empty() {
            return Err(DamagedChunk("bytes follow its table"));
        }
        if at != self.bytes.len() {
            return Err(DamagedChunk("bytes follow its last event"));
        }
        Ok(())
    }
}

/// The place behind the last event of the record `bytes`, without a look at the events: for the compaction filter,
/// which asks it of every chunk that it is shown. [`None`] where the record is damaged.
pub fn end_of(first: Seq, bytes: &[u8]) -> Option<Seq> {
    let mut head = RecordReader::new(bytes);
    head.u8().and_then(strings)?;
    head.take(HEAD - 4 - 4 - 1)?;
    let count = head.u32().filter(|count| *count > 0)?;
    first.0.checked_add(u64::from(count)).map(Seq)
}

fn schema_byte(schema: Schema) -> u8 {
    match schema {
        Schema::EventGrid => 1,
        Schema::CloudEvents => 2,
        Schema::Custom => 3,
    }
}

fn schema_of(byte: u8) -> Option<Schema> {
    match byte {
        1 => Some(Schema::EventGrid),
        2 => Some(Schema::CloudEvents),
        3 => Some(Schema::Custom),
        _ => None,
    }
}
