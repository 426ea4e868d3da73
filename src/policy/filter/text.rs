//! Comparison of strings in filters: without case unless configured otherwise.
//!
//! Event Grid compares like .NET's `OrdinalIgnoreCase`: each character by its own upper case. The
//! three Greek sigmas are therefore equal, and a word that ends with one is a prefix of longer
//! words.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A string, as given and case-folded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoldedText {
    given: String,
    folded: String,
}

impl FoldedText {
    /// As the filter has it, not case-folded.
    pub fn as_str(&self) -> &str {
        &self.given
    }

    pub(super) fn as_folded(&self) -> &str {
        &self.folded
    }

    pub(super) fn into_folded(self) -> String {
        self.folded
    }

    /// Case-folded, as a list of one.
    pub(super) fn folded_alone(&self) -> &[String] {
        std::slice::from_ref(&self.folded)
    }
}

impl From<String> for FoldedText {
    fn from(given: String) -> Self {
        Self {
            folded: fold_case(&given),
            given,
        }
    }
}

impl Serialize for FoldedText {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.given.serialize(to)
    }
}

impl<'de> Deserialize<'de> for FoldedText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self::from(String::deserialize(from)?))
    }
}

pub(super) fn fold_case(text: &str) -> String {
    if text.is_ascii() {
        text.to_ascii_lowercase()
    } else {
        text.chars().map(fold_char).collect()
    }
}

/// Longer texts are folded on the heap.
const FOLDED_ON_STACK: usize = 128;

/// Passes a case-folded text to `act`: the contents of the JSON string literal `literal`, or else
/// `folded`. A short ASCII literal without escapes is folded without decoding it and without an
/// allocation.
pub(super) fn with_folded<'t, T>(
    literal: &[u8],
    folded: impl FnOnce() -> &'t str,
    act: impl FnOnce(&[u8]) -> T,
) -> T {
    let is_plain = || literal.iter().all(|byte| byte.is_ascii() && *byte != b'\\');
    let mut room = [0; FOLDED_ON_STACK];
    match room.get_mut(..literal.len()) {
        Some(room) if is_plain() => {
            room.copy_from_slice(literal);
            room.make_ascii_lowercase();
            act(room)
        }
        Some(_) | None => act(folded().as_bytes()),
    }
}

/// Folds the case of a character: its upper case if Unicode has it as a single character, but lower
/// case for ASCII letters. A letter outside ASCII never equals an ASCII letter (.NET's
/// `OrdinalIgnoreCase`).
fn fold_char(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_lowercase();
    }
    let shift = |by: u32| char::from_u32(u32::from(c) + by).unwrap_or(c);
    match c {
        // Their full mapping has two characters, but a single one exists too.
        '\u{1f80}'..='\u{1f87}' | '\u{1f90}'..='\u{1f97}' | '\u{1fa0}'..='\u{1fa7}' => shift(8),
        '\u{1fb3}' | '\u{1fc3}' | '\u{1ff3}' => shift(9),
        _ => {
            let mut upper = c.to_uppercase();
            match (upper.next(), upper.next()) {
                (Some(single), None) if !single.is_ascii() => single,
                _ => c,
            }
        }
    }
}

/// Whether two strings are equal without case.
pub(super) fn equal_ignoring_case(a: &str, b: &str) -> bool {
    // Most strings have the same case, and whole words are compared faster.
    a == b || a.eq_ignore_ascii_case(b) || (!a.is_ascii() && fold_case(a) == fold_case(b))
}

/// Whether `text` starts with `prefix`, without case.
pub(super) fn begins_with(text: &str, prefix: &str) -> bool {
    if text.starts_with(prefix) {
        return true;
    }
    if prefix.is_ascii() {
        return text
            .as_bytes()
            .get(..prefix.len())
            .is_some_and(|part| part.eq_ignore_ascii_case(prefix.as_bytes()));
    }
    let mut chars = text.chars().map(fold_char);
    prefix
        .chars()
        .map(fold_char)
        .all(|wanted| chars.next() == Some(wanted))
}

/// Whether `text` ends with `suffix`, without case.
pub(super) fn ends_with(text: &str, suffix: &str) -> bool {
    if suffix.is_ascii() {
        let start = text.len().checked_sub(suffix.len());
        return start
            .is_some_and(|start| text.as_bytes()[start..].eq_ignore_ascii_case(suffix.as_bytes()));
    }
    let mut chars = text.chars().rev().map(fold_char);
    suffix
        .chars()
        .rev()
        .map(fold_char)
        .all(|wanted| chars.next() == Some(wanted))
}
