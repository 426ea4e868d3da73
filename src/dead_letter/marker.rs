//! Beside a file of dead letters: which of them were dealt with since, and how.
//!
//! A file is never written again after it was told of, so that what was read of it stays true. What is done with a part of
//! its letters is written down beside it, in an object of its own, whole each time; where nothing is left to do, the file
//! may go, and the marker goes after it. A marker without its file says nothing.

use serde::{Deserialize, Serialize};

/// What the name of a marker has more than that of its file.
pub const SUFFIX: &str = ".redriven";

/// What was done with the letters of a file, each by its place in it: first and count of runs, ascending.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedriveMarker {
    /// They were sent again.
    #[serde(default)]
    pub redriven: Vec<(u32, u32)>,
    /// They were given up for good.
    #[serde(default)]
    pub purged: Vec<(u32, u32)>,
}

impl RedriveMarker {
    /// The name that a file's marker has.
    pub fn name(file: &str) -> String {
        format!("{file}{SUFFIX}")
    }

    /// Whether it says anything of the letter at this place.
    pub fn has(&self, place: u32) -> bool {
        self.redriven
            .iter()
            .chain(&self.purged)
            .any(|(first, count)| (*first..first.saturating_add(*count)).contains(&place))
    }

    /// Whether nothing is left of a file with so many letters.
    pub fn has_all(&self, letters: u32) -> bool {
        (0..letters).all(|place| self.has(place))
    }

    /// So many are there in the list.
    pub fn count(runs: &[(u32, u32)]) -> u64 {
        runs.iter().map(|(_, count)| u64::from(*count)).sum()
    }
}

/// Adds places to a list of runs.
pub fn add(runs: &mut Vec<(u32, u32)>, places: impl IntoIterator<Item = u32>) {
    let known = runs.iter().flat_map(|(first, count)| *first..first.saturating_add(*count));
    let mut all: Vec<u32> = known.chain(places).collect();
    all.sort_unstable();
    all.dedup();
    runs.clear();
    for place in all {
        match runs.last_mut() {
            Some((first, count)) if *first + *count == place => *count += 1,
            Some(_) | None => runs.push((place, 1)),
        }
    }
}
