//! A compact record of the subscriptions that each event of a chunk matches.

/// The number of positions in a word.
const WORD_BITS: usize = u64::BITS as usize;

/// The subscriptions that each event of a chunk matches. Consecutive events with the same
/// subscriptions share a set.
#[derive(Debug, Default)]
pub struct Matches {
    /// The index of each event's set.
    set_indexes: Vec<u32>,
    sets: Vec<PositionSet>,
    /// The union of all sets, as bits.
    all: Vec<u64>,
}

/// A set of positions: a word if it has all of them, or else a list, or a bit set if that is
/// smaller.
#[derive(Debug)]
enum PositionSet {
    Word(u64),
    Few(Box<[u32]>),
    Many(Box<[u64]>),
}

impl Matches {
    /// Makes an empty record with room for `events` events that go to `subscriptions`
    /// subscriptions, all to the same ones.
    pub fn with_room(events: usize, subscriptions: usize) -> Self {
        let all = Vec::with_capacity(subscriptions.div_ceil(WORD_BITS));
        Self {
            set_indexes: Vec::with_capacity(events),
            sets: Vec::with_capacity(1),
            all,
        }
    }

    /// Adds the next event with the positions of its subscriptions, in ascending order.
    pub fn push(&mut self, positions: &[u32]) {
        if !self
            .sets
            .last()
            .is_some_and(|last| last.has_exactly(positions))
        {
            for position in positions {
                let word = *position as usize / WORD_BITS;
                if self.all.len() <= word {
                    self.all.resize(word + 1, 0);
                }
                self.all[word] |= 1 << (position % u64::BITS);
            }
            self.sets.push(PositionSet::new(positions));
        }
        self.set_indexes.push(self.sets.len() as u32 - 1);
    }

    /// The positions of the subscriptions that get any of the events.
    pub fn reader_positions(&self) -> impl Iterator<Item = u32> {
        iter_bits(&self.all)
    }

    /// Whether the subscription at `position` gets any of the events.
    pub(super) fn matches_any(&self, position: u32) -> bool {
        has_bit(&self.all, position)
    }

    /// The events within `part` that the subscription at `position` gets.
    pub(super) fn matches_within(
        &self,
        position: u32,
        part: std::ops::Range<usize>,
    ) -> impl Iterator<Item = usize> {
        let mut last = None;
        part.filter(move |event| {
            let set = self.set_indexes[*event];
            match last {
                Some((known, is_in)) if known == set => is_in,
                Some(_) | None => {
                    let is_in = self.sets[set as usize].contains_position(position);
                    last = Some((set, is_in));
                    is_in
                }
            }
        })
    }

    pub(super) fn memory_bytes(&self) -> usize {
        let sets: usize = self
            .sets
            .iter()
            .map(|set| size_of::<PositionSet>() + set.memory_bytes())
            .sum();
        sets + size_of_val(&self.set_indexes[..]) + size_of_val(&self.all[..])
    }
}

impl PositionSet {
    fn new(positions: &[u32]) -> Self {
        if let Some(word) = word_of(positions) {
            return Self::Word(word);
        }
        let words = positions
            .last()
            .map_or(0, |last| *last as usize / WORD_BITS + 1);
        if size_of_val(positions) <= words * size_of::<u64>() {
            return Self::Few(positions.into());
        }
        let mut bits = vec![0; words];
        for position in positions {
            bits[*position as usize / WORD_BITS] |= 1 << (position % u64::BITS);
        }
        Self::Many(bits.into())
    }

    fn has_exactly(&self, positions: &[u32]) -> bool {
        match self {
            Self::Word(word) => word_of(positions) == Some(*word),
            Self::Few(few) => **few == *positions,
            Self::Many(bits) => {
                let count: usize = bits.iter().map(|word| word.count_ones() as usize).sum();
                count == positions.len()
                    && positions.iter().all(|position| has_bit(bits, *position))
            }
        }
    }

    fn contains_position(&self, position: u32) -> bool {
        match self {
            Self::Word(word) => has_bit(&[*word], position),
            Self::Few(positions) => positions.binary_search(&position).is_ok(),
            Self::Many(bits) => has_bit(bits, position),
        }
    }

    fn memory_bytes(&self) -> usize {
        match self {
            Self::Word(_) => 0,
            Self::Few(positions) => size_of_val(&positions[..]),
            Self::Many(bits) => size_of_val(&bits[..]),
        }
    }
}

/// The positions as bits, if a word has all of them.
fn word_of(positions: &[u32]) -> Option<u64> {
    let fits = positions
        .last()
        .is_none_or(|last| (*last as usize) < WORD_BITS);
    fits.then(|| {
        positions
            .iter()
            .fold(0, |bits, position| bits | 1_u64 << position)
    })
}

fn has_bit(words: &[u64], position: u32) -> bool {
    words
        .get(position as usize / WORD_BITS)
        .is_some_and(|bits| bits & 1 << (position % u64::BITS) != 0)
}

fn iter_bits(words: &[u64]) -> impl Iterator<Item = u32> {
    words.iter().zip(0..).flat_map(|(bits, word)| {
        let without_lowest = |bits: &u64| Some(bits & (bits - 1)).filter(|rest| *rest != 0);
        let rest = std::iter::successors(Some(*bits).filter(|bits| *bits != 0), without_lowest);
        rest.map(move |bits| word * u64::BITS + bits.trailing_zeros())
    })
}
