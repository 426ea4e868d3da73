//! A store of an older format becomes one of this program's, when it is opened.
//!
//! Each format has one step from the one before. A step is made in parts of at most [`PART`] records, each of them one
//! write with the place where the next part begins: a kill at any instant leaves a store that the next start goes on with.
//! Before the last part the format stays the old one's, with a note how far the step has come; with the last part the
//! format is the new one, and the note goes.
//!
//! A change of the bytes of a record needs a step only where records of the old version would be met with for ever: what is
//! read and written again in any case is read in both versions ([`records`](super::records)).

use super::{
    keys::{self, MetaKind},
    rocks::FORMAT,
};
use crate::store::{Batch, Family, Store, StoreError};

/// So many records at most are changed in one write.
pub const PART: usize = 1024;

/// Under this name of [`MetaKind::Format`] it is noted how far a step has come.
const PROGRESS: &[u8] = b"progress";

/// Makes the next part of a step into a batch, from a place on. Answers where the part after it begins; [`None`] where it was
/// the last.
pub type Step = fn(&dyn Store, Option<&[u8]>, &mut Batch) -> Result<Option<Vec<u8>>, StoreError>;

/// The steps of this program: the first makes format 2 of format 1. A store of a format that no step begins at is too old.
pub const STEPS: [Step; (FORMAT - OLDEST) as usize] = [];

/// The oldest format that is migrated.
pub const OLDEST: u32 = 1;

/// Makes a store of the format `found` one of the format behind `steps`, of which the first begins at `oldest`.
pub fn migrate(store: &dyn Store, found: u32, oldest: u32, steps: &[Step]) -> Result<(), StoreError> {
    let done = found.checked_sub(oldest).ok_or_else(|| StoreError::Failed(format!("format {found} is too old")))?;
    for (format, step) in (found..).zip(steps.iter().skip(done as usize)) {
        tracing::info!(from = format, to = format + 1, "the store is migrated");
        let progress = keys::meta(MetaKind::Format, PROGRESS);
        let mut at = store.get(Family::Meta, &progress)?;
        loop {
            let mut batch = Batch::default();
            let next = step(store, at.as_deref(), &mut batch)?;
            match &next {
                Some(next) => batch.put(Family::Meta, progress.clone(), next.clone()),
                None => {
                    batch.put(Family::Meta, keys::meta(MetaKind::Format, b""), (format + 1).to_be_bytes().to_vec());
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
