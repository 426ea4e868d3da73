//! A chunk: about 64 KiB of one request's events, as one record of the log.
//!
//! ```text
//! version 1 | schema 1 | appended 8 | running count 8 | running bytes 8 | count 4
//!     | table length 4 | table | wire forms
//! ```
//!
//! The number after a field is its length in bytes. For each event, the table contains varints: the
//! length of its wire form, the length of the strings after it (properties that filters need and
//! the wire form lacks, such as the defaults of a custom schema), and the ranges of its strings,
//! counted from the event's first byte. Version 3 has one more string for each event, its trace
//! context, and is written only for traced requests.
//!
//! Publishers write everything except the stamps ([`ChunkBuilder`]). The writer thread, which alone
//! knows the time of the append and the position in the log, adds the stamps in place
//! (`SealedChunk::into_log_chunk`), without copying the events or reading the table again. The
//! running count and bytes are those of the partition *before* this chunk, so a backlog is the
//! difference of two of them.

use std::ops::Range;

use bytes::{Buf as _, BufMut, Bytes, BytesMut};

use super::codec::{RecordReader, put_varint};
use crate as event;
use crate::{
    Event, EventBlock, EventParts, EventRanges, EventTable, Schema, Seq, TextRange, Timestamp,
};

/// The version of a chunk whose events have no trace contexts. Version 1 had no ranges for the
/// topic and time of a custom event, and none for the topic of a domain.
const UNTRACED_VERSION: u8 = 2;

/// The version of a chunk whose events have trace contexts.
const TRACED_VERSION: u8 = 3;

/// The length of version, schema, three stamps, count and table length.
const HEAD: usize = 1 + 1 + 8 + 8 + 8 + 4 + 4;

/// The offset of the stamps.
const STAMPS: usize = 2;

/// The number of strings of each event in a chunk of this version; [`None`] for an unknown version.
fn string_count(version: u8) -> Option<usize> {
    match version {
        UNTRACED_VERSION => Some(EventRanges::UNTRACED),
        TRACED_VERSION => Some(EventRanges::COUNT),
        _ => None,
    }
}

/// 64 KiB: a chunk is closed at this size, which bounds what is read to get one event.
const FULL: usize = 64 * 1024;

/// The room that is left for the table in front of the events: `TABLE_ROOM` bytes, and a byte for
/// each `TABLE_SHARE` bytes of events.
const TABLE_ROOM: usize = 32;
const TABLE_SHARE: usize = 16;

/// Why a chunk cannot be decoded.
#[derive(Debug, thiserror::Error)]
#[error("a chunk of the log is damaged: {0}")]
pub struct DamagedChunk(&'static str);

/// The events of one request before they are appended. All or none of them get into the log.
#[derive(Debug)]
pub struct ChunkBuilder {
    schema: Schema,
    version: u8,
    trace: Option<Box<str>>,
    /// The bytes that a chunk begins with room for.
    room: usize,
    full: Vec<SealedChunk>,
    open: OpenChunk,
}

#[derive(Debug, Default)]
struct OpenChunk {
    count: u32,
    table: Vec<u8>,
    /// Room for head and table, and then the wire forms.
    bytes: BytesMut,
    /// The length of that room.
    front: usize,
    /// What `table` encodes, for the readers that receive the chunk from the writer. Ranges count
    /// from the first byte of the buffer.
    events: Option<EventTable>,
}

/// Where the parts of a pushed event are in the buffer.
#[derive(Clone, Copy, Debug)]
pub struct EncodedEvent {
    /// The end of the wire form.
    pub wire_end: usize,
    /// The ranges of the strings.
    pub ranges: EventRanges,
}

/// A chunk that is complete except for its stamps.
#[derive(Debug)]
pub struct SealedChunk {
    /// The number of its events.
    pub count: u32,
    bytes: BytesMut,
    /// Unused bytes of the same allocation.
    spare: usize,
    events: EventTable,
}

impl ChunkBuilder {
    /// Creates a builder without events.
    pub fn new(schema: Schema) -> Self {
        Self {
            schema,
            version: UNTRACED_VERSION,
            trace: None,
            room: 0,
            full: Vec::new(),
            open: OpenChunk::default(),
        }
    }

    /// A builder without events, of the version and schema of a chunk.
    fn from_chunk(bytes: &[u8]) -> Result<Self, DamagedChunk> {
        let schema = bytes
            .get(1)
            .and_then(|byte| schema_of(*byte))
            .ok_or(DamagedChunk("its schema is unknown"))?;
        Ok(Self {
            version: bytes[0],
            ..Self::new(schema)
        })
    }

    /// Prepares for a request body of this length, so that a chunk is not copied while it grows.
    #[must_use]
    pub fn with_body_bytes(self, body_bytes: usize) -> Self {
        let stored_bytes = match self.schema {
            // The stored form of an event is longer than the published one.
            Schema::EventGrid | Schema::Custom => body_bytes + body_bytes / 2,
            Schema::CloudEvents => body_bytes,
        };
        Self {
            room: stored_bytes.min(FULL + FULL / 8),
            ..self
        }
    }

    /// Sets the trace context of the request.
    #[must_use]
    pub fn with_trace(self, trace: &str) -> Self {
        Self {
            version: TRACED_VERSION,
            trace: Some(trace.into()),
            ..self
        }
    }

    /// Adds the event that `write` appends to the buffer: its wire form, followed by strings that
    /// the wire form lacks. `write` returns the end of the wire form and the ranges of the strings
    /// in the buffer.
    pub fn push(&mut self, write: impl FnOnce(&mut BytesMut) -> EncodedEvent) {
        let open = &mut self.open;
        if open.count == 0 {
            // Enough for the tables of most chunks, so that sealing copies no event.
            open.front = HEAD + TABLE_ROOM + self.room / TABLE_SHARE;
            open.table.reserve(open.front - HEAD);
            open.bytes = BytesMut::with_capacity(open.front + self.room);
            open.bytes.put_bytes(0, open.front);
        }
        let before = open.bytes.len();
        let EncodedEvent {
            wire_end,
            mut ranges,
        } = write(&mut open.bytes);
        if let Some(trace) = &self.trace {
            ranges.trace = TextRange {
                start: open.bytes.len() as u32,
                len: trace.len() as u32,
            };
            open.bytes.extend_from_slice(trace.as_bytes());
        }
        put_varint(&mut open.table, (wire_end - before) as u64);
        put_varint(&mut open.table, (open.bytes.len() - wire_end) as u64);
        let strings = string_count(self.version).expect("a builder has a known version");
        let mut own_ranges = [TextRange::default(); EventRanges::COUNT];
        for (range, own_range) in ranges.all_ranges()[..strings].iter().zip(&mut own_ranges) {
            // An absent string has length 0 and no offset. Offsets are counted from the event's
            // first byte.
            put_varint(&mut open.table, u64::from(range.len));
            if range.len > 0 {
                put_varint(&mut open.table, u64::from(range.start) - before as u64);
                *own_range = *range;
            }
        }
        let wire = TextRange {
            start: before as u32,
            len: (wire_end - before) as u32,
        };
        let parts = EventParts {
            wire,
            ranges: EventRanges::from_ranges(own_ranges),
        };
        match &mut open.events {
            Some(events) => events.push(parts),
            None => open.events = Some(EventTable::new(parts)),
        }
        open.count += 1;
        if open.bytes.len() - open.front >= FULL {
            self.seal_open_chunk();
        }
    }

    /// Adds an event of another chunk.
    fn push_copy(&mut self, event: &Event) {
        self.push(|out| {
            let (wire_end, ranges) = event.copy_to(out);
            EncodedEvent { wire_end, ranges }
        });
    }

    /// Encodes one event as a chunk of its own, with its stamps, for the column family `Carried`.
    pub fn encode_single(event: &Event) -> Bytes {
        let version = if event.trace().is_some() {
            TRACED_VERSION
        } else {
            UNTRACED_VERSION
        };
        let mut builder = Self {
            version,
            ..Self::new(event.schema)
        };
        builder.push_copy(event);
        let chunk = builder
            .into_chunks()
            .pop()
            .expect("a builder with one event has one chunk");
        chunk.stamp_record(event.appended, RunningTotals::default())
    }

    /// The number of events added.
    pub fn count(&self) -> u32 {
        self.full.iter().map(|chunk| chunk.count).sum::<u32>() + self.open.count
    }

    /// Returns the chunks, in order.
    pub fn into_chunks(mut self) -> Vec<SealedChunk> {
        self.seal_open_chunk();
        self.full
    }

    fn seal_open_chunk(&mut self) {
        let OpenChunk {
            count,
            table,
            mut bytes,
            front,
            events,
        } = std::mem::take(&mut self.open);
        let Some(events) = events else { return };
        let before = HEAD + table.len();
        let len = bytes.len() - front;
        let has_room = before <= front && bytes.capacity() <= (before + len) * 3 / 2;
        if has_room {
            bytes.advance(front - before);
        } else {
            let mut copy = BytesMut::with_capacity(before + len);
            copy.put_bytes(0, before);
            copy.extend_from_slice(&bytes[front..]);
            bytes = copy;
        }
        let spare = bytes.capacity() - bytes.len() + if has_room { front - before } else { 0 };
        let mut head = &mut bytes[..before];
        head.put_u8(self.version);
        head.put_u8(schema_byte(self.schema));
        head.put_bytes(0, 24);
        head.put_u32(count);
        head.put_u32(u32::try_from(table.len()).expect("a table is far smaller than 4 GiB"));
        head.put_slice(&table);
        let events = events.rebase(front as u32, before as u32);
        self.full.push(SealedChunk {
            count,
            bytes,
            spare,
            events,
        });
    }
}

/// Running totals of a partition's log at a position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunningTotals {
    /// Events appended before this position.
    pub count: u64,
    /// Bytes appended before this position.
    pub bytes: u64,
}

impl SealedChunk {
    /// The length of the record in bytes.
    pub fn bytes_len(&self) -> usize {
        self.bytes.len()
    }

    /// The events, without their stamps.
    pub fn decode_events(&self) -> Result<Vec<Event>, DamagedChunk> {
        Chunk::decode(Seq::FIRST, Bytes::copy_from_slice(&self.bytes))?.decode_events()
    }

    /// The events for which `keep`, in their order, is true.
    pub fn keep_events(self, keep: &[bool]) -> Result<Vec<Self>, DamagedChunk> {
        if keep.iter().all(|keep| *keep) {
            return Ok(vec![self]);
        }
        let events = self.decode_events()?;
        let mut builder = ChunkBuilder::from_chunk(&self.bytes)?;
        for (event, _) in events.iter().zip(keep).filter(|(_, keep)| **keep) {
            builder.push_copy(event);
        }
        Ok(builder.into_chunks())
    }

    /// Adds the stamps and returns the record.
    pub fn stamp_record(self, appended: Timestamp, before: RunningTotals) -> Bytes {
        self.add_stamps(appended, before).0
    }

    /// The chunk as a record of the log, whose first event has the sequence `first`.
    ///
    /// # Errors
    /// If its end overflows.
    pub fn into_log_chunk(
        self,
        first: Seq,
        appended: Timestamp,
        before: RunningTotals,
    ) -> Result<Chunk, DamagedChunk> {
        let spare = self.spare;
        let (record, events) = self.add_stamps(appended, before);
        Ok(Chunk {
            events: Some(events),
            spare,
            ..Chunk::decode(first, record)?
        })
    }

    fn add_stamps(mut self, appended: Timestamp, before: RunningTotals) -> (Bytes, EventTable) {
        let mut stamps = &mut self.bytes[STAMPS..STAMPS + 24];
        stamps.put_u64(appended.0);
        stamps.put_u64(before.count);
        stamps.put_u64(before.bytes);
        (self.bytes.freeze(), self.events)
    }
}

/// A chunk of the log.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// The sequence of its first event. The others follow without gaps.
    pub first: Seq,
    /// The number of its events.
    pub count: u32,
    /// The time of the append.
    pub appended: Timestamp,
    /// The totals of the log before it.
    pub before: RunningTotals,
    bytes: Bytes,
    /// Unused bytes of the same allocation.
    spare: usize,
    schema: Schema,
    table_len: usize,
    strings: usize,
    /// The decoded table, if the chunk was not read from the log.
    events: Option<EventTable>,
}

impl Chunk {
    /// Decodes a record's header. The table is read with the events.
    pub fn decode(first: Seq, bytes: Bytes) -> Result<Self, DamagedChunk> {
        if u32::try_from(bytes.len()).is_err() {
            return Err(DamagedChunk("it is longer than any chunk"));
        }
        let mut head = RecordReader::new(&bytes);
        let strings = head
            .u8()
            .and_then(string_count)
            .ok_or(DamagedChunk("its version is unknown"))?;
        let schema = head
            .u8()
            .and_then(schema_of)
            .ok_or(DamagedChunk("its schema is unknown"))?;
        let mut read_u64 = || head.u64().ok_or(DamagedChunk("its head is cut off"));
        let append_time = Timestamp(read_u64()?);
        let before = RunningTotals {
            count: read_u64()?,
            bytes: read_u64()?,
        };
        let mut read_u32 = || head.u32().ok_or(DamagedChunk("its head is cut off"));
        let count = read_u32()?;
        let table_len = read_u32()? as usize;
        if count == 0 || bytes.len() < HEAD + table_len {
            return Err(DamagedChunk("its table is cut off"));
        }
        // An event has at least these varints in the table: two lengths and the lengths of its
        // strings.
        if count as usize > table_len / (2 + strings) {
            return Err(DamagedChunk("its count is larger than its table allows"));
        }
        let ends = [
            (first.0, u64::from(count)),
            (before.count, u64::from(count)),
            (before.bytes, bytes.len() as u64),
        ];
        if ends
            .iter()
            .any(|(before, more)| before.checked_add(*more).is_none())
        {
            return Err(DamagedChunk("its end overflows"));
        }
        Ok(Self {
            first,
            count,
            appended: append_time,
            before,
            bytes,
            spare: 0,
            schema,
            table_len,
            strings,
            events: None,
        })
    }

    /// The sequence after its last event.
    pub fn end_seq(&self) -> Seq {
        self.first.plus(u64::from(self.count))
    }

    /// The totals of the log at its end.
    pub fn totals_after(&self) -> RunningTotals {
        RunningTotals {
            count: self.before.count + u64::from(self.count),
            bytes: self.before.bytes + self.bytes.len() as u64,
        }
    }

    /// The length of the record in bytes.
    pub fn bytes_len(&self) -> usize {
        self.bytes.len()
    }

    /// What is stored. Counts a reference; copies nothing.
    pub fn to_record(&self) -> Bytes {
        self.bytes.clone()
    }

    /// The memory of the record in bytes.
    pub fn record_memory(&self) -> usize {
        self.bytes.len() + self.spare
    }

    /// The memory of the chunk in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.record_memory() + self.events.as_ref().map_or(0, EventTable::memory_bytes)
    }

    /// Decodes the events, in order. They share the chunk's bytes.
    pub fn decode_events(&self) -> Result<Vec<Event>, DamagedChunk> {
        self.clone().into_events()
    }

    /// As [`Chunk::decode_events`], without copying the table of a chunk that was not read from the
    /// log.
    pub fn into_events(mut self) -> Result<Vec<Event>, DamagedChunk> {
        let events = match self.events.take() {
            Some(events) => events,
            None => self.decode_table()?,
        };
        Ok(Event::from_block(
            self.first,
            self.appended,
            self.schema,
            EventBlock::new(self.bytes, events),
        ))
    }

    fn decode_table(&self) -> Result<EventTable, DamagedChunk> {
        let mut events: Option<EventTable> = None;
        self.visit_events(&mut |_, parts| match &mut events {
            Some(events) => events.push(parts),
            None => events = Some(EventTable::with_capacity(parts, self.count as usize)),
        })?;
        events.ok_or(DamagedChunk("it has no events"))
    }

    /// Visits the ids of the events, in order, without decoding the rest.
    pub fn each_id(&self, visit: &mut dyn FnMut(Seq, &str)) -> Result<(), DamagedChunk> {
        let visit = &mut |seq, parts: EventParts| {
            visit(
                seq,
                &event::unescape_text(&self.bytes[parts.ranges.id.range()]),
            )
        };
        let Some(events) = &self.events else {
            return self.visit_events(visit);
        };
        events
            .iter()
            .zip(0..)
            .for_each(|(parts, index)| visit(self.first.plus(index), *parts));
        Ok(())
    }

    /// Visits each event of the table: its sequence and its parts.
    fn visit_events(&self, visit: &mut dyn FnMut(Seq, EventParts)) -> Result<(), DamagedChunk> {
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
            let mut ranges = [TextRange::default(); EventRanges::COUNT];
            for range in &mut ranges[..self.strings] {
                *range = read_range(&mut table, at..end)
                    .ok_or(DamagedChunk("a string lies outside of its event"))?;
            }
            let wire = TextRange {
                start: at as u32,
                len: wire_len as u32,
            };
            visit(
                self.first.plus(u64::from(index)),
                EventParts {
                    wire,
                    ranges: EventRanges::from_ranges(ranges),
                },
            );
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

/// Reads the range of a string of an event; [`None`] if it lies outside of `event`.
fn read_range(table: &mut RecordReader<'_>, event: Range<usize>) -> Option<TextRange> {
    let len = table.varint()?;
    if len == 0 {
        return Some(TextRange::default());
    }
    let start = table.varint()?.checked_add(event.start as u64)?;
    (start.checked_add(len)? <= event.end as u64).then_some(TextRange {
        start: start as u32,
        len: len as u32,
    })
}

/// The sequence after the last event of the record `bytes`, without decoding the events: the
/// compaction filter calls it for every chunk. [`None`] if the record is damaged.
pub fn end_of(first: Seq, bytes: &[u8]) -> Option<Seq> {
    let mut head = RecordReader::new(bytes);
    head.u8().and_then(string_count)?;
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
