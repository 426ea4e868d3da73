//! OpenTelemetry spans of single events: publish, append, each delivery attempt, its outcome.
//!
//! A delivery attempt may come hours later and from another process than the publish request. So
//! the trace context is not kept in memory: it is the event's attribute `traceparent`, or is stored
//! beside the event in the log.
//!
//! Invariants:
//! - Traces are off by default; then recording costs one check.
//! - Recording never blocks: the queue is bounded, and spans beyond it are counted and dropped.
//! - A trace that began elsewhere follows its own sampling decision; of traces that begin here a
//!   share is sampled.
//!
//! Not used: the OpenTelemetry crates, which would add gRPC, protobuf and a second HTTP client for
//! a format whose JSON form is a page of code. Not supported: protocols other than OTLP over HTTP,
//! which every collector accepts.

pub mod carrier;
mod context;
mod encode;
mod export;
mod span;

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
    mpsc::SyncSender,
};

pub use self::{
    context::{SpanContext, SpanId, TraceId},
    encode::encode_spans,
    export::{TraceExporter, start},
    span::{AttributeValue, Span, SpanKind},
};

/// The number of spans since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanCounts {
    pub exported: u64,
    pub dropped: u64,
    /// Spans that the collector refused, or to which it did not respond.
    pub failed: u64,
}

/// Records spans; [`Tracer::default`] records none. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Tracer(Option<Arc<TracerShared>>);

#[derive(Debug)]
struct TracerShared {
    queue: SyncSender<Span>,
    /// The sampled share of traces that begin here.
    share: f64,
    closing: AtomicBool,
    exported: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
}

impl Tracer {
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// The context of a new span below `parent`, or of a new trace; [`None`] if it is not recorded.
    pub fn new_context(&self, parent: Option<&SpanContext>) -> Option<SpanContext> {
        let tracer_state = self.0.as_ref()?;
        let span = SpanId(fastrand::u64(1..));
        match parent {
            Some(parent) => parent.is_sampled.then(|| SpanContext {
                span,
                ..parent.clone()
            }),
            None => {
                let trace = TraceId(fastrand::u128(1..));
                let is_sampled = is_in(trace, tracer_state.share);
                is_sampled.then_some(SpanContext {
                    trace,
                    span,
                    is_sampled,
                    state: None,
                })
            }
        }
    }

    pub fn record_span(&self, span: Span) {
        let Some(shared) = &self.0 else { return };
        if shared.queue.try_send(span).is_err() {
            shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The counts; [`None`] if spans are not recorded.
    pub fn span_counts(&self) -> Option<SpanCounts> {
        let state = self.0.as_ref()?;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let [exported, dropped, failed] =
            [&state.exported, &state.dropped, &state.failed].map(count);
        Some(SpanCounts {
            exported,
            dropped,
            failed,
        })
    }
}

/// Whether a trace is in the sampled share. The decision depends on the trace id, so that all
/// servers agree.
fn is_in(trace: TraceId, share: f64) -> bool {
    // An f64 holds 53 bits exactly.
    (((trace.0 as u64) >> 11) as f64) < share * (1u64 << 53) as f64
}
