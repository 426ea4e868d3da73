//! The only module that writes to standard output and standard error for commands.
//!
//! - Control characters are escaped ([`escape`]), because commands print text of publishers and
//!   endpoints.
//! - A closed pipe (`| head -1`) is not an error: the command ends quietly and keeps its exit
//!   status.
//! - A failed write to standard error is ignored.

use std::io::{self, IsTerminal as _, Write};

use serde::Serialize;
use serde_json::value::RawValue;

use gridhook_escape as escape;

/// The state of the pipe behind standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum PipeState {
    Open,
    /// The reader closed the pipe: stop printing.
    Closed,
}

/// Standard output cannot be written, for another reason than a closed pipe.
#[derive(Debug, thiserror::Error)]
#[error("standard output cannot be written")]
pub struct PrintError(#[from] io::Error);

/// Prints lines on standard output.
///
/// # Errors
/// Standard output cannot be written, for example because the disk is full.
pub fn print_lines(lines: &str) -> Result<PipeState, PrintError> {
    print_unescaped(&escape::escape_lines(lines))
}

/// Prints text of the program itself, such as a shell script, without escaping.
///
/// # Errors
/// As [`print_lines`].
pub fn print_unescaped(text: &str) -> Result<PipeState, PrintError> {
    let mut out = io::stdout().lock();
    let written = out
        .write_all(text.trim_end_matches('\n').as_bytes())
        .and_then(|()| out.write_all(b"\n"));
    match written.and_then(|()| out.flush()) {
        Ok(()) => Ok(PipeState::Open),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(PipeState::Closed),
        Err(error) => Err(error.into()),
    }
}

/// Prints lines on standard error.
pub fn print_note(lines: &str) {
    writeln!(io::stderr(), "{}", escape::escape_lines(lines)).ok();
}

/// Prints a question on standard error, without a newline.
pub(super) fn print_prompt(question: &str) {
    let mut error = io::stderr();
    write!(error, "{}", escape::escape_text(question))
        .and_then(|()| error.flush())
        .ok();
}

/// Whether lines on standard error can be replaced.
pub(super) fn is_stderr_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Replaces the current line on standard error.
pub(super) fn update_line(line: &str) {
    write!(io::stderr(), "\r{}\x1b[K", escape::escape_text(line)).ok();
}

/// An error with its causes. A cause that the text already contains is not repeated.
pub fn format_error(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let reason = cause.to_string();
        if !text.contains(&reason) {
            text = format!("{text}: {reason}");
        }
        next = cause.source();
    }
    text
}

/// Indented JSON for scripts. Control characters are escaped, so that a terminal does not act on
/// them.
pub(super) fn to_json(value: &(impl Serialize + ?Sized)) -> String {
    let text = serde_json::to_string_pretty(value)
        .unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"));
    escape::escape_json(&text).into_owned()
}

/// Indented JSON with its own digits and order of keys, so that an event looks as it was published.
pub(super) fn raw_json(value: &RawValue) -> String {
    let mut text = String::new();
    let mut depth = 0;
    let mut is_string = false;
    let mut is_escaped = false;
    let mut rest = value.get().chars().peekable();
    while let Some(c) = rest.next() {
        if is_string {
            text.push(c);
            is_string = c != '"' || is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            continue;
        }
        match c {
            '{' | '[' => {
                text.push(c);
                while rest.next_if(char::is_ascii_whitespace).is_some() {}
                match rest.next_if(|next| matches!(next, '}' | ']')) {
                    Some(end) => text.push(end),
                    None => {
                        depth += 1;
                        begin_line(&mut text, depth);
                    }
                }
            }
            '}' | ']' => {
                depth -= 1;
                begin_line(&mut text, depth);
                text.push(c);
            }
            ',' => {
                text.push(c);
                begin_line(&mut text, depth);
            }
            ':' => text.push_str(": "),
            ' ' | '\t' | '\r' | '\n' => {}
            _ => {
                is_string = c == '"';
                text.push(c);
            }
        }
    }
    escape::escape_json(&text).into_owned()
}

fn begin_line(text: &mut String, depth: usize) {
    text.push('\n');
    text.push_str(&"  ".repeat(depth));
}

/// JSON on one line, for scripts.
pub(super) fn json_line(value: &impl Serialize) -> String {
    let text =
        serde_json::to_string(value).unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"));
    escape::json_line(&text).into_owned()
}
