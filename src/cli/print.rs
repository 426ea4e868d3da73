//! The one place where commands print.
//!
//! - What a terminal would obey is escaped ([`escape`]): a command prints what publishers and endpoints sent.
//! - A reader that has closed the pipe (`| head -1`) is no error: the command ends quietly, with the status that it would
//!   have had.
//! - Standard error has nobody who could be told that it is gone: a note that cannot be written is lost.

use std::io::{self, Write};

use serde::Serialize;

use crate::escape;

/// Whether somebody reads standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum PipeState {
    /// Somebody does.
    Reads,
    /// The pipe is closed: nothing more needs to be printed.
    Gone,
}

/// Standard output takes nothing, and not because nobody reads.
#[derive(Debug, thiserror::Error)]
#[error("standard output cannot be written")]
pub struct PrintError(#[from] io::Error);

/// Prints lines on standard output.
///
/// # Errors
/// Where it cannot be written, as on a full disk.
pub fn out(lines: &str) -> Result<PipeState, PrintError> {
    raw(&escape::lines(lines))
}

/// Prints a text of the program's own, such as a script, on standard output.
///
/// # Errors
/// As [`out`].
pub fn raw(text: &str) -> Result<PipeState, PrintError> {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.trim_end_matches('\n').as_bytes()).and_then(|()| out.write_all(b"\n"));
    match written.and_then(|()| out.flush()) {
        Ok(()) => Ok(PipeState::Reads),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(PipeState::Gone),
        Err(error) => Err(error.into()),
    }
}

/// Prints lines on standard error.
pub fn note(lines: &str) {
    writeln!(io::stderr(), "{}", escape::lines(lines)).ok();
}

/// Prints on standard error without a newline: a question.
pub(super) fn prompt(question: &str) {
    let mut error = io::stderr();
    write!(error, "{}", escape::text(question)).and_then(|()| error.flush()).ok();
}

/// Prints a line on standard error in the place of the one before.
pub(super) fn update(line: &str) {
    write!(io::stderr(), "\r{}\x1b[K", escape::text(line)).ok();
}

/// An error with its causes. An error whose text already ends with its cause's does not repeat it.
pub fn error(error: &anyhow::Error) -> String {
    let mut told = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let text = cause.to_string();
        if !told.contains(&text) {
            told = format!("{told}: {text}");
        }
        next = cause.source();
    }
    told
}

/// JSON for scripts, over several lines.
pub(super) fn json(value: &impl Serialize) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"));
    escape::json(&text).into_owned()
}

/// JSON for scripts, on one line.
pub(super) fn json_line(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"));
    escape::json_line(&text).into_owned()
}
