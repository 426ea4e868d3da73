//! The record of an id that was published to a topic with duplicate detection.
//!
//! ```text
//! version 1 | accepted 8 | until 8 | seq | duplicates | 0, or 1 and last duplicate 8
//! ```
//!
//! The number after a field is its length in bytes; the other fields are varints.
//!
//! A record for each id, and not the id filters of the log's blocks: one lookup suffices for a
//! window of any length, and the log need not be kept as long as the window.

use std::{borrow::Cow, time::Duration};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::{RecordLayout, put_time, put_time_or_none, take_time, take_time_or_none};
use gridhook_event::{
    Event, Schema, Seq, Timestamp,
    codec::{RecordReader, put_varint},
};

/// The first 128 bits of a SHA-256 hash of what identifies an event in its topic. Two ids with the
/// same digest would be taken for one: by chance never, and on purpose only with 2^64 hashes, for a
/// publisher's own events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdDigest(pub u64, pub u64);

impl IdDigest {
    /// The digest of an event: of its id; in CloudEvents, of its `source` too; in a domain, of its
    /// domain topic too.
    pub fn from_event(event: &Event) -> Self {
        #[derive(Deserialize)]
        struct CloudEventSource<'a> {
            #[serde(borrow)]
            source: Cow<'a, str>,
        }
        let source = match event.schema {
            Schema::CloudEvents => {
                serde_json::from_slice::<CloudEventSource<'_>>(event.wire_bytes()).ok()
            }
            Schema::EventGrid | Schema::Custom => None,
        };
        let source = source.map(|event| event.source).unwrap_or_default();
        let mut hash = Sha256::new();
        // Each part with its length, so that no two lists of parts are the same bytes.
        for part in [&*event.domain_topic(), &*source, &*event.id()] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let hash = hash.finalize();
        let shift = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        let half = |at: usize| hash[at..at + 8].iter().fold(0, shift);
        Self(half(0), half(8))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PublishedId {
    /// The time at which the event was accepted.
    pub accepted: Timestamp,
    /// The end of the window at that time. The record may be removed from then on.
    pub until: Timestamp,
    pub seq: Seq,
    /// Number of times that the event was published again within the window.
    pub duplicates: u64,
    pub last: Option<Timestamp>,
}

impl PublishedId {
    /// The record of an event that is accepted now.
    pub fn new(seq: Seq, accepted: Timestamp, window: Duration) -> Self {
        Self {
            accepted,
            until: accepted.after(window),
            seq,
            duplicates: 0,
            last: None,
        }
    }

    /// Whether an event that is published at `now` is a duplicate. A window that became longer
    /// counts for later events: the records of earlier ones may be gone. An id that was accepted
    /// later than now, by a clock that was wrong, is known for no longer than a window either.
    pub fn is_known(&self, now: Timestamp, window: Duration) -> bool {
        now < self.until.min(self.accepted.after(window)) && self.accepted.since(now) < window
    }
}

impl RecordLayout for PublishedId {
    const NAME: &'static str = "published id";

    fn write_fields(&self, out: &mut Vec<u8>) {
        put_time(out, self.accepted);
        put_time(out, self.until);
        put_varint(out, self.seq.0);
        put_varint(out, self.duplicates);
        put_time_or_none(out, self.last);
    }

    fn read_fields(_: u8, reader: &mut RecordReader<'_>) -> Option<Self> {
        Some(Self {
            accepted: take_time(reader)?,
            until: take_time(reader)?,
            seq: Seq(reader.varint()?),
            duplicates: reader.varint()?,
            last: take_time_or_none(reader)?,
        })
    }
}
