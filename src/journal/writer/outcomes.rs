//! Outcomes that wait for others: a subscription then writes one cursor for several, and several
//! share a sync.
//!
//! An outcome that something waits for is written after the delay of the settings. One that nothing
//! waits for may wait several times as long. While events are written one group after another,
//! outcomes wait beside them; where the last write ended a while ago, a few of them share the sync
//! of the next events.

use std::time::Duration;

use crate::{WriterEntry, queue::Awaited};
use gridhook_event::Timestamp;
use gridhook_policy::record::WriteUrgency;

/// The maximum number of outcomes that wait for others.
const OUTCOMES_MAX: usize = 1024;

/// Outcomes join a write of events that begins this long after the last write: later they would
/// need a sync of their own, which costs more than the cursors that waiting saves.
const IDLE_MIN: Duration = Duration::from_millis(1);

/// The maximum number of outcomes that join such a write.
const SHARING_OUTCOMES: usize = 16;

pub(super) struct WaitingOutcomes {
    delay: Duration,
    /// The oldest first.
    entries: Vec<WriterEntry>,
    /// The highest urgency of them.
    urgency: WriteUrgency,
    /// When they are written at the latest.
    due: Option<Timestamp>,
    /// From when on they share the sync of events.
    sharing_begins: Option<Timestamp>,
    /// Until when the outcomes of events that were just appended are expected.
    expected: Option<Timestamp>,
    /// Whether the writer has just waited until `expected`.
    is_late: bool,
    /// Whether the writer has waited until `due`.
    is_due: bool,
}

impl WaitingOutcomes {
    /// None, with the delay of the settings.
    pub(super) fn new(delay: Duration) -> Self {
        let entries = Vec::new();
        let urgency = WriteUrgency::Relaxed;
        Self {
            delay,
            entries,
            urgency,
            due: None,
            sharing_begins: None,
            expected: None,
            is_late: false,
            is_due: false,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Events were appended: their outcomes come soon, and none of them is to wake the writer.
    pub(super) fn expect_outcomes(&mut self, now: Timestamp) {
        if self.is_empty() {
            self.expected = None;
        }
        self.expected.get_or_insert_with(|| now.after(self.delay));
    }

    /// Ends the wait for an outcome that did not come.
    pub(super) fn expect_nothing(&mut self) {
        (self.expected, self.is_late) = (None, false);
    }

    /// What the writer waits for, and until when; [`None`] if no outcome waits or is expected.
    pub(super) fn next_awaited(&mut self) -> Option<(Awaited, Timestamp)> {
        self.is_late = false;
        let until = [self.expected, self.due].into_iter().flatten().min()?;
        let is_relaxed = self.expected.is_none() && self.urgency == WriteUrgency::Relaxed;
        Some((
            if is_relaxed {
                Awaited::Usual
            } else {
                Awaited::Urgent
            },
            until,
        ))
    }

    /// The writer has waited until then.
    pub(super) fn advance_to(&mut self, until: Timestamp) {
        self.is_due |= self.due == Some(until);
        if self
            .expected
            .take_if(|expected| *expected == until)
            .is_some()
        {
            self.is_late = true;
        }
    }

    pub(super) fn push(&mut self, entry: WriterEntry, now: Timestamp) {
        let urgency = entry.urgency();
        let first = |known: Option<Timestamp>, next| known.map_or(next, |known| known.min(next));
        let (sharing_begin, due) = match urgency {
            WriteUrgency::Relaxed => {
                let delay = urgency.delay_max(self.delay);
                (now.after(delay / 2), now.after(delay))
            }
            WriteUrgency::Usual | WriteUrgency::Now if self.is_late => (now, now),
            WriteUrgency::Usual | WriteUrgency::Now => {
                (now, self.expected.unwrap_or_else(|| now.after(self.delay)))
            }
        };
        self.sharing_begins = Some(first(self.sharing_begins, sharing_begin));
        self.due = Some(first(self.due, due));
        self.urgency = self.urgency.max(urgency);
        self.entries.push(entry);
    }

    /// Whether the outcomes are written with events that are written now.
    pub(super) fn may_share_sync(&self, last_write: Timestamp, now: Timestamp) -> bool {
        let may_share = self.sharing_begins.is_some_and(|begin| begin <= now);
        may_share && self.len() <= SHARING_OUTCOMES && now.since(last_write) >= IDLE_MIN
    }

    /// Whether they have waited for long enough, or are as many as may wait.
    pub(super) fn are_due(&self, now: Timestamp) -> bool {
        self.is_due || self.len() >= OUTCOMES_MAX || self.due.is_some_and(|due| due <= now)
    }

    /// Adds all to a group.
    pub(super) fn take_into(&mut self, group: &mut Vec<WriterEntry>) {
        group.append(&mut self.entries);
        *self = Self {
            entries: std::mem::take(&mut self.entries),
            ..Self::new(self.delay)
        };
    }
}
