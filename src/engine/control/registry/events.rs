//! Reads events of a topic's log, for operators.

use std::ops::Range;

use super::TopicHandle;
use gridhook_event::{Event, Seq};
use gridhook_journal as journal;

/// Bytes of the log per read.
const SLICE_BYTES: usize = 512 * 1024;

/// Number of sequences that are read at a time, from the end of the log towards its beginning …
const WINDOW: u64 = 256;

/// … and how many times for one page.
const WINDOWS_MAX: usize = 40;

/// A page of a topic's events.
#[derive(Debug)]
pub struct EventPage<T> {
    /// What was made of the events, newest first.
    pub events: Vec<T>,
    /// The next page has the events before this one; [`None`] at the beginning of the log.
    pub next: Option<Seq>,
    /// The beginning and the end of the log.
    pub log: Range<Seq>,
}

impl TopicHandle {
    /// Calls `each` with the newest stored events, oldest first, `count` at most.
    pub async fn each_newest(&self, count: u64, each: &mut dyn FnMut(Event)) -> Result<(), journal::Error> {
        let Some(end) = self.log_end() else { return Ok(()) };
        self.each_between(Seq(end.0.saturating_sub(count).max(Seq::FIRST.0)), end, each).await
    }

    /// The events before `before`, newest first: up to `count` for which `line` makes something. A page may be shorter, or
    /// empty, where few events are wanted.
    pub async fn events_before<T>(
        &self,
        before: Option<Seq>,
        count: usize,
        line: &dyn Fn(&Event) -> Option<T>,
    ) -> Result<EventPage<T>, journal::Error> {
        let log = self.log_range().await?;
        let Range { start: floor, end } = log.clone();
        let (mut end, mut events) = (before.unwrap_or(end).min(end), Vec::new());
        for _ in 0..WINDOWS_MAX {
            let from = Seq(end.0.saturating_sub(WINDOW)).max(floor);
            let mut window = Vec::new();
            self.each_between(from, end, &mut |event| window.extend(line(&event).map(|line| (event.seq, line))))
                .await?;
            for (seq, line) in window.into_iter().rev() {
                events.push(line);
                if events.len() == count {
                    return Ok(EventPage { events, next: (seq > floor).then_some(seq), log });
                }
            }
            end = from;
            if end <= floor {
                break;
            }
        }
        Ok(EventPage { events, next: (end > floor).then_some(end), log })
    }

    /// The event with this sequence; [`None`] if the log does not have it.
    pub async fn event(&self, seq: Seq) -> Result<Option<Event>, journal::Error> {
        let mut found = None;
        if self.log_end().is_some_and(|end| seq < end) {
            self.each_between(seq, seq.plus(1), &mut |event| found = Some(event)).await?;
        }
        Ok(found)
    }

    /// The beginning and the end of the log.
    pub async fn log_range(&self) -> Result<Range<Seq>, journal::Error> {
        let end = self.log_end().ok_or(journal::Error::Unknown)?;
        let floor = self.journal.reads().floor(self.partition()).await?.ok_or(journal::Error::Unknown)?;
        Ok(floor..end)
    }

    async fn each_between(&self, mut from: Seq, end: Seq, each: &mut dyn FnMut(Event)) -> Result<(), journal::Error> {
        while from < end {
            let slice = self.journal.reads().log(self.partition(), from, end, SLICE_BYTES).await?;
            for chunk in slice.chunks {
                let events = chunk.events().map_err(|error| journal::Error::Damaged(error.to_string()))?;
                events.into_iter().filter(|event| (from..end).contains(&event.seq)).for_each(&mut *each);
            }
            // Guards against a slice that does not advance.
            from = slice.upto.max(from.plus(1));
        }
        Ok(())
    }
}
