//! Sets of events in the form of runs: of consecutive events in the log. From the lanes to the
//! records on disk, the events of a batch are one run.
//!
//! Invariant: runs ascend, do not overlap and do not touch. A day of events with the same outcome
//! is one run; the length of a list depends on how often the outcome changes, not on the number of
//! events.

use gridhook_event::Seq;

/// Events whose sequences follow each other without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are named after their types")]
pub struct SeqRun {
    pub first: Seq,
    /// How many they are; never 0.
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

    /// From the first to the last.
    pub fn iter_seqs(self) -> impl Iterator<Item = Seq> {
        (self.first.0..self.end_seq().0).map(Seq)
    }

    /// Its part from `start` to before `end`, of which it has events.
    fn between(self, start: Seq, end: Seq) -> Self {
        let first = self.first.max(start);
        let length = self.end_seq().min(end).0.saturating_sub(first.0);
        // A part is no longer than the whole.
        let count = u32::try_from(length).unwrap_or(self.count);
        Self { first, count }
    }

    /// Its parts before and after one of its events.
    fn split_around(self, seq: Seq) -> (Option<Self>, Option<Self>) {
        let before = self.between(self.first, seq);
        let after = self.between(seq.plus(1), self.end_seq());
        (
            Some(before).filter(|run| run.count > 0),
            Some(after).filter(|run| run.count > 0),
        )
    }
}

/// A set of events, as the runs that ledger entries and cursors list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeqSet(Vec<SeqRun>);

impl SeqSet {
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

    /// The lowest one; [`None`] if the set is empty.
    pub fn first_seq(&self) -> Option<Seq> {
        self.0.first().map(|run| run.first)
    }

    /// The position after the last event.
    pub fn end_seq(&self) -> Option<Seq> {
        self.0.last().map(|run| run.end_seq())
    }

    /// The sum of all runs.
    pub fn event_count(&self) -> u64 {
        self.0.iter().map(|run| u64::from(run.count)).sum()
    }

    /// Ascending, with a gap between any two.
    pub fn runs(&self) -> &[SeqRun] {
        &self.0
    }

    /// The runs in the form of a ledger entry.
    pub fn into_runs(self) -> Vec<SeqRun> {
        self.0
    }

    /// Whether the set has no events.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The index of the first run that ends behind `seq`.
    fn run_index(&self, seq: Seq) -> usize {
        match self.0.last() {
            Some(last) if last.end_seq() <= seq => self.0.len(),
            Some(_) | None => self.0.partition_point(|run| run.end_seq() <= seq),
        }
    }

    /// Whether the event is in the set.
    pub fn contains(&self, seq: Seq) -> bool {
        self.0
            .get(self.run_index(seq))
            .is_some_and(|run| run.first <= seq)
    }

    /// Adds an event. Returns false if it is in the set already.
    pub fn insert(&mut self, seq: Seq) -> bool {
        let position = self.run_index(seq);
        if self.0.get(position).is_some_and(|run| run.first <= seq) {
            return false;
        }
        let closes_gap = self
            .0
            .get(position)
            .is_some_and(|run| run.first == seq.plus(1));
        let before = position
            .checked_sub(1)
            .filter(|before| self.0[*before].end_seq() == seq);
        match before {
            Some(before) if closes_gap => {
                let next = self.0.remove(position);
                self.0[before].count += 1 + next.count;
            }
            Some(before) => self.0[before].count += 1,
            None if closes_gap => {
                self.0[position].first = seq;
                self.0[position].count += 1;
            }
            None => self.0.insert(position, SeqRun::single(seq)),
        }
        true
    }

    /// Removes an event. Returns false if it is not in the set.
    pub fn remove(&mut self, seq: Seq) -> bool {
        let position = self.run_index(seq);
        let Some(run) = self.0.get_mut(position).filter(|run| run.first <= seq) else {
            return false;
        };
        let (before, after) = run.split_around(seq);
        match (before, after) {
            (None, None) => _ = self.0.remove(position),
            (Some(part), None) | (None, Some(part)) => *run = part,
            (Some(before), Some(after)) => {
                *run = before;
                self.0.insert(position + 1, after);
            }
        }
        true
    }

    /// Adds the events of another set.
    pub fn add_all(&mut self, other: Self) {
        match (self.end_seq(), other.first_seq()) {
            (Some(end), Some(first)) if first < end => {
                for seq in other.iter() {
                    self.insert(seq);
                }
            }
            (_, _) => self.append_later(other),
        }
    }

    /// Removes and returns the events from `start` on.
    #[must_use]
    pub fn split_off(&mut self, start: Seq) -> Self {
        let position = self.run_index(start);
        let mut later = self.0.split_off(position);
        if let Some(run) = later.first_mut().filter(|run| run.first < start) {
            self.0.push(run.between(run.first, start));
            *run = run.between(start, run.end_seq());
        }
        Self(later)
    }

    /// The events from `start` to before `end`.
    pub fn between(&self, start: Seq, end: Seq) -> Self {
        let runs = self.0[self.run_index(start)..].iter();
        Self(
            runs.take_while(|run| run.first < end)
                .map(|run| run.between(start, end))
                .filter(|run| run.count > 0)
                .collect(),
        )
    }

    /// One by one, from the first to the last.
    pub fn iter(&self) -> impl Iterator<Item = Seq> {
        self.0.iter().flat_map(|run| run.iter_seqs())
    }
}

impl FromIterator<Seq> for SeqSet {
    fn from_iter<I: IntoIterator<Item = Seq>>(events: I) -> Self {
        let mut set = Self::default();
        for seq in events {
            set.insert(seq);
        }
        set
    }
}
