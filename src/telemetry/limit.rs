//! A bound on the lines that libraries write: a peer can cause them, with each request that it sends and each answer that it
//! gives. The server's own lines are bounded where they are written.
//!
//! Only what is logged by default is bounded. Whoever asks for a library's debug lines wants all of them.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tracing::{Event, Level, Subscriber, callsite::Identifier};
use tracing_subscriber::layer::{Context, Layer};

use crate::{clock::Clock, event::Timestamp};

/// So many lines of one place in the code are written …
const LINES: u32 = 10;

/// … within so long.
const WINDOW: Duration = Duration::from_secs(60);

/// Leaves lines out.
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
        Self { clock, windows: Mutex::default() }
    }

    /// How many lines of this place there were in its window, with this one.
    fn count(&self, place: Identifier) -> u32 {
        let now = self.clock.now();
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        let window = windows.entry(place).or_insert(Window { began: now, lines: 0 });
        if now.since(window.began) >= WINDOW {
            *window = Window { began: now, lines: 0 };
        }
        window.lines = window.lines.saturating_add(1);
        window.lines
    }
}

impl<S: Subscriber> Layer<S> for Limit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        let is_own = metadata.target().split("::").next() == Some(env!("CARGO_CRATE_NAME"));
        if is_own || *metadata.level() > Level::INFO {
            return true;
        }
        let lines = self.count(metadata.callsite());
        if lines == LINES + 1 {
            tracing::warn!(library = metadata.target(), "a library repeats a line: it is left out for a minute");
        }
        lines <= LINES
    }
}
