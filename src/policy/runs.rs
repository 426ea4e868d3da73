//! Runs of consecutive events in the log, as ledger entries list them.
//!
//! Invariant: runs ascend, do not overlap and do not touch. A day of events with the same outcome is one run; the
//! length of a list depends on how often the outcome changes, not on the number of events.

use crate::event::Seq;

/// Runs, each as its first event and its length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeqRuns(Vec<(Seq, u32)>);

impl SeqRuns {
    /// Adds a run after all others. An empty run is ignored.
    pub fn push(&mut self, first: Seq, count: u64) {
        // A slice of the log has far fewer than 2^32 events.
        let Ok(count @ 1..) = u32::try_from(count) else { return };
        if let Some((start, length)) = self.0.last_mut()
            && start.plus(u64::from(*length)) == first
            && let Some(sum) = length.checked_add(count)
        {
            *length = sum;
            return;
        }
        self.0.push((first, count));
    }

    /// Adds runs after all others.
    pub fn append(&mut self, later: Self) {
        for (first, count) in later.0 {
            self.push(first, u64::from(count));
        }
    }

    /// The first event.
    pub fn first(&self) -> Option<Seq> {
        self.0.first().map(|(first, _)| *first)
    }

    /// The position after the last event.
    pub fn end(&self) -> Option<Seq> {
        self.0.last().map(|(first, count)| first.plus(u64::from(*count)))
    }

    /// Number of events.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(_, count)| u64::from(*count)).sum()
    }

    /// Number of runs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no runs.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The runs in the form of a ledger entry.
    pub fn into_runs(self) -> Vec<(Seq, u32)> {
        self.0
    }
}

impl FromIterator<Seq> for SeqRuns {
    /// The runs of an ascending list.
    fn from_iter<I: IntoIterator<Item = Seq>>(ascending: I) -> Self {
        let mut runs = Self::default();
        for seq in ascending {
            runs.push(seq, 1);
        }
        runs
    }
}
