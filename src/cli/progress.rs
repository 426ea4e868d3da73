//! Progress on standard error of operations that take longer than one second.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::print;
use gridhook_clock::Clock;
use gridhook_escape as escape;
use gridhook_event::Timestamp;

/// A line with a bar or a spinner. Dropping it clears the line.
pub(super) struct Progress {
    bar: ProgressBar,
    clock: Clock,
    from: Timestamp,
}

impl Progress {
    pub(super) fn spinner() -> Self {
        Self::with_bar("{spinner} {msg}", None)
    }

    /// A line as `template` of indicatif. Without a length the end is not known.
    pub(super) fn with_bar(template: &str, length: Option<u64>) -> Self {
        let bar = length.map_or_else(ProgressBar::no_length, ProgressBar::new);
        bar.set_draw_target(ProgressDrawTarget::hidden());
        bar.set_style(ProgressStyle::with_template(template).expect("the template is valid"));
        let clock = Clock::system();
        Self {
            bar,
            from: clock.now(),
            clock,
        }
    }

    pub(super) fn set_position(&self, position: u64) {
        self.show();
        self.bar.set_position(position);
    }

    pub(super) fn set_message(&self, message: &str) {
        self.show();
        self.bar
            .set_message(escape::escape_text(message).into_owned());
        self.bar.tick();
    }

    fn show(&self) {
        if self.bar.is_hidden() && self.clock.now().since(self.from) >= Duration::from_secs(1) {
            // The line stays hidden if standard error is not a terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// The progress of something with a state, in one line. A file or a pipe gets a line for each state
/// instead.
#[derive(Default)]
pub(super) struct StateLine {
    last_state: Option<String>,
}

impl StateLine {
    pub(super) fn show(&mut self, state: &str, line: &str) {
        if print::is_stderr_terminal() {
            print::update_line(line);
        } else if self.last_state.as_deref() != Some(state) {
            print::print_note(line);
        }
        self.last_state = Some(state.to_owned());
    }

    /// Ends the line.
    pub(super) fn end(&self) {
        if print::is_stderr_terminal() {
            print::print_note("");
        }
    }
}
