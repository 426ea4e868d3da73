//! Limits the log lines of libraries, because a peer can cause one with each request or response.
//! The server's own lines are limited where they are written.
//!
//! Only levels that are logged by default are limited; debug lines are written in full.

use std::{collections::HashMap, fmt, time::Duration};

use parking_lot::Mutex;
use tracing::{
    Event, Level, Subscriber,
    callsite::Identifier,
    field::{Field, Visit},
};
use tracing_subscriber::layer::{Context, Layer};

use gridhook_clock::Clock;
use gridhook_event::Timestamp;

/// The maximum number of lines from one call site in a [`WINDOW`].
const LINES: u32 = 10;

const WINDOW: Duration = Duration::from_secs(60);

/// The module of actix that reads HTTP/1 requests.
const HTTP1: &str = "actix_http::h1::dispatcher";

/// The beginning of its error line for a request that cannot be parsed. The client made the error,
/// and got 400.
const MALFORMED: &str = "stream error: ";

/// The message of a line.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

/// Drops lines beyond the limit.
pub(super) struct Limit {
    clock: Clock,
    windows: Mutex<HashMap<Identifier, Window>>,
}

struct Window {
    began: Timestamp,
    lines: u32,
}

impl Limit {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            windows: Mutex::default(),
        }
    }

    /// The number of lines of this call site in the current window, this one included.
    fn count_line(&self, call_site: Identifier) -> u32 {
        let now = self.clock.now();
        let mut windows = self.windows.lock();
        let window = windows.entry(call_site).or_insert(Window {
            began: now,
            lines: 0,
        });
        if now.since(window.began) >= WINDOW {
            *window = Window {
                began: now,
                lines: 0,
            };
        }
        window.lines = window.lines.saturating_add(1);
        window.lines
    }
}

impl<S: Subscriber> Layer<S> for Limit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        let is_own = metadata.target().starts_with("gridhook");
        if is_own || *metadata.level() > Level::INFO {
            return true;
        }
        if metadata.target() == HTTP1 {
            let mut message = Message::default();
            event.record(&mut message);
            if let Some(problem) = message.0.strip_prefix(MALFORMED) {
                tracing::debug!(problem, "malformed request");
                return false;
            }
        }
        let lines = self.count_line(metadata.callsite());
        if lines == LINES + 1 {
            tracing::warn!(
                library = metadata.target(),
                "a library repeats a line; it is suppressed for up to a minute"
            );
        }
        lines <= LINES
    }
}
