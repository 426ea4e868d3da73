//! Text from outside, made safe to print: in a terminal, in the log, in a line of JSON.
//!
//! A publisher chooses an event's text, an endpoint chooses its answer. A terminal obeys control characters in it (C0, DEL
//! and C1), shows bidirectional controls as a changed order, and begins a new line where one was forged. All of these
//! characters are replaced by their escapes. What is printed otherwise stays as it is.
//!
//! Every command and the log use these functions; a test finds other ways to print.

use std::{borrow::Cow, fmt::Write as _};

/// Whether a terminal might obey this character, or show its neighbours out of order.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            // Arabic letter mark; left-to-right and right-to-left marks.
            '\u{61c}' | '\u{200e}' | '\u{200f}'
            // Line and paragraph separators, then embeddings and overrides.
            | '\u{2028}'..='\u{202e}'
            // Isolates, and the deprecated format characters behind them.
            | '\u{2066}'..='\u{206f}'
            // Interlinear annotation.
            | '\u{fff9}'..='\u{fffb}'
        )
}

/// A value within a line: newlines are escaped, too.
pub fn text(text: &str) -> Cow<'_, str> {
    replace(text, |_| false, |c, out| out.extend(c.escape_default()))
}

/// Lines of a program's own making: their newlines stay.
pub fn lines(text: &str) -> Cow<'_, str> {
    replace(text, |c| c == '\n', |c, out| out.extend(c.escape_default()))
}

/// JSON text over several lines. It stays the same JSON: such a character stands within a string, where its escape means
/// the same, or it is whitespace between values.
pub fn json(text: &str) -> Cow<'_, str> {
    replace(text, |c| c == '\n', in_json)
}

/// JSON text on one line.
pub fn json_line(text: &str) -> Cow<'_, str> {
    replace(text, |_| false, in_json)
}

fn in_json(c: char, out: &mut String) {
    match c {
        // JSON has these only between values; within a string they are escaped already.
        '\t' | '\n' | '\r' => out.push(' '),
        // Every unsafe character is in the basic plane. Writing to a string does not fail.
        c => drop(write!(out, "\\u{:04x}", u32::from(c))),
    }
}

fn replace(text: &str, is_kept: impl Fn(char) -> bool, escape: impl Fn(char, &mut String)) -> Cow<'_, str> {
    let is_replaced = |c: char| is_unsafe(c) && !is_kept(c);
    if !text.contains(is_replaced) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_replaced(c) { escape(c, &mut out) } else { out.push(c) }
    }
    Cow::Owned(out)
}
