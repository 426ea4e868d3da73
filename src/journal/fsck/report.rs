//! What a look at a store found, and how it is told.

use std::{collections::BTreeMap, fmt};

/// More complaints than this say nothing new: they are counted.
const COMPLAINTS_MAX: usize = 100;

/// What was found.
#[derive(Debug, Default)]
pub struct Report {
    /// Partitions, chunks and events of the log, cursors, owed, held, dead-letter and ledger records.
    pub counts: BTreeMap<&'static str, u64>,
    /// What is wrong, the first of it; empty for a sound store.
    pub complaints: Vec<String>,
    /// How much more is wrong.
    pub untold: u64,
}

impl Report {
    pub(super) fn count(&mut self, what: &'static str, by: u64) {
        *self.counts.entry(what).or_default() += by;
    }

    pub(super) fn complain(&mut self, complaint: String) {
        if self.complaints.len() < COMPLAINTS_MAX {
            self.complaints.push(complaint);
        } else {
            self.untold += 1;
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts: Vec<String> = self.counts.iter().map(|(what, count)| format!("{count} {what}")).collect();
        writeln!(f, "{}", counts.join(", "))?;
        for complaint in &self.complaints {
            writeln!(f, "wrong: {complaint}")?;
        }
        match (self.complaints.len(), self.untold) {
            (0, _) => f.write_str("the store is sound"),
            (1, 0) => f.write_str("the store is not sound: 1 complaint"),
            (told, 0) => write!(f, "the store is not sound: {told} complaints"),
            (told, untold) => write!(f, "the store is not sound: {told} complaints, and {untold} more"),
        }
    }
}
