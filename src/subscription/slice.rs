//! Filters what was read from the log.

use crate::{plan::DeliveryPlan, shared_state::SharedState};
use gridhook_event::{Lane, Seq};
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
    let mut total = 0;
    let mut upto = slice.upto;
    let mut matching = Vec::new();
    let mut byte_count = 0;
    let is_poisoned = shared.is_poisoned();
    let batch = &plan.settings.batch;
    // These events were dead-lettered as matches. Filtering one again would panic again.
    let quarantined_seqs = shared.quarantined_seqs(lane);
    for chunk in slice.chunks {
        let first = chunk.first.max(from);
        let end = chunk.end_seq().min(slice.upto);
        let Ok(events) = chunk.decode_events() else {
            damage.record_loss(shared.subscription_key.partition, first, end);
            if first > from {
                // The damaged chunk is read again, by itself.
                upto = first;
                break;
            }
            return Input::Unreadable {
                lane,
                from,
                upto: end,
            };
        };
        // A chunk that a request can hold is not copied if it matches for the most part: its events
        // leave together, unless some wait for others of their key.
        let is_shared = plan.settings.order.is_none()
            && chunk.count <= batch.events_max
            && chunk.bytes_len() as u64 <= batch.bytes_preferred;
        let before = matching.len();
        let bytes_before = byte_count;
        matching.reserve(events.len());
        for event in events
            .into_iter()
            .filter(|event| from <= event.seq && event.seq < slice.upto)
        {
            let is_match = quarantined_seqs.contains(&event.seq) || {
                let seq = event.seq;
                let appended = event.appended;
                let item = SendItem {
                    lane,
                    seq,
                    appended,
                    attempts: 0,
                    due: None,
                    since: None,
                };
                shared.on_event(item, &event, || {
                    if is_poisoned {
                        shared.panic_if_poisoned(&event);
                    }
                    plan.filter().matches(&event)
                })
            };
            if is_match {
                if byte_count > 0 && byte_count + event.wire_len() > share {
                    upto = event.seq;
                    break;
                }
                byte_count += event.wire_len();
                matching.push(event);
            }
            total += 1;
        }
        if !is_shared || byte_count - bytes_before < chunk.bytes_len() / 2 {
            // One small event must not keep a chunk in memory.
            matching[before..]
                .iter_mut()
                .for_each(|event| *event = event.detach_from_chunk());
        }
        if upto < end {
            break;
        }
    }
    Input::Read {
        lane,
        from,
        upto,
        total,
        events: matching,
    }
}
