//! Reads of records, shared by the open store and the read-only store.

use std::ops::ControlFlow;

use bytes::Bytes;
use rocksdb::{ColumnFamily, DB, ReadOptions};

use super::rocksdb_error;
use crate::{StoreError, Visit};

pub(super) fn get(db: &DB, family: &ColumnFamily, key: &[u8]) -> Result<Option<Bytes>, StoreError> {
    let pinned_value = db.get_pinned_cf(family, key).map_err(rocksdb_error)?;
    Ok(pinned_value.map(|value| Bytes::copy_from_slice(&value)))
}

/// Reads records together: in the order of their keys, each filter and block is read once.
pub(super) fn get_all(
    db: &DB,
    family: &ColumnFamily,
    keys: &[Vec<u8>],
) -> Result<Vec<Option<Bytes>>, StoreError> {
    let mut values = Vec::with_capacity(keys.len());
    for record in db.batched_multi_get_cf(family, keys, false) {
        let record = record.map_err(rocksdb_error)?;
        values.push(record.map(|value| Bytes::copy_from_slice(&value)));
    }
    Ok(values)
}

/// Options for reads that do not fill the block cache.
pub(super) fn uncached_options() -> ReadOptions {
    let mut options = ReadOptions::default();
    options.fill_cache(false);
    options
}

/// Visits the records from `from` to below `upper`.
pub(super) fn scan_records(
    db: &DB,
    family: &ColumnFamily,
    mut options: ReadOptions,
    from: &[u8],
    upper: &[u8],
    visit: &mut Visit<'_>,
) -> Result<(), StoreError> {
    options.set_iterate_upper_bound(upper);
    let mut records = db.raw_iterator_cf_opt(family, options);
    records.seek(from);
    while let Some((key, value)) = records.item() {
        if visit(key, value) == ControlFlow::Break(()) {
            return Ok(());
        }
        records.next();
    }
    records.status().map_err(rocksdb_error)
}

pub(super) fn last_record(
    db: &DB,
    family: &ColumnFamily,
    mut options: ReadOptions,
    lower: &[u8],
    upper: &[u8],
) -> Result<Option<(Vec<u8>, Bytes)>, StoreError> {
    if lower >= upper {
        return Ok(None);
    }
    options.set_iterate_lower_bound(lower);
    options.set_iterate_upper_bound(upper);
    let mut records = db.raw_iterator_cf_opt(family, options);
    records.seek_to_last();
    if let Some((key, value)) = records.item() {
        return Ok(Some((key.to_vec(), Bytes::copy_from_slice(value))));
    }
    records.status().map_err(rocksdb_error)?;
    Ok(None)
}
