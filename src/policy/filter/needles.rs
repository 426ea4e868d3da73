//! Searches many strings in a text in one pass, however many strings there are (Aho-Corasick).
//!
//! The strings are stored in blocks. Each block has its own automaton, built on the first search,
//! with about 12 bytes per byte of the strings. When strings are added or removed, full blocks
//! stay, so a change of one subscription among thousands rebuilds one block.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, OnceLock},
};

use aho_corasick::{Anchored, automaton::Automaton, nfa::contiguous::NFA};

/// Bytes of strings per block: its automaton is built in milliseconds and fits into a processor's
/// cache.
const BLOCK: usize = 64 * 1024;

/// To build an automaton costs as much for a byte of its strings as to search so many bytes of
/// text.
pub(super) const BUILD_COST: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Needles {
    blocks: Vec<Arc<Block>>,
    positions: HashMap<Arc<str>, NeedlePosition>,
}

/// The position of a string: its block, and its number there.
#[derive(Clone, Copy, Debug)]
struct NeedlePosition(usize, usize);

#[derive(Debug)]
struct Block {
    strings: Vec<Arc<str>>,
    automaton: OnceLock<NFA>,
}

/// The strings found: one bit for each string of each block.
#[derive(Clone, Debug, Default)]
pub(super) struct Found(Vec<Vec<u64>>);

impl Needles {
    pub(super) fn new<'s>(strings: impl IntoIterator<Item = &'s str>) -> Self {
        Self::default().rebuild(strings)
    }

    /// Creates the set for these strings, reusing automata.
    pub(super) fn rebuild<'s>(&self, strings: impl IntoIterator<Item = &'s str>) -> Self {
        let mut missing: BTreeSet<&str> = strings.into_iter().collect();
        let mut blocks = Vec::new();
        for block in self.blocks.iter().filter(|block| block.is_full()) {
            let wanted_count = block
                .strings
                .iter()
                .filter(|string| missing.contains(&***string))
                .count();
            // A block of which most strings are unused is dissolved.
            if 2 * wanted_count >= block.strings.len() {
                block.strings.iter().for_each(|string| {
                    missing.remove(&**string);
                });
                blocks.push(Arc::clone(block));
            }
        }
        let mut strings = Vec::new();
        let mut bytes = 0;
        for string in missing {
            strings.push(string);
            bytes += string.len() + 1;
            if bytes >= BLOCK {
                blocks.push(self.block_with(&strings));
                strings.clear();
                bytes = 0;
            }
        }
        if !strings.is_empty() {
            blocks.push(self.block_with(&strings));
        }
        let mut positions = HashMap::new();
        for (position, block) in blocks.iter().enumerate() {
            positions.extend(
                block
                    .strings
                    .iter()
                    .zip(0..)
                    .map(|(string, number)| (Arc::clone(string), NeedlePosition(position, number))),
            );
        }
        Self { blocks, positions }
    }

    /// The block with these strings, which is shared if there is one.
    fn block_with(&self, strings: &[&str]) -> Arc<Block> {
        let mut blocks = self.blocks.iter();
        let same_block = blocks.find(|block| {
            let block_strings = block.strings.iter().map(|string| &**string);
            block_strings.eq(strings.iter().copied())
        });
        same_block.map_or_else(|| Arc::new(Block::new(strings)), Arc::clone)
    }

    pub(super) fn block_count(&self) -> usize {
        self.blocks.len()
    }

    /// The bytes of strings whose automata are not built yet.
    pub(super) fn unbuilt_bytes(&self) -> usize {
        self.blocks.iter().map(|block| block.unbuilt_bytes()).sum()
    }

    /// Searches the strings of one more block in these texts. Returns the cost in bytes of text;
    /// [`None`] once all blocks are searched.
    pub(super) fn find_more(&self, texts: &[String], found: &mut Found) -> Option<usize> {
        let block = self.blocks.get(found.0.len())?;
        let cost =
            BUILD_COST * block.unbuilt_bytes() + texts.iter().map(String::len).sum::<usize>();
        found.0.push(block.search_texts(texts));
        Some(cost)
    }

    /// Searches all strings in these texts.
    pub(super) fn search_texts(&self, texts: &[String]) -> Found {
        Found(
            self.blocks
                .iter()
                .map(|block| block.search_texts(texts))
                .collect(),
        )
    }

    /// Whether `string` was found; [`None`] if it is not in the set.
    pub(super) fn contains_match(&self, found: &Found, string: &str) -> Option<bool> {
        let NeedlePosition(block, number) = *self.positions.get(string)?;
        Some(found.0[block][number / 64] & 1 << (number % 64) != 0)
    }

    pub(super) fn matching_strings<'f>(
        &'f self,
        found: &'f Found,
    ) -> impl Iterator<Item = &'f str> {
        self.blocks.iter().zip(&found.0).flat_map(|(block, words)| {
            words.iter().enumerate().flat_map(|(word, bits)| {
                let numbers = (0..64)
                    .filter(move |bit| bits & 1 << bit != 0)
                    .map(move |bit| word * 64 + bit);
                numbers.map(|number| &*block.strings[number])
            })
        })
    }
}

impl Block {
    fn new(strings: &[&str]) -> Self {
        Self {
            strings: strings.iter().map(|string| Arc::from(*string)).collect(),
            automaton: OnceLock::new(),
        }
    }

    fn size_bytes(&self) -> usize {
        self.strings.iter().map(|string| string.len() + 1).sum()
    }

    fn is_full(&self) -> bool {
        self.size_bytes() >= BLOCK
    }

    fn unbuilt_bytes(&self) -> usize {
        if self.automaton.get().is_some() {
            0
        } else {
            self.size_bytes()
        }
    }

    fn search_texts(&self, texts: &[String]) -> Vec<u64> {
        let mut matches = vec![0; self.strings.len().div_ceil(64)];
        let automaton = self.automaton.get_or_init(|| {
            NFA::new(self.strings.iter().map(|string| &**string))
                .expect("a block is far smaller than an automaton may be")
        });
        // A state stands for all strings that end there. Visiting each state once bounds the work.
        let mut visits = vec![0u64; automaton.memory_usage() / size_of::<u32>() / 64 + 1];
        let start = automaton
            .start_state(Anchored::No)
            .expect("an automaton without anchors starts without one");
        for text in texts {
            let mut state = start;
            let mut bytes = text.bytes();
            loop {
                if automaton.is_match(state) {
                    let word = state.as_usize() / 64;
                    let bit = 1 << (state.as_usize() % 64);
                    if visits[word] & bit == 0 {
                        visits[word] |= bit;
                        for index in 0..automaton.match_len(state) {
                            let number = automaton.match_pattern(state, index).as_usize();
                            matches[number / 64] |= 1 << (number % 64);
                        }
                    }
                }
                let Some(byte) = bytes.next() else { break };
                state = automaton.next_state(Anchored::No, state, byte);
            }
        }
        matches
    }
}
