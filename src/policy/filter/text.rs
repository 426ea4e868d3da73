//! Strings as filters compare them: without case, unless they are asked to keep it.
//!
//! Without case means .NET's `OrdinalIgnoreCase`, which Event Grid compares with: each character by itself, by its upper
//! case. So the three sigmas of Greek are equal, and a word that ends in one is found at the beginning of a longer word.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A string: as it was given, and as it is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoldedText {
    given: String,
    folded: String,
}

impl FoldedText {
    /// As it was given.
    pub fn as_str(&self) -> &str {
        &self.given
    }

    /// As it is compared.
    pub(super) fn folded(&self) -> &str {
        &self.folded
    }

    /// As it is compared, and nothing else.
    pub(super) fn into_folded(self) -> String {
        self.folded
    }

    /// As it is compared, as a list of one.
    pub(super) fn folded_alone(&self) -> &[String] {
        std::slice::from_ref(&self.folded)
    }
}

impl From<String> for FoldedText {
    fn from(given: String) -> Self {
        Self { folded: folded(&given), given }
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

/// `text` without its case.
pub(super) fn folded(text: &str) -> String {
    if text.is_ascii() { text.to_ascii_lowercase() } else { text.chars().map(fold).collect() }
}

/// A character without its case: the upper case that Unicode has for it as a single character, except that ASCII letters
/// become lower case. A letter outside of ASCII never equals one of ASCII (.NET's `OrdinalIgnoreCase`).
fn fold(c: char) -> char {
    if c.is_ascii() {
        return c.to_ascii_lowercase();
    }
    let moved = |by: u32| char::from_u32(u32::from(c) + by).unwrap_or(c);
    match c {
        // Of these the full mapping is two characters, and there is a single one besides.
        '\u{1f80}'..='\u{1f87}' | '\u{1f90}'..='\u{1f97}' | '\u{1fa0}'..='\u{1fa7}' => moved(8),
        '\u{1fb3}' | '\u{1fc3}' | '\u{1ff3}' => moved(9),
        _ => {
            let mut upper = c.to_uppercase();
            match (upper.next(), upper.next()) {
                (Some(single), None) if !single.is_ascii() => single,
                _ => c,
            }
        }
    }
}

/// Whether two strings differ in nothing but case.
pub(super) fn same(a: &str, b: &str) -> bool {
    a.eq_ignore_ascii_case(b) || (!a.is_ascii() && folded(a) == folded(b))
}

/// Whether `text`, which has no case, begins with `prefix` but for the case of that.
pub(super) fn begins_with(text: &str, prefix: &str) -> bool {
    let mut chars = text.chars();
    prefix.chars().map(fold).all(|wanted| chars.next() == Some(wanted))
}

/// Whether `text`, which has no case, ends with `suffix` but for the case of that.
pub(super) fn ends_with(text: &str, suffix: &str) -> bool {
    let mut chars = text.chars().rev();
    suffix.chars().rev().map(fold).all(|wanted| chars.next() == Some(wanted))
}
