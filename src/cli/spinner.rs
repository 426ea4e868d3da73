//! A progress line on standard error for operations that take longer than one second.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use gridhook_clock::Clock;
use gridhook_escape as escape;
use gridhook_event::Timestamp;

/// The progress line. Dropping it clears the line.
pub(super) struct Spinner {
    line: ProgressBar,
    clock: Clock,
    from: Timestamp,
}

impl Spinner {
    pub(super) fn new() -> Self {
        let line = ProgressBar::no_length();
        line.set_draw_target(ProgressDrawTarget::hidden());
        line.set_style(
            ProgressStyle::with_template("{spinner} {msg}").expect("the template is valid"),
        );
        let clock = Clock::system();
        Self {
            line,
            from: clock.now(),
            clock,
        }
    }

    pub(super) fn set_message(&self, message: String) {
        if self.line.is_hidden() && self.clock.now().since(self.from) >= Duration::from_secs(1) {
            // The line stays hidden if standard error is not a terminal.
            self.line.set_draw_target(ProgressDrawTarget::stderr());
        }
        self.line
            .set_message(escape::escape_text(&message).into_owned());
        self.line.tick();
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.line.finish_and_clear();
    }
}
