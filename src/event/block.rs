//! The block of a chunk: the bytes and tables that all events of the chunk share.
//!
//! An event is an index into its block. The block is freed with the last of its events.

use std::{iter, ops::Range};

use bytes::Bytes;

use super::{Event, Schema, forms::EventForms};

/// The range of a string in an event's chunk: the contents of a JSON string literal, without
/// quotes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextRange {
    /// Offset of its first byte from the start of the chunk.
    pub start: u32,
    /// Length in bytes; 0 if the event has no such string.
    pub len: u32,
}

impl TextRange {
    /// The bytes as a range of the block.
    pub fn range(self) -> Range<usize> {
        self.start as usize..(self.start + self.len) as usize
    }
}

/// The strings of an event that routing and headers need.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventRanges {
    /// `id`, which both schemas require.
    pub id: TextRange,
    /// `eventType`, or CloudEvents' `type`.
    pub event_type: TextRange,
    /// `subject`, which CloudEvents may omit.
    pub subject: TextRange,
    /// `dataVersion`; none in CloudEvents.
    pub data_version: TextRange,
    /// The topic's resource id, for custom events only. The other wire forms contain it.
    pub topic: TextRange,
    /// `eventTime`, if a custom event has it.
    pub event_time: TextRange,
    /// The name of the domain topic of the event, possibly inside a resource id. None outside of
    /// domains.
    pub domain_topic: TextRange,
    /// The trace context of the publish request, if it is traced. It is stored next to the wire
    /// form and is not JSON.
    pub trace: TextRange,
}

impl EventRanges {
    /// Number of ranges of a traced event.
    pub const COUNT: usize = 8;

    /// Number of ranges of an event that is not traced: all but the last.
    pub const UNTRACED: usize = Self::COUNT - 1;

    /// All ranges, in the order of a chunk's table.
    pub fn all_ranges(&self) -> [TextRange; Self::COUNT] {
        let Self {
            id,
            event_type,
            subject,
            data_version,
            topic,
            event_time,
            domain_topic,
            trace,
        } = *self;
        [
            id,
            event_type,
            subject,
            data_version,
            topic,
            event_time,
            domain_topic,
            trace,
        ]
    }

    /// The ranges in that order.
    pub fn from_ranges(all: [TextRange; Self::COUNT]) -> Self {
        let [
            id,
            event_type,
            subject,
            data_version,
            topic,
            event_time,
            domain_topic,
            trace,
        ] = all;
        Self {
            id,
            event_type,
            subject,
            data_version,
            topic,
            event_time,
            domain_topic,
            trace,
        }
    }
}

/// Where the parts of an event are in its chunk.
#[derive(Clone, Copy, Debug)]
pub struct EventParts {
    /// What a subscriber with the topic's own schema receives.
    pub wire: TextRange,
    /// Strings in the wire form, and those that it lacks, such as a custom event's topic.
    pub ranges: EventRanges,
}

/// Where the parts of the events of a chunk are. There is at least one event.
#[derive(Clone, Debug)]
pub struct EventTable {
    /// Apart from the others, so that a single event needs no list.
    first: EventParts,
    others: Vec<EventParts>,
}

/// The memory that the events of a chunk share.
#[derive(Debug)]
pub struct EventBlock {
    bytes: Bytes,
    table: EventTable,
    forms: EventForms,
}

impl EventParts {
    /// The parts, where what began at `old_start` begins at `new_start`.
    fn rebase(self, old_start: u32, new_start: u32) -> Self {
        let move_range = |range: TextRange| TextRange {
            start: range.start - old_start + new_start,
            ..range
        };
        let ranges = self.ranges.all_ranges().map(|range| {
            if range.len == 0 {
                range
            } else {
                move_range(range)
            }
        });
        Self {
            wire: move_range(self.wire),
            ranges: EventRanges::from_ranges(ranges),
        }
    }
}

impl EventTable {
    /// The table of a single event.
    pub fn new(first: EventParts) -> Self {
        Self::with_capacity(first, 1)
    }

    /// As [`EventTable::new`], with room for this many events.
    pub fn with_capacity(first: EventParts, count: usize) -> Self {
        Self {
            first,
            others: Vec::with_capacity(count.saturating_sub(1)),
        }
    }

    /// Adds an event after all others.
    pub fn push(&mut self, event: EventParts) {
        self.others.push(event);
    }

    /// In the order of the log.
    pub fn iter(&self) -> impl Iterator<Item = &EventParts> {
        iter::once(&self.first).chain(&self.others)
    }

    /// The table of the same events, where what began at `old_start` begins at `new_start`.
    pub fn rebase(mut self, old_start: u32, new_start: u32) -> Self {
        self.first = self.first.rebase(old_start, new_start);
        self.others
            .iter_mut()
            .for_each(|event| *event = event.rebase(old_start, new_start));
        self
    }

    /// The memory besides the table itself.
    pub fn memory_bytes(&self) -> usize {
        self.others.len() * size_of::<EventParts>()
    }
}

impl EventBlock {
    /// The block of `chunk`, whose events are those of `table`. No range is outside of the chunk.
    pub fn new(chunk: Bytes, table: EventTable) -> Self {
        Self {
            bytes: chunk,
            table,
            forms: EventForms::default(),
        }
    }

    /// The memory of a block of `count` events and of the events, apart from its bytes and their
    /// converted forms.
    pub fn memory_of_events(count: usize) -> usize {
        let reference_counts = 2 * size_of::<usize>();
        reference_counts
            + size_of::<Self>()
            + count * size_of::<Event>()
            + count.saturating_sub(1) * size_of::<EventParts>()
    }

    pub(super) fn count(&self) -> usize {
        self.table.others.len() + 1
    }

    /// The bytes of the chunk.
    pub(super) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    pub(super) fn slice_of(&self, range: TextRange) -> &[u8] {
        &self.bytes[range.range()]
    }

    /// Where the parts of the event at `index` are.
    pub(super) fn parts(&self, index: u32) -> &EventParts {
        match index.checked_sub(1) {
            None => &self.table.first,
            Some(other) => &self.table.others[other as usize],
        }
    }

    /// The event at `index` in another schema, converted by `make` on first use.
    pub(super) fn convert_once<E>(
        &self,
        index: u32,
        schema: Schema,
        make: impl FnOnce() -> Result<Bytes, E>,
    ) -> Result<Bytes, E> {
        self.forms
            .form_of_event(index as usize, self.count())
            .get_or_convert(schema, make)
    }
}
