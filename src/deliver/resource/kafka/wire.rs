//! Records as a broker stores them (the format with magic 2), of an idempotent producer (KIP-98):
//! with its id and a sequence number. They are encoded straight from the bytes of the events.

/// The producer id of a producer that is not idempotent, and its sequence number.
const NO_PRODUCER: (ProducerId, i32) = (ProducerId { id: -1, epoch: -1 }, -1);

/// The identity that the cluster assigns to a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProducerId {
    pub(super) id: i64,
    pub(super) epoch: i16,
}

/// The position of a producer in a partition. The broker takes each sequence number once, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Session {
    producer: ProducerId,
    /// The sequence number of the next record.
    sequence: i32,
}

impl Session {
    /// The session of a producer with a new id.
    pub(super) fn new(producer: ProducerId) -> Self {
        Self {
            producer,
            sequence: 0,
        }
    }

    /// The session of a producer without an id: the broker takes all records, also those that it has
    /// already.
    pub(super) fn without_id() -> Self {
        let (producer, sequence) = NO_PRODUCER;
        Self { producer, sequence }
    }

    /// Whether the broker drops what it has already.
    pub(super) fn is_idempotent(self) -> bool {
        self.producer != NO_PRODUCER.0
    }

    /// The position behind `count` more records.
    pub(super) fn advance_by(self, count: i32) -> Self {
        if !self.is_idempotent() {
            return self;
        }
        // After the largest number comes 0.
        Self {
            sequence: self.sequence.wrapping_add(count) & i32::MAX,
            ..self
        }
    }
}

#[derive(Default)]
pub(super) struct RecordHeaders {
    bytes: Vec<u8>,
    count: i64,
}

impl RecordHeaders {
    /// The length of the encoded headers, in bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    fn push(&mut self, name: &str, value: &[u8]) {
        self.count += 1;
        for part in [name.as_bytes(), value] {
            put_varint(&mut self.bytes, part.len() as i64);
            self.bytes.extend(part);
        }
    }
}

impl<N: AsRef<str>, V: AsRef<[u8]>> FromIterator<(N, V)> for RecordHeaders {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(pairs: I) -> Self {
        let mut headers = Self::default();
        pairs
            .into_iter()
            .for_each(|(name, value)| headers.push(name.as_ref(), value.as_ref()));
        headers
    }
}

/// Offsets of the fields of a record batch.
mod at {
    pub(super) const LENGTH: usize = 8;
    pub(super) const LEADER_EPOCH: usize = 12;
    pub(super) const MAGIC: usize = 16;
    pub(super) const CRC: usize = 17;
    pub(super) const ATTRIBUTES: usize = 21;
    pub(super) const LAST_OFFSET: usize = 23;
    pub(super) const FIRST_TIMESTAMP: usize = 27;
    pub(super) const MAX_TIMESTAMP: usize = 35;
    pub(super) const PRODUCER_ID: usize = 43;
    pub(super) const PRODUCER_EPOCH: usize = 51;
    pub(super) const SEQUENCE: usize = 53;
    pub(super) const COUNT: usize = 57;
    pub(super) const RECORDS: usize = 61;
}

/// The version of the format of records.
const MAGIC: u8 = 2;

/// The attributes, timestamp and lengths of a record have no more bytes than this.
pub(super) const RECORD_OVERHEAD: usize = 32;

/// Records of a partition, uncompressed, encoded as the broker stores them.
pub(super) struct RecordBatch {
    bytes: Vec<u8>,
    count: i32,
}

impl RecordBatch {
    /// Makes a batch without records. All records get `timestamp`, in milliseconds since 1970.
    /// `capacity` is the length of their encoding, in bytes.
    pub(super) fn new(timestamp: u64, capacity: usize) -> Self {
        let mut bytes = Vec::with_capacity(at::RECORDS + capacity);
        bytes.resize(at::RECORDS, 0);
        let mut batch = Self { bytes, count: 0 };
        batch.put_field(at::LEADER_EPOCH, (-1_i32).to_be_bytes());
        batch.put_field(at::MAGIC, [MAGIC]);
        for field in [at::FIRST_TIMESTAMP, at::MAX_TIMESTAMP] {
            batch.put_field(field, timestamp.to_be_bytes());
        }
        batch
    }

    pub(super) fn record_count(&self) -> i32 {
        self.count
    }

    pub(super) fn push(
        &mut self,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &RecordHeaders,
    ) {
        let offset = i64::from(self.count);
        // One byte of attributes, and one for the difference of its timestamp: 0.
        let length = 2
            + varint_len(offset)
            + encoded_len(key)
            + encoded_len(value)
            + varint_len(headers.count)
            + headers.bytes.len();
        let out = &mut self.bytes;
        put_varint(out, length as i64);
        out.extend([0, 0]);
        put_varint(out, offset);
        for part in [key, value] {
            put_varint(out, part.map_or(-1, |part| part.len() as i64));
            out.extend(part.unwrap_or_default());
        }
        put_varint(out, headers.count);
        out.extend(&headers.bytes);
        self.count += 1;
    }

    /// The bytes of the batch at this position of a producer.
    pub(super) fn seal_at(&mut self, session: Session) -> &[u8] {
        let Session { producer, sequence } = session;
        self.put_field(
            at::LENGTH,
            ((self.bytes.len() - at::LEADER_EPOCH) as i32).to_be_bytes(),
        );
        self.put_field(at::LAST_OFFSET, (self.count - 1).to_be_bytes());
        self.put_field(at::PRODUCER_ID, producer.id.to_be_bytes());
        self.put_field(at::PRODUCER_EPOCH, producer.epoch.to_be_bytes());
        self.put_field(at::SEQUENCE, sequence.to_be_bytes());
        self.put_field(at::COUNT, self.count.to_be_bytes());
        let crc = crc32c::crc32c(&self.bytes[at::ATTRIBUTES..]);
        self.put_field(at::CRC, crc.to_be_bytes());
        &self.bytes
    }

    fn put_field<const N: usize>(&mut self, offset: usize, field: [u8; N]) {
        self.bytes[offset..offset + N].copy_from_slice(&field);
    }
}

/// Encodes a number so that those near zero are small: 0, -1, 1, -2, 2 … become 0, 1, 2, 3, 4 …
fn zigzag_encode(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

/// The length of a key or value with its length before it, which is -1 for none.
fn encoded_len(part: Option<&[u8]>) -> usize {
    match part {
        Some(part) => varint_len(part.len() as i64) + part.len(),
        None => varint_len(-1),
    }
}

/// The number of bytes that [`put_varint`] appends.
fn varint_len(number: i64) -> usize {
    let bits = 64 - (zigzag_encode(number) | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Appends a number, seven bits a byte, the lowest first.
fn put_varint(out: &mut Vec<u8>, number: i64) {
    let mut left = zigzag_encode(number);
    while left > 0x7f {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}
