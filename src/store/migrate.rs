//! Migrates a store of an older format when it is opened.
//!
//! Each format has one step from the previous one. A step is made in parts of at most [`PART`]
//! records. Each part is one write, together with the key at which the next part begins, so after a
//! kill at any instant the next start continues. Until the last part, the store has the old format
//! and a progress record; the last part writes the new format and deletes the progress record.
//!
//! A change of a record's bytes needs a step only if records of the old version would stay for
//! ever. Records that are rewritten anyway are read in both versions ([`records`](super::records)).

use super::{
    keys::{self, MetaKind},
    rocks::FORMAT,
};
use crate::{Batch, Family, Store, StoreError};

/// The maximum number of records changed in one write.
pub const PART: usize = 1024;

/// The name of the progress record in [`MetaKind::Format`].
const PROGRESS: &[u8] = b"progress";

/// Fills a batch with the next part of a step, from a key on. Returns the key at which the next
/// part begins, or [`None`] after the last part.
pub type Step = fn(&dyn Store, Option<&[u8]>, &mut Batch) -> Result<Option<Vec<u8>>, StoreError>;

/// The steps of this program. The first migrates from [`OLDEST`] to the next format.
pub const STEPS: [Step; (FORMAT - OLDEST) as usize] = [
    // Format 2 has pages of outcomes, which a program of format 1 would not read.
    |_, _, _| Ok(None),
];

/// The oldest format that can be migrated.
pub const OLDEST: u32 = 1;

/// Migrates a store from the format `found` through all `steps`, of which the first begins at the
/// format `oldest`.
pub fn migrate_store(
    store: &dyn Store,
    found: u32,
    oldest: u32,
    steps: &[Step],
) -> Result<(), StoreError> {
    let first_step = found
        .checked_sub(oldest)
        .ok_or_else(|| StoreError::Failed(format!("format {found} is too old")))?;
    for (format, step) in (found..).zip(steps.iter().skip(first_step as usize)) {
        tracing::info!(from = format, to = format + 1, "migrating the store");
        let progress = keys::meta_key(MetaKind::Format, PROGRESS);
        let mut at = store.get(Family::Meta, &progress)?;
        loop {
            let mut batch = Batch::default();
            let next = step(store, at.as_deref(), &mut batch)?;
            match &next {
                Some(next) => batch.put(Family::Meta, progress.clone(), next.clone()),
                None => {
                    batch.put(
                        Family::Meta,
                        keys::meta_key(MetaKind::Format, b""),
                        (format + 1).to_be_bytes().to_vec(),
                    );
                    batch.delete(Family::Meta, progress.clone());
                }
            }
            store.write(&batch)?;
            match next {
                Some(next) => at = Some(next.into()),
                None => break,
            }
        }
    }
    Ok(())
}
