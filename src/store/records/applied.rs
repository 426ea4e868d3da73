//! The record of how far a store has applied its changelog: sequence | chain 4 | epoch | number.

use super::{RecordLayout, StoredRecord as _};
use crate::{
    Family, Store, StoreError,
    keys::{self, MetaKind},
};
use gridhook_event::codec::{RecordReader, put_varint};

/// A position in a changelog: that of the last record that was applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AppliedPosition {
    /// The sequence of that record; 0 before the first one.
    pub sequence: u64,
    /// The checksum of all records up to it.
    pub chain: u32,
    /// The epoch in which the record was written; 0 after a release.
    pub epoch: u64,
    /// The number of the record within the epoch.
    pub number: u64,
}

impl AppliedPosition {
    /// What a store has applied; [`None`] if it has no record of that.
    pub fn read(store: &dyn Store) -> Result<Option<Self>, StoreError> {
        let record = store.get(Family::Meta, &keys::meta_key(MetaKind::Applied, b""))?;
        record
            .map(|value| Self::decode(&value).map_err(StoreError::damaged))
            .transpose()
    }
}

impl RecordLayout for AppliedPosition {
    const NAME: &'static str = "applied position";

    fn write_fields(&self, out: &mut Vec<u8>) {
        put_varint(out, self.sequence);
        out.extend_from_slice(&self.chain.to_be_bytes());
        put_varint(out, self.epoch);
        put_varint(out, self.number);
    }

    fn read_fields(_: u8, reader: &mut RecordReader<'_>) -> Option<Self> {
        Some(Self {
            sequence: reader.varint()?,
            chain: reader.u32()?,
            epoch: reader.varint()?,
            number: reader.varint()?,
        })
    }
}
