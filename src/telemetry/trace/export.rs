//! The thread that exports spans to the collector in batches.
//!
//! Spans that the collector does not accept are counted and dropped. The log has the begin and the
//! end of an outage, not each failure.

use std::{
    io,
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{self, Receiver, RecvTimeoutError},
    },
    thread::JoinHandle,
    time::Duration,
};

use reqwest::{Client, Url, header::CONTENT_TYPE, redirect};

use super::{Span, Tracer, TracerShared, encode_spans};
use gridhook_clock::Clock;
use gridhook_config::Telemetry;

/// 512 spans: the usual batch of OpenTelemetry's own exporters.
const BATCH_SPANS_MAX: usize = 512;

/// The interval between two checks for the end.
const LOOK: Duration = Duration::from_millis(100);

/// The longest time that a stop waits for the queue.
const CLOSE_WAIT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct TraceExporter {
    tracer: Tracer,
    ended: Receiver<()>,
    thread: JoinHandle<()>,
}

/// Starts the thread; [`None`] if the settings name no collector. `server` is the server's URL in
/// the spans.
pub fn start(
    settings: &Telemetry,
    clock: Clock,
    server: String,
) -> io::Result<Option<(Tracer, TraceExporter)>> {
    let Some(url) = settings.traces_url() else {
        return Ok(None);
    };
    let (queue, spans) = mpsc::sync_channel(settings.queue_spans);
    let state = Arc::new(TracerShared {
        queue,
        share: settings.sample_share,
        closing: false.into(),
        exported: 0.into(),
        dropped: 0.into(),
        failed: 0.into(),
    });
    // An error means that the dead-letter stores have installed the same provider.
    rustls::crypto::ring::default_provider()
        .install_default()
        .ok();
    let client = Client::builder()
        .no_proxy()
        .redirect(redirect::Policy::none())
        .timeout(settings.export_timeout)
        .build();
    let client = client.map_err(io::Error::other)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let work = ExportWork {
        shared: Arc::clone(&state),
        spans,
        clock,
        batch_delay: settings.batch_delay,
    };
    let (end, ended) = mpsc::channel();
    let span = tracing::Span::current();
    let thread = std::thread::Builder::new()
        .name("traces".to_owned())
        .spawn(move || {
            let _in = span.entered();
            let post = ExportRequest {
                client,
                url,
                server,
            };
            runtime.block_on(work.run(&post));
            // An error means that `close` no longer waits.
            end.send(()).ok();
        })?;
    let tracer = Tracer(Some(state));
    Ok(Some((
        tracer.clone(),
        TraceExporter {
            tracer,
            ended,
            thread,
        },
    )))
}

impl TraceExporter {
    /// Exports the queued spans, within `CLOSE_WAIT`.
    pub fn close(self) {
        if let Some(shared) = &self.tracer.0 {
            shared.closing.store(true, Ordering::Relaxed);
        }
        let in_time = self.ended.recv_timeout(CLOSE_WAIT).is_ok();
        if in_time && self.thread.join().is_err() {
            tracing::error!("the thread that exports spans panicked");
        }
        if let Some(counts) = self.tracer.span_counts() {
            tracing::info!(
                counts.exported,
                counts.dropped,
                counts.failed,
                in_time,
                "span export ended"
            );
        }
    }
}

struct ExportWork {
    shared: Arc<TracerShared>,
    spans: Receiver<Span>,
    clock: Clock,
    batch_delay: Duration,
}

impl ExportWork {
    /// Runs on a thread of its own, so it may block between two requests.
    async fn run(self, post: &ExportRequest) {
        let mut was_accepted = true;
        while let Some(batch) = self.next_batch() {
            let count = batch.len() as u64;
            let result = post.send_batch(&batch, &self.clock).await;
            let counter = if result.is_ok() {
                &self.shared.exported
            } else {
                &self.shared.failed
            };
            counter.fetch_add(count, Ordering::Relaxed);
            match &result {
                Err(error) if was_accepted => {
                    tracing::warn!(url = %post.url, %error, "span export fails: spans are dropped")
                }
                Ok(()) if !was_accepted => {
                    tracing::info!(url = %post.url, "span export works again")
                }
                Ok(()) | Err(_) => {}
            }
            was_accepted = result.is_ok();
        }
    }

    /// The next batch, once it is full or its time is over; [`None`] at the end.
    fn next_batch(&self) -> Option<Vec<Span>> {
        let mut batch = Vec::new();
        let mut due = None;
        loop {
            let is_closing = self.shared.closing.load(Ordering::Relaxed);
            let now = self.clock.now();
            if batch.len() >= BATCH_SPANS_MAX || due.is_some_and(|due| due <= now) {
                return Some(batch);
            }
            match self.spans.recv_timeout(if is_closing {
                Duration::ZERO
            } else {
                LOOK.min(self.batch_delay)
            }) {
                Ok(span) => {
                    batch.push(span);
                    due = due.or(Some(now.after(self.batch_delay)));
                }
                Err(RecvTimeoutError::Timeout) if !is_closing => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    return (!batch.is_empty()).then_some(batch);
                }
            }
        }
    }
}

struct ExportRequest {
    client: Client,
    url: Url,
    server: String,
}

impl ExportRequest {
    async fn send_batch(&self, batch: &[Span], clock: &Clock) -> Result<(), String> {
        let body = encode_spans(batch, &self.server, |at| clock.to_wall(at));
        let request = self
            .client
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .body(body);
        let response = request
            .send()
            .await
            .map_err(|error| describe_sources(&error))?;
        if response.status().is_success() {
            Ok(())
        } else {
            Err(format!("the response is {}", response.status()))
        }
    }
}

/// An error with its sources. The error itself says only that the request failed.
fn describe_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
