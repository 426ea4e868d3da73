//! A lookup on disk of pending deliveries that are not in memory. There is one at a time; it is
//! repeated if a decision made its result stale.

use std::collections::HashSet;

use crate::{Effect, record::PendingDelivery};
use gridhook_event::{Lane, Seq};

#[derive(Debug, Default)]
pub(super) enum Lookup {
    #[default]
    None,
    /// Keys to look up; no effect has requested them yet.
    Ready(Vec<(Lane, Seq)>),
    /// In progress. Boxed: most subscriptions have none.
    Requested(Box<OpenLookup>),
}

/// A lookup in progress. A decision about one of its keys makes the result stale.
#[derive(Debug)]
pub(super) struct OpenLookup {
    keys: Vec<(Lane, Seq)>,
    /// The keys of `keys`, for a fast search.
    key_set: HashSet<(Lane, Seq)>,
    is_stale: bool,
}

/// The validity of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LookupResult {
    /// No decision changed what was looked up.
    Valid,
    /// A decision overtook the result.
    Stale,
}

impl Lookup {
    pub(super) fn set_keys(&mut self, keys: Vec<(Lane, Seq)>) {
        *self = Self::Ready(keys);
    }

    /// Whether a lookup is requested or in progress.
    pub(super) fn is_open(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// Notes a decision about a pending delivery.
    pub(super) fn invalidate_key(&mut self, key: (Lane, Seq)) {
        if let Self::Requested(open) = self {
            open.is_stale |= open.key_set.contains(&key);
        }
    }

    /// The effect that begins the lookup, once.
    pub(super) fn next_effect(&mut self) -> Option<Effect> {
        match std::mem::take(self) {
            Self::Ready(keys) => {
                let key_set = keys.iter().copied().collect();
                *self = Self::Requested(Box::new(OpenLookup {
                    keys: keys.clone(),
                    key_set,
                    is_stale: false,
                }));
                Some(Effect::ReadPending(keys))
            }
            other @ (Self::None | Self::Requested(_)) => {
                *self = other;
                None
            }
        }
    }

    /// Takes the result. [`None`] if it belongs to another lookup, of this incarnation or an
    /// earlier one.
    pub(super) fn take_result(
        &mut self,
        records: &[(Lane, Seq, Option<PendingDelivery>)],
    ) -> Option<LookupResult> {
        let Self::Requested(open) = &*self else {
            return None;
        };
        if !records
            .iter()
            .map(|(lane, seq, _)| (*lane, *seq))
            .eq(open.keys.iter().copied())
        {
            return None;
        }
        let result = if open.is_stale {
            LookupResult::Stale
        } else {
            LookupResult::Valid
        };
        *self = Self::None;
        Some(result)
    }
}
