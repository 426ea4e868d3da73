//! Strings as filters compare them: without case, unless they are asked to keep it.
//!
//! Case goes character by character and not word by word: a Greek word that ends in a sigma would otherwise not be found
//! at the beginning of a longer one.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A string: as it was given, and as it is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    given: String,
    folded: String,
}

impl Text {
    /// As it was given.
    pub fn as_str(&self) -> &str {
        &self.given
    }

    /// As it is compared.
    pub(super) fn folded(&self) -> &str {
        &self.folded
    }
}

impl From<String> for Text {
    fn from(given: String) -> Self {
        Self { folded: folded(&given), given }
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.given.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self::from(String::deserialize(from)?))
    }
}

/// `text` without its case.
pub(super) fn folded(text: &str) -> String {
    if text.is_ascii() { text.to_ascii_lowercase() } else { text.chars().flat_map(char::to_lowercase).collect() }
}

/// Whether two strings differ in nothing but case.
pub(super) fn same(a: &str, b: &str) -> bool {
    a.eq_ignore_ascii_case(b) || (!a.is_ascii() && folded(a) == folded(b))
}

/// Whether `text`, which has no case, begins with `prefix` but for the case of that.
pub(super) fn begins_with(text: &str, prefix: &str) -> bool {
    let mut chars = text.chars();
    prefix.chars().flat_map(char::to_lowercase).all(|wanted| chars.next() == Some(wanted))
}

/// Whether `text`, which has no case, ends with `suffix` but for the case of that.
pub(super) fn ends_with(text: &str, suffix: &str) -> bool {
    let mut chars = text.chars().rev();
    suffix.chars().rev().flat_map(|c| c.to_lowercase().rev()).all(|wanted| chars.next() == Some(wanted))
}
