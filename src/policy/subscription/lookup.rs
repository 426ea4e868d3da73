//! A lookup on disk of pending deliveries that memory does not hold. There is one at a time; it is
//! repeated if a decision made its result stale.

use std::collections::HashSet;

use crate::{Effect, record::PendingDelivery};
use gridhook_event::{Lane, Seq};

#[derive(Debug, Default)]
pub(super) enum Lookup {
    #[default]
    None,
    /// Keys to look up; no effect asks for them yet.
    Ready(Vec<(Lane, Seq)>),
    /// In progress. Boxed: most subscriptions have none.
    Requested(Box<OpenLookup>),
}

/// A lookup in progress. A decision about one of its keys makes the result stale.
#[derive(Debug)]
pub(super) struct OpenLookup {
    keys: Vec<(Lane, Seq)>,
    /// The same keys, to find one among thousands.
    distinct: HashSet<(Lane, Seq)>,
    is_stale: bool,
}

/// The validity of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LookupResult {
    /// No decision changed what was looked up.
    Good,
    /// A decision overtook the result.
    Stale,
}

impl Lookup {
    pub(super) fn set_keys(&mut self, keys: Vec<(Lane, Seq)>) {
        *self = Self::Ready(keys);
    }

    /// Whether a lookup is wanted or in progress.
    pub(super) fn is_open(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// Notes a decision about a pending delivery.
    pub(super) fn invalidate_key(&mut self, key: (Lane, Seq)) {
        if let Self::Requested(open) = self {
            open.is_stale |= open.distinct.contains(&key);
        }
    }

    /// The effect that asks the question, once.
    pub(super) fn next_effect(&mut self) -> Option<Effect> {
        match std::mem::take(self) {
            Self::Ready(keys) => {
                let distinct = keys.iter().copied().collect();
                *self = Self::Requested(Box::new(OpenLookup {
                    keys: keys.clone(),
                    distinct,
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
        found: &[(Lane, Seq, Option<PendingDelivery>)],
    ) -> Option<LookupResult> {
        let Self::Requested(open) = &*self else {
            return None;
        };
        if !found
            .iter()
            .map(|(lane, seq, _)| (*lane, *seq))
            .eq(open.keys.iter().copied())
        {
            return None;
        }
        let result = if open.is_stale {
            LookupResult::Stale
        } else {
            LookupResult::Good
        };
        *self = Self::None;
        Some(result)
    }
}
