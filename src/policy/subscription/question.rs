//! A question to the disk about obligations of which memory does not know enough: one at a time, and asked again where its
//! answer was overtaken by a decision.

use crate::{
    event::{Lane, Seq},
    policy::{Effect, record::Owed},
};

/// The question.
#[derive(Debug, Default)]
pub(super) enum Question {
    #[default]
    None,
    /// To be asked.
    Ready(Vec<(Lane, Seq)>),
    /// Asked. What is decided about one of them meanwhile makes the answer stale.
    Asked { keys: Vec<(Lane, Seq)>, stale: bool },
}

/// What an answer is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// It is so.
    Good,
    /// It was so.
    Stale,
}

impl Question {
    /// To be asked next.
    pub(super) fn put(&mut self, keys: Vec<(Lane, Seq)>) {
        *self = Self::Ready(keys);
    }

    /// Whether there is one.
    pub(super) fn is_open(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// Something is decided about an obligation.
    pub(super) fn overtake(&mut self, key: (Lane, Seq)) {
        if let Self::Asked { keys, stale } = self {
            *stale |= keys.contains(&key);
        }
    }

    /// The question that is to be asked now, once.
    pub(super) fn ask(&mut self) -> Option<Effect> {
        match std::mem::take(self) {
            Self::Ready(keys) => {
                *self = Self::Asked { keys: keys.clone(), stale: false };
                Some(Effect::ReadOwed(keys))
            }
            other @ (Self::None | Self::Asked { .. }) => {
                *self = other;
                None
            }
        }
    }

    /// The disk's answer. [`None`] where it is to another question: an earlier life's, or another's of this one.
    pub(super) fn answer(&mut self, found: &[(Lane, Seq, Option<Owed>)]) -> Option<Word> {
        let Self::Asked { keys, stale } = &*self else { return None };
        if !found.iter().map(|(lane, seq, _)| (*lane, *seq)).eq(keys.iter().copied()) {
            return None;
        }
        let word = if *stale { Word::Stale } else { Word::Good };
        *self = Self::None;
        Some(word)
    }
}
