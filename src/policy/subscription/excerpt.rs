//! Excerpts of responses to failed requests, stored once per minute for each status and content.
//!
//! Invariant: storage is bounded. Of an endpoint that responds differently each time, only a fixed
//! number of excerpts per minute is stored.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
};

use bytes::Bytes;

use crate::{
    outcome::RequestResult,
    record::{Excerpt, ExcerptKey},
};
use gridhook_event::Timestamp;

/// Maximum length of an excerpt: 4 KiB.
const CONTENT_BYTES_MAX: usize = 4096;

/// Maximum different excerpts per minute. A fault has a few messages; one that differs each time
/// would fill the store.
const KEPT_MAX: usize = 16;

/// An excerpt of a response.
#[derive(Debug)]
pub(super) struct KeptExcerpt {
    pub(super) key: ExcerptKey,
    /// The record to write, if it is new in this minute.
    pub(super) unwritten: Option<Excerpt>,
}

/// The excerpts of the current minute.
#[derive(Debug, Default)]
pub(super) struct ExcerptCache {
    minute: u32,
    kept: BTreeSet<(u16, u64)>,
}

impl ExcerptCache {
    /// The excerpt of a response; [`None`] if nothing is known of it or the minute is full.
    pub(super) fn store_excerpt(
        &mut self,
        result: &RequestResult,
        now: Timestamp,
    ) -> Option<KeptExcerpt> {
        let (has_response, content) = match (result.body.is_empty(), result.detail.is_empty()) {
            (false, _) => (
                true,
                result
                    .body
                    .slice(..result.body.len().min(CONTENT_BYTES_MAX)),
            ),
            (true, false) => (false, result.detail.clone().into()),
            (true, true) if result.heads.is_none() => return None,
            (true, true) => (result.status.is_some(), Bytes::new()),
        };
        let mut hasher = DefaultHasher::new();
        (has_response, &content).hash(&mut hasher);
        let hash = hasher.finish();
        let key = ExcerptKey::new(now, result.status, hash);
        if self.minute != key.minute {
            *self = Self {
                minute: key.minute,
                kept: BTreeSet::new(),
            };
        }
        if self.kept.contains(&(key.status, hash)) {
            return Some(KeptExcerpt {
                key,
                unwritten: None,
            });
        }
        if self.kept.len() == KEPT_MAX {
            return None;
        }
        self.kept.insert((key.status, hash));
        Some(KeptExcerpt {
            key,
            unwritten: Some(Excerpt {
                has_response,
                content,
                heads: result.heads.clone(),
            }),
        })
    }
}
