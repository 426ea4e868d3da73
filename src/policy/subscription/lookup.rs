//! A question to the disk about obligations of which memory does not know enough: one at a time, and asked again where its
//! answer was overtaken by a decision.

use crate::{
    event::{Lane, Seq},
    policy::{Effect, record::PendingDelivery},
};

/// The question.
#[derive(Debug, Default)]
pub(super) enum Lookup {
    #[default]
    None,
    /// To be asked.
    Ready(Vec<(Lane, Seq)>),
    /// Asked. What is decided about one of them meanwhile makes the answer stale.
    Asked { keys: Vec<(Lane, Seq)>, stale: bool },
}

/// What an answer is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LookupResult {
    /// It is so.
    Good,
    /// It was so.
    Stale,
}

impl Lookup {
    /// To be asked next.
    pub(super) fn put(&mut self, keys: Vec<(Lane, Seq)>) {
        *self = Self::Ready(keys);
    }

    /// Whether there is one.
    pub(super) fn is_open(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// Something is decided about an obligation.
    pub(super) fn invalidate(&mut self, key: (Lane, Seq)) {
        if let Self::Asked { keys, stale } = self {
            *stale |= keys.contains(&key);
        }
    }

    /// The question that is to be asked now, once.
    pub(super) fn next_effect(&mut self) -> Option<Effect> {
        match std::mem::take(self) {
            Self::Ready(keys) => {
                *self = Self::Asked { keys: keys.clone(), stale: false };
                Some(Effect::ReadPending(keys))
            }
            other @ (Self::None | Self::Asked { .. }) => {
                *self = other;
                None
            }
        }
    }

    /// The disk's answer. [`None`] where it is to another question: an earlier life's, or another's of this one.
    pub(super) fn answer(&mut self, found: &[(Lane, Seq, Option<PendingDelivery>)]) -> Option<LookupResult> {
        let Self::Asked { keys, stale } = &*self else { return None };
        if !found.iter().map(|(lane, seq, _)| (*lane, *seq)).eq(keys.iter().copied()) {
            return None;
        }
        let word = if *stale { LookupResult::Stale } else { LookupResult::Good };
        *self = Self::None;
        Some(word)
    }
}
