//! Filters what was read from the log.

use crate::{plan::DeliveryPlan, shared_state::SharedState};
use gridhook_event::{Event, Lane, Seq, chunk::Chunk};
use gridhook_journal::LogSlice;
use gridhook_policy::{Input, SendItem};
use gridhook_store::damage::Damage;

/// A slice of the log that was read for a lane.
#[derive(Debug)]
pub struct SliceRead {
    pub lane: Lane,
    /// The position at which the lane reads on. The slice may begin earlier.
    pub from: Seq,
    pub slice: LogSlice,
}

/// Filters a slice of the log, event by event. It keeps at most `share` bytes, or one event. The
/// rest is read again.
pub fn filter_slice(
    shared: &SharedState,
    plan: &DeliveryPlan,
    damage: &Damage,
    share: usize,
    SliceRead { lane, from, slice }: SliceRead,
) -> Input {
    if slice.is_missing {
        return Input::Unreadable {
            lane,
            from,
            upto: slice.upto,
        };
    }
    let mut filter = SliceFilter {
        shared,
        plan,
        lane,
        from,
        share,
        is_poisoned: shared.is_poisoned(),
        quarantined_seqs: shared.quarantined_seqs(lane),
        upto: slice.upto,
        total: 0,
        byte_count: 0,
        matches: Vec::new(),
    };
    for chunk in slice.chunks {
        let first = chunk.first.max(from);
        let end = chunk.end_seq().min(slice.upto);
        let Ok(events) = chunk.decode_events() else {
            damage.record_loss(shared.subscription_key.partition, first, end);
            if first > from {
                // The damaged chunk is read again, by itself.
                filter.upto = first;
                break;
            }
            return Input::Unreadable {
                lane,
                from,
                upto: end,
            };
        };
        filter.filter_chunk(&chunk, events);
        if filter.upto < end {
            break;
        }
    }
    Input::Read {
        lane,
        from,
        upto: filter.upto,
        total: filter.total,
        events: filter.matches,
    }
}

/// The events of a slice that match so far.
struct SliceFilter<'a> {
    shared: &'a SharedState,
    plan: &'a DeliveryPlan,
    lane: Lane,
    from: Seq,
    /// The most bytes to keep.
    share: usize,
    is_poisoned: bool,
    /// Events that were dead-lettered as matches. Filtering one again would panic again.
    quarantined_seqs: Vec<Seq>,
    /// The end of what is filtered.
    upto: Seq,
    /// The number of events that are filtered, matching or not.
    total: u64,
    /// The bytes of `matches`.
    byte_count: usize,
    matches: Vec<Event>,
}

impl SliceFilter<'_> {
    /// Keeps the matching events of a chunk. Without room for one of them, the slice ends before
    /// it.
    fn filter_chunk(&mut self, chunk: &Chunk, events: Vec<Event>) {
        let matches_before = self.matches.len();
        let bytes_before = self.byte_count;
        let range = self.from..self.upto;
        self.matches.reserve(events.len());
        for event in events
            .into_iter()
            .filter(|event| range.contains(&event.seq))
        {
            if self.matches_event(&event) {
                if self.byte_count > 0 && self.byte_count + event.wire_len() > self.share {
                    self.upto = event.seq;
                    break;
                }
                self.byte_count += event.wire_len();
                self.matches.push(event);
            }
            self.total += 1;
        }
        let is_mostly_matching = self.byte_count - bytes_before >= chunk.bytes_len() / 2;
        if !self.may_share_chunk(chunk) || !is_mostly_matching {
            // One small event must not keep a chunk in memory.
            for event in &mut self.matches[matches_before..] {
                *event = event.detach_from_chunk();
            }
        }
    }

    /// Whether a chunk that matches for the most part need not be copied: a request can hold it, so
    /// its events leave together, unless some wait for others of their key.
    fn may_share_chunk(&self, chunk: &Chunk) -> bool {
        let batch = &self.plan.settings.batch;
        self.plan.settings.order.is_none()
            && chunk.count <= batch.events_max
            && chunk.bytes_len() as u64 <= batch.bytes_preferred
    }

    fn matches_event(&self, event: &Event) -> bool {
        if self.quarantined_seqs.contains(&event.seq) {
            return true;
        }
        let item = SendItem {
            lane: self.lane,
            seq: event.seq,
            appended: event.appended,
            attempts: 0,
            due: None,
            since: None,
        };
        self.shared.on_event(item, event, || {
            if self.is_poisoned {
                self.shared.panic_if_poisoned(event);
            }
            self.plan.filter().matches(event)
        })
    }
}
