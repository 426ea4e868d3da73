//! What an endpoint said to a request that failed: kept once in a minute for each status and content.
//!
//! Invariant: what is kept is bounded: an endpoint that says something else each time is heard so often in a minute, and
//! what it says besides is not kept.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
};

use crate::{
    event::Timestamp,
    policy::{
        outcome::RequestResult,
        record::{Excerpt, ExcerptKey},
    },
};

/// 4 KiB of an answer are kept …
const SAID_MAX: usize = 4096;

/// … and so many different ones in a minute.
const KEPT_MAX: usize = 16;

/// What was kept in the minute.
#[derive(Debug, Default)]
pub(super) struct ExcerptCache {
    minute: u32,
    kept: BTreeSet<(u16, u64)>,
}

impl ExcerptCache {
    /// Under which number what was said is kept, and what is to be written for it, where it was not said before in this
    /// minute. [`None`] where nothing was said, or too much.
    pub(super) fn keep(
        &mut self,
        answer: &RequestResult,
        now: Timestamp,
    ) -> Option<(u64, Option<(ExcerptKey, Excerpt)>)> {
        let (answered, said) = match (answer.body.is_empty(), answer.detail.is_empty()) {
            (false, _) => (true, answer.body.slice(..answer.body.len().min(SAID_MAX))),
            (true, false) => (false, answer.detail.clone().into()),
            (true, true) => return None,
        };
        let mut hasher = DefaultHasher::new();
        (answered, &said).hash(&mut hasher);
        let hash = hasher.finish();
        let key = ExcerptKey::new(now, answer.status, hash);
        if self.minute != key.minute {
            *self = Self { minute: key.minute, kept: BTreeSet::new() };
        }
        if self.kept.contains(&(key.status, hash)) {
            return Some((hash, None));
        }
        if self.kept.len() == KEPT_MAX {
            return None;
        }
        self.kept.insert((key.status, hash));
        Some((hash, Some((key, Excerpt { answered, said }))))
    }
}
