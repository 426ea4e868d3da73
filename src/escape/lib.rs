//! Escapes text from outside for printing: to a terminal, to the log, in a line of JSON. Also
//! formats numbers for people ([`count_with_noun`]).
//!
//! Publishers choose the text of events, endpoints that of responses. A terminal executes control
//! characters in it (C0, DEL and C1), reorders text after bidirectional controls, and starts a new
//! line at a forged newline. All of these characters are replaced by escapes; other text is
//! unchanged.
//!
//! Every command and the log use these functions. A test rejects other ways to print.

use std::{
    borrow::Cow,
    fmt::{Display, Write as _},
};

/// A number with its noun, whose plural ends with s.
pub fn count_with_noun(count: impl Display, noun: &str) -> String {
    let count = count.to_string();
    let plural = if count == "1" { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

/// A number with a comma between groups of three digits.
pub fn group_thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Whether a terminal may execute this character or reorder text around it.
pub fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            // Arabic letter mark; left-to-right and right-to-left marks.
            '\u{61c}' | '\u{200e}' | '\u{200f}'
            // Line and paragraph separators, then embeddings and overrides.
            | '\u{2028}'..='\u{202e}'
            // Isolates and the deprecated format characters after them.
            | '\u{2066}'..='\u{206f}'
            // Interlinear annotation.
            | '\u{fff9}'..='\u{fffb}'
        )
}

/// Escapes a value within a line, including newlines.
pub fn escape_text(text: &str) -> Cow<'_, str> {
    replace_chars(text, |_| false, |c, out| out.extend(c.escape_default()))
}

/// Escapes lines of a program's own making, keeping newlines.
pub fn escape_lines(text: &str) -> Cow<'_, str> {
    replace_chars(text, |c| c == '\n', |c, out| out.extend(c.escape_default()))
}

/// Escapes JSON over several lines. The JSON stays equivalent: within strings the escape means the
/// same, elsewhere it is whitespace.
pub fn escape_json(text: &str) -> Cow<'_, str> {
    replace_chars(text, |c| c == '\n', in_json)
}

/// Escapes JSON on one line.
pub fn json_line(text: &str) -> Cow<'_, str> {
    replace_chars(text, |_| false, in_json)
}

fn in_json(c: char, out: &mut String) {
    match c {
        // In JSON these are only between values; within strings they are escaped already.
        '\t' | '\n' | '\r' => out.push(' '),
        // All unsafe characters are in the basic plane. Writing to a string does not fail.
        c => drop(write!(out, "\\u{:04x}", u32::from(c))),
    }
}

fn replace_chars(
    text: &str,
    is_kept: impl Fn(char) -> bool,
    escape: impl Fn(char, &mut String),
) -> Cow<'_, str> {
    let is_replaced = |c: char| is_unsafe(c) && !is_kept(c);
    if !text.contains(is_replaced) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_replaced(c) {
            escape(c, &mut out)
        } else {
            out.push(c)
        }
    }
    Cow::Owned(out)
}
