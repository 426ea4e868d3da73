//! Transforms the events that were read, before the core has them.
//!
//! A transformation that costs little is made at once, in the core. Any other is made by the
//! threads that compute, so that the subscriptions of this thread do not wait for it. What the
//! events make is bounded: the rest is read again.

use std::sync::Arc;

use gridhook_compute::Meter;
use gridhook_event::{Event, Schema};
use gridhook_policy::{Input, transform::Program};

/// The maximum of bytes that expressions could make if they are evaluated at once: that takes less
/// than a millisecond.
const QUICK_BYTES: f64 = 64.0 * 1024.0;

#[derive(Clone)]
pub(super) struct ReadTransformation {
    pub(super) program: Arc<Program>,
    pub(super) schema: Schema,
    /// Maximum bytes of the events with what is delivered instead of them, but for one event.
    pub(super) bytes_max: usize,
}

impl ReadTransformation {
    /// Whether the transformation costs more than the thread of the actor may spend.
    pub(super) fn is_costly(&self, input: &Input) -> bool {
        let output_bytes: f64 = match input {
            Input::Read { events, .. } => events
                .iter()
                .map(|event| self.output_bytes_max(event))
                .sum(),
            Input::Fetched(fetched) => fetched
                .iter()
                .filter_map(|fetched| fetched.event.as_ref())
                .map(|event| self.output_bytes_max(event))
                .sum(),
            _ => 0.0,
        };
        output_bytes > QUICK_BYTES
    }

    /// 0.0 for an event that is transformed already.
    fn output_bytes_max(&self, event: &Event) -> f64 {
        match event.transformation() {
            Some(_) => 0.0,
            None => self.program.total_output_bytes_max(event.wire_len()),
        }
    }

    /// Transforms the events in slices, as many as fit.
    pub(super) async fn transform_events(self, input: Input, meter: Meter) -> Input {
        match input {
            Input::Read {
                lane,
                from,
                upto,
                total,
                events,
            } => {
                let count = events.len();
                let mut events_out = Vec::with_capacity(count);
                let mut bytes = 0;
                for event in events {
                    // Deliveries have no limit of time.
                    meter.pause_if_used_up().await.ok();
                    let event = self.program.transform(event, self.schema);
                    bytes += event.memory_len();
                    if bytes > self.bytes_max && !events_out.is_empty() {
                        let left = (count - events_out.len()) as u64;
                        let total = total.saturating_sub(left).min(event.seq.0 - from.0);
                        return Input::Read {
                            lane,
                            from,
                            upto: event.seq,
                            total,
                            events: events_out,
                        };
                    }
                    events_out.push(event);
                }
                Input::Read {
                    lane,
                    from,
                    upto,
                    total,
                    events: events_out,
                }
            }
            Input::Fetched(fetched) => {
                let mut events_out = Vec::with_capacity(fetched.len());
                let mut bytes = 0;
                for mut pending in fetched {
                    meter.pause_if_used_up().await.ok();
                    pending.event = pending
                        .event
                        .map(|event| self.program.transform(event, self.schema));
                    bytes += pending.event.as_ref().map_or(0, Event::memory_len);
                    if bytes > self.bytes_max && !events_out.is_empty() {
                        break;
                    }
                    events_out.push(pending);
                }
                Input::Fetched(events_out)
            }
            other => other,
        }
    }
}
