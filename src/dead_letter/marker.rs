//! The marker beside a dead-letter file: which of its dead letters were redriven or purged.
//!
//! A file is never changed after its notification, so what a reader has read stays true. The marker
//! is an object of its own, rewritten as a whole. When nothing is left in a file, it may be
//! deleted, and its marker after it. A marker without a file has no meaning.

use serde::{Deserialize, Serialize};

/// The suffix that a marker's name adds to that of its file. It says less than a marker records;
/// under another name the markers of older versions would not be found, and their dead letters
/// would be sent again.
pub const SUFFIX: &str = ".redriven";

/// The dead letters of a file that were handled, by index: ascending runs of first and count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileMarker {
    #[serde(default)]
    pub redriven: Vec<(u32, u32)>,
    #[serde(default)]
    pub purged: Vec<(u32, u32)>,
}

impl FileMarker {
    /// The name of a file's marker.
    pub fn name(file: &str) -> String {
        format!("{file}{SUFFIX}")
    }

    /// The marker of a file that is ignored, with at most this number of dead letters.
    pub fn for_abandoned_file(dead_letters_max: u32) -> Self {
        Self {
            redriven: Vec::new(),
            purged: vec![(0, dead_letters_max)],
        }
    }

    /// Whether the dead letter at this index was handled.
    pub fn is_handled(&self, index: u32) -> bool {
        self.redriven
            .iter()
            .chain(&self.purged)
            .any(|(first, count)| (*first..first.saturating_add(*count)).contains(&index))
    }

    /// Whether all of a file's dead letters were handled.
    pub fn has_all(&self, dead_letters: u32) -> bool {
        (0..dead_letters).all(|index| self.is_handled(index))
    }
}

/// Adds indexes to a list of runs.
pub fn add(runs: &mut Vec<(u32, u32)>, indexes: impl IntoIterator<Item = u32>) {
    let known_indexes = runs
        .iter()
        .flat_map(|(first, count)| *first..first.saturating_add(*count));
    let mut all: Vec<u32> = known_indexes.chain(indexes).collect();
    all.sort_unstable();
    all.dedup();
    runs.clear();
    for index in all {
        match runs.last_mut() {
            Some((first, count)) if *first + *count == index => *count += 1,
            Some(_) | None => runs.push((index, 1)),
        }
    }
}
