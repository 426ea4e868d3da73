//! The bytes of outcome counts, at the end of a cursor.
//!
//! ```text
//! failed: count (outcome 1 | times)*
//!     | dead-lettered: count (reason 2 | times)*
//!     | dropped: count (reason 2 | times)*
//!     | leases: count (step 1 | times)*
//! ```
//!
//! Keys ascend, and entries with the count 0 are not stored.

use std::collections::BTreeMap;

use super::{take_outcome, take_reason};
use gridhook_event::codec::{RecordReader, put_varint};
use gridhook_policy::record::{OutcomeCounts, lease::StepKind};

pub(super) fn put_counts(
    out: &mut Vec<u8>,
    OutcomeCounts {
        failed,
        dead_lettered,
        dropped,
        leases,
    }: &OutcomeCounts,
) {
    put_varint(out, failed.len() as u64);
    for (outcome, times) in failed {
        out.push(outcome.to_byte());
        put_varint(out, *times);
    }
    for reasons in [dead_lettered, dropped] {
        put_varint(out, reasons.len() as u64);
        for (reason, times) in reasons {
            out.extend(reason.to_bytes());
            put_varint(out, *times);
        }
    }
    put_varint(out, leases.len() as u64);
    for (step, times) in leases {
        out.push(step.to_byte());
        put_varint(out, *times);
    }
}

pub(super) fn take_counts(reader: &mut RecordReader<'_>) -> Option<OutcomeCounts> {
    Some(OutcomeCounts {
        failed: take_map(reader, take_outcome)?,
        dead_lettered: take_map(reader, take_reason)?,
        dropped: take_map(reader, take_reason)?,
        leases: take_map(reader, |reader| reader.u8().and_then(StepKind::from_byte))?,
    })
}

fn take_map<K: Ord>(
    reader: &mut RecordReader<'_>,
    mut key: impl FnMut(&mut RecordReader<'_>) -> Option<K>,
) -> Option<BTreeMap<K, u64>> {
    let mut map = BTreeMap::new();
    for _ in 0..reader.varint()? {
        let key = key(reader)?;
        let times = reader.varint().filter(|times| *times > 0)?;
        if map.last_key_value().is_some_and(|(last, _)| *last >= key) {
            return None;
        }
        map.insert(key, times);
    }
    Some(map)
}
