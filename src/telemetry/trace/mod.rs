//! The way of single events, as spans of OpenTelemetry: published, written to the log, each attempt, what came of it.
//!
//! A delivery may be tried hours later and by another process than the one that took the event, so nothing of a trace is
//! in memory: its place is the event's own attribute `traceparent`, or stands beside the event in the log.
//!
//! Invariants:
//! - Off by default; then a [`Tracer`] is nothing, and asking it is one look.
//! - Whoever records waits for nobody: the queue is bounded, and what finds no room in it is counted and gone.
//! - What came with a trace is recorded where that trace is; of what begins here, a share.
//!
//! Absent on purpose: the crates of OpenTelemetry, which would bring gRPC, protobuf and a second HTTP client for a format
//! whose JSON form is a page; and another way than OTLP over HTTP, which every collector speaks.

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
    encode::encode,
    export::{TraceExporter, start},
    span::{AttributeValue, Span, SpanKind},
};

/// What has become of spans since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpanCounts {
    /// The collector has them.
    pub exported: u64,
    /// They found no room in the queue.
    pub dropped: u64,
    /// The collector did not take them, or was not there.
    pub failed: u64,
}

/// Where spans are recorded; [`Tracer::default`] records none. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Tracer(Option<Arc<TracerShared>>);

#[derive(Debug)]
struct TracerShared {
    queue: SyncSender<Span>,
    /// Of the traces that begin here.
    share: f64,
    closing: AtomicBool,
    exported: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
}

impl Tracer {
    /// Whether anything is recorded at all.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// The place of a new span below `parent`, or of one that begins a trace. [`None`] where it is not recorded.
    pub fn place(&self, parent: Option<&SpanContext>) -> Option<SpanContext> {
        let shared = self.0.as_ref()?;
        let span = SpanId(fastrand::u64(1..));
        match parent {
            Some(parent) => parent.is_sampled.then(|| SpanContext { span, ..parent.clone() }),
            None => {
                let trace = TraceId(fastrand::u128(1..));
                let is_sampled = is_in(trace, shared.share);
                is_sampled.then_some(SpanContext { trace, span, is_sampled, state: None })
            }
        }
    }

    /// Takes a span that is over.
    pub fn record(&self, span: Span) {
        let Some(shared) = &self.0 else { return };
        if shared.queue.try_send(span).is_err() {
            shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What has become of spans; [`None`] where none are recorded.
    pub fn counts(&self) -> Option<SpanCounts> {
        let shared = self.0.as_ref()?;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let [exported, dropped, failed] = [&shared.exported, &shared.dropped, &shared.failed].map(count);
        Some(SpanCounts { exported, dropped, failed })
    }
}

/// Whether a trace is of the share that is recorded: by its number, so that all who share the rule agree.
fn is_in(trace: TraceId, share: f64) -> bool {
    // 53 bits: as many as the number has.
    (((trace.0 as u64) >> 11) as f64) < share * (1u64 << 53) as f64
}
