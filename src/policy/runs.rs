//! Runs of events that stand side by side in the log: what a line of the ledger covers.
//!
//! Invariant: the runs ascend and do not overlap, and two that touch are one. So a day of events that nobody wanted is one
//! run, and how long a list is says how often the log changed its mind, not how many events it has.

use crate::event::Seq;

/// Runs, each as its first event and how many there are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeqRuns(Vec<(Seq, u32)>);

impl SeqRuns {
    /// Adds a run behind all others. One without events is none.
    pub fn push(&mut self, first: Seq, count: u64) {
        // A slice of the log has far fewer events than 2^32.
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

    /// Adds runs behind all others.
    pub fn append(&mut self, later: Self) {
        for (first, count) in later.0 {
            self.push(first, u64::from(count));
        }
    }

    /// The first event.
    pub fn first(&self) -> Option<Seq> {
        self.0.first().map(|(first, _)| *first)
    }

    /// Behind the last event.
    pub fn end(&self) -> Option<Seq> {
        self.0.last().map(|(first, count)| first.plus(u64::from(*count)))
    }

    /// How many events there are.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|(_, count)| u64::from(*count)).sum()
    }

    /// How many runs there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The runs, as a line of the ledger has them.
    pub fn into_covers(self) -> Vec<(Seq, u32)> {
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
