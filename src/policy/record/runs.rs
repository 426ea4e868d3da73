//! Runs of consecutive events in the log, as ledger entries list them, and sets of events in the
//! same form.
//!
//! Invariant: runs ascend, do not overlap and do not touch. A day of events with the same outcome
//! is one run; the length of a list depends on how often the outcome changes, not on the number of
//! events.

use gridhook_event::Seq;

/// Consecutive events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeqRun {
    /// The first event.
    pub first: Seq,
    /// Their number; not 0.
    pub count: u32,
}

impl SeqRun {
    /// The run of one event.
    pub fn single(seq: Seq) -> Self {
        Self {
            first: seq,
            count: 1,
        }
    }

    /// The position after the last event.
    pub fn end_seq(self) -> Seq {
        self.first.plus(u64::from(self.count))
    }

    /// The events.
    pub fn iter_seqs(self) -> impl Iterator<Item = Seq> {
        (self.first.0..self.end_seq().0).map(Seq)
    }
}

/// Ascending runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeqRuns(Vec<SeqRun>);

impl SeqRuns {
    /// Adds a run after all others. An empty run is ignored.
    pub fn push(&mut self, first: Seq, count: u64) {
        // A slice of the log has far fewer than 2^32 events.
        let Ok(count @ 1..) = u32::try_from(count) else {
            return;
        };
        if let Some(last) = self.0.last_mut()
            && last.end_seq() == first
            && let Some(sum) = last.count.checked_add(count)
        {
            last.count = sum;
            return;
        }
        self.0.push(SeqRun { first, count });
    }

    /// Adds runs after all others.
    pub fn append_later(&mut self, later: Self) {
        for run in later.0 {
            self.push(run.first, run.count.into());
        }
    }

    /// The first event.
    pub fn first_seq(&self) -> Option<Seq> {
        self.0.first().map(|run| run.first)
    }

    /// The position after the last event.
    pub fn end_seq(&self) -> Option<Seq> {
        self.0.last().map(|run| run.end_seq())
    }

    /// Number of events.
    pub fn event_count(&self) -> u64 {
        self.0.iter().map(|run| u64::from(run.count)).sum()
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
    pub fn into_runs(self) -> Vec<SeqRun> {
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

/// A set of events, as the first position of each run and the position after its last: a batch
/// costs as much as one event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeqSet(Vec<(Seq, Seq)>);

impl SeqSet {
    /// The index of the first run that ends behind `seq`.
    fn run_index(&self, seq: Seq) -> usize {
        match self.0.last() {
            Some((_, end)) if *end <= seq => self.0.len(),
            Some(_) | None => self.0.partition_point(|(_, end)| *end <= seq),
        }
    }

    /// Whether the event is in the set.
    pub fn contains(&self, seq: Seq) -> bool {
        self.0
            .get(self.run_index(seq))
            .is_some_and(|(first, _)| *first <= seq)
    }

    /// Adds an event.
    pub fn insert(&mut self, seq: Seq) {
        let position = self.run_index(seq);
        let after = seq.plus(1);
        let is_before = |run: Option<&(Seq, Seq)>| run.is_some_and(|(first, _)| *first <= after);
        match (
            position
                .checked_sub(1)
                .filter(|before| self.0[*before].1 == seq),
            is_before(self.0.get(position)),
        ) {
            // It closes the gap between two runs.
            (Some(before), true) if self.0[position].0 == after => {
                self.0[before].1 = self.0.remove(position).1
            }
            (Some(before), _) => self.0[before].1 = after,
            (None, true) => self.0[position].0 = self.0[position].0.min(seq),
            (None, false) => self.0.insert(position, (seq, after)),
        }
    }

    /// Removes an event. Returns false if it is not in the set.
    pub fn remove(&mut self, seq: Seq) -> bool {
        let position = self.run_index(seq);
        let after = seq.plus(1);
        match self.0.get_mut(position) {
            Some((first, end)) if *first == seq => {
                *first = after;
                if after == *end {
                    self.0.remove(position);
                }
            }
            Some((first, end)) if *first < seq => {
                let rest = (after, std::mem::replace(end, seq));
                if after < rest.1 {
                    self.0.insert(position + 1, rest);
                }
            }
            Some(_) | None => return false,
        }
        true
    }

    /// The events, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Seq> {
        self.0
            .iter()
            .flat_map(|(first, end)| (first.0..end.0).map(Seq))
    }

    /// Whether the set has no events.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<Seq> for SeqSet {
    fn from_iter<I: IntoIterator<Item = Seq>>(events: I) -> Self {
        let mut set = Self::default();
        events.into_iter().for_each(|seq| set.insert(seq));
        set
    }
}
