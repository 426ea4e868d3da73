//! Reads events of a topic's log, for operators.

use std::ops::Range;

use super::TopicHandle;
use gridhook_event::{Event, Seq};
use gridhook_journal as journal;

/// Bytes of the log per read.
const SLICE_BYTES: usize = 512 * 1024;

/// Number of sequences that are read at a time, from the end of the log towards its beginning.
const WINDOW: u64 = 256;

/// Maximum number of times that [`WINDOW`] sequences are read for one page.
const WINDOWS_MAX: usize = 40;

/// A page of a topic's events.
#[derive(Debug)]
pub struct EventPage<T> {
    /// The results for the events, newest first.
    pub events: Vec<T>,
    /// The next page has the events before this one; [`None`] at the beginning of the log.
    pub next: Option<Seq>,
    /// The beginning and the end of the log.
    pub log: Range<Seq>,
}

impl TopicHandle {
    /// The range of the newest `count` stored events.
    pub fn newest_range(&self, count: u64) -> Range<Seq> {
        let end = self.log_end().unwrap_or(Seq::FIRST);
        Seq(end.0.saturating_sub(count).max(Seq::FIRST.0))..end
    }

    /// The first events of a range, and the rest of it.
    pub async fn events_of(
        &self,
        range: Range<Seq>,
    ) -> Result<(Vec<Event>, Range<Seq>), journal::Error> {
        let slice = self
            .journal
            .reader_pool()
            .read_log(self.partition(), range.start, range.end, SLICE_BYTES)
            .await?;
        let mut events = Vec::new();
        for chunk in slice.chunks {
            let chunk = chunk
                .decode_events()
                .map_err(|error| journal::Error::Damaged(error.to_string()))?;
            events.extend(chunk.into_iter().filter(|event| range.contains(&event.seq)));
        }
        // Guards against a slice that does not advance.
        Ok((events, slice.upto.max(range.start.plus(1))..range.end))
    }

    /// The events before `before`, newest first: up to `count` for which `line` makes something. A
    /// page may be shorter, or empty, where few events are wanted.
    pub async fn events_before<T>(
        &self,
        before: Option<Seq>,
        count: usize,
        line: &(dyn Fn(&Event) -> Option<T> + Sync),
    ) -> Result<EventPage<T>, journal::Error> {
        let log = self.log_range().await?;
        let Range { start: floor, end } = log.clone();
        let mut end = before.unwrap_or(end).min(end);
        let mut events = Vec::new();
        for _ in 0..WINDOWS_MAX {
            let from = Seq(end.0.saturating_sub(WINDOW)).max(floor);
            let mut window = Vec::new();
            let mut rest = from..end;
            while !rest.is_empty() {
                let (events, next) = self.events_of(rest).await?;
                window.extend(
                    events
                        .iter()
                        .filter_map(|event| Some((event.seq, line(event)?))),
                );
                rest = next;
            }
            for (seq, line) in window.into_iter().rev() {
                events.push(line);
                if events.len() == count {
                    return Ok(EventPage {
                        events,
                        next: (seq > floor).then_some(seq),
                        log,
                    });
                }
            }
            end = from;
            if end <= floor {
                break;
            }
        }
        Ok(EventPage {
            events,
            next: (end > floor).then_some(end),
            log,
        })
    }

    /// The event with this sequence; [`None`] if the log does not have it.
    pub async fn read_event(&self, seq: Seq) -> Result<Option<Event>, journal::Error> {
        if self.log_end().is_none_or(|end| seq >= end) {
            return Ok(None);
        }
        let (events, _) = self.events_of(seq..seq.plus(1)).await?;
        Ok(events.into_iter().next())
    }

    /// The beginning and the end of the log.
    pub async fn log_range(&self) -> Result<Range<Seq>, journal::Error> {
        let end = self.log_end().ok_or(journal::Error::Unknown)?;
        let floor = self
            .journal
            .reader_pool()
            .read_floor(self.partition())
            .await?
            .ok_or(journal::Error::Unknown)?;
        Ok(floor..end)
    }
}
