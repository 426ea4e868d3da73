//! JSON parsing for publishing: the kind of a value, the members of an object, the depth.
//!
//! serde_json decides what is valid; values stay the bytes that were sent ([`RawValue`]). Two
//! checks are left to this module. serde_json skips a value without using stack, so it sets no
//! limit on depth. And a skipped string may contain escapes that are no character (lone
//! surrogates); [`decode_string`] refuses those.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::refusal::{JsonToken, Refusal};

/// The first `kept_max` elements of an array, and the number of all.
pub(super) struct ArrayElements<'a> {
    pub(super) kept: Vec<&'a RawValue>,
    pub(super) count: usize,
}

/// Reads an array. Keeps at most `kept_max` elements, because a body can have hundreds of
/// thousands.
pub(super) fn read_elements(json: &str, kept_max: usize) -> serde_json::Result<ArrayElements<'_>> {
    let mut reader = serde_json::Deserializer::from_str(json);
    let elements = ElementsOf { kept_max }.deserialize(&mut reader)?;
    reader.end()?;
    Ok(elements)
}

/// The members of an object that a schema defines.
pub(super) trait ObjectMembers<'a> {
    /// Keeps a member, if the schema allows it.
    fn put(&mut self, name: &'a str, value: JsonValue<'a>) -> Result<(), Refusal>;
}

#[derive(Clone, Copy, Debug)]
pub(super) struct JsonValue<'a> {
    pub(super) text: &'a str,
    /// Whether a string in the value has escapes.
    pub(super) has_escapes: bool,
}

impl<'a> JsonValue<'a> {
    pub(super) fn from_raw(value: &'a RawValue) -> Self {
        Self::from_text(value.get())
    }

    /// The value with this text, which is valid JSON.
    pub(super) fn from_text(text: &'a str) -> Self {
        Self {
            text,
            has_escapes: text.contains('\\'),
        }
    }

    #[inline]
    pub(super) fn is_null(&self) -> bool {
        self.text == "null"
    }

    /// Whether the value is a string whose escapes all decode to characters (no lone surrogate).
    #[inline]
    pub(super) fn is_string(&self) -> bool {
        self.string_literal().is_some() && (!self.has_escapes || self.decode_characters().is_some())
    }

    /// Whether the value is a string literal, whatever its escapes say.
    #[inline]
    pub(super) fn is_literal(&self) -> bool {
        self.text.starts_with('"')
    }

    /// Whether the value is a string, or a number or boolean whose text is used as one.
    #[inline]
    pub(super) fn is_text(&self) -> bool {
        self.is_string() || (!self.is_literal() && self.is_scalar())
    }

    /// The characters of a string; the text of a number or a boolean.
    pub(super) fn scalar_text(&self) -> Option<Cow<'a, str>> {
        if self.is_literal() {
            self.decode_characters()
        } else {
            self.is_scalar().then_some(Cow::Borrowed(self.text))
        }
    }

    #[cold]
    fn is_scalar(&self) -> bool {
        matches!(
            first_token(self.text),
            Some(JsonToken::Integer | JsonToken::Float | JsonToken::Boolean)
        )
    }

    /// The content of a string literal; other values as they are.
    #[inline]
    pub(super) fn literal_content(&self) -> &'a str {
        self.string_literal().unwrap_or(self.text)
    }

    /// The decoded characters of a string; [`None`] if the value is not a string, or has an escape
    /// that is no character.
    pub(super) fn decode_characters(&self) -> Option<Cow<'a, str>> {
        let inside = self.string_literal()?;
        if self.has_escapes {
            return serde_json::from_str(self.text).ok().map(Cow::Owned);
        }
        Some(Cow::Borrowed(inside))
    }

    #[inline]
    fn string_literal(&self) -> Option<&'a str> {
        self.text.strip_prefix('"')?.strip_suffix('"')
    }
}

/// Passes the members of `object` to `each` in order, until it returns an error.
pub(super) fn read_members<'a>(
    object: &'a RawValue,
    each: impl FnMut(Cow<'a, str>, &'a RawValue) -> Result<(), Refusal>,
) -> serde_json::Result<Result<(), Refusal>> {
    serde_json::Deserializer::from_str(object.get()).deserialize_map(MembersOf { each })
}

/// The token that begins a JSON text; [`None`] for white space only.
pub(super) fn first_token(json: &str) -> Option<JsonToken> {
    let json = json.trim_start_matches([' ', '\t', '\r', '\n']);
    Some(match json.as_bytes().first()? {
        b'{' => JsonToken::StartObject,
        b'[' => JsonToken::StartArray,
        b'"' => JsonToken::String,
        b't' | b'f' => JsonToken::Boolean,
        b'n' => JsonToken::Null,
        b'-' | b'0'..=b'9' => {
            let end = json
                .find([',', ']', '}', ' ', '\t', '\r', '\n'])
                .unwrap_or(json.len());
            if json[..end].contains(['.', 'e', 'E']) {
                JsonToken::Float
            } else {
                JsonToken::Integer
            }
        }
        _ => JsonToken::Undefined,
    })
}

pub(super) fn is_null(value: &RawValue) -> bool {
    JsonValue::from_raw(value).is_null()
}

/// The decoded characters of a string; [`None`] if the value is not a string, or has an escape that
/// is no character.
pub(super) fn decode_string(value: &RawValue) -> Option<Cow<'_, str>> {
    JsonValue::from_raw(value).decode_characters()
}

/// Whether valid JSON is nested more than `max` levels deep.
pub(super) fn is_deeper(json: &str, max: usize) -> bool {
    // Counting braces and brackets is many times faster than tracking strings, and usually decides.
    let is_opener = |byte: &u8| u8::from(matches!(byte, b'{' | b'['));
    // Parts whose count fits into a byte are counted with vector instructions.
    let parts = json.as_bytes().chunks(usize::from(u8::MAX));
    let openers: usize = parts
        .map(|part| usize::from(part.iter().map(is_opener).sum::<u8>()))
        .sum();
    openers > max && nesting_depth(json) > max
}

fn nesting_depth(json: &str) -> usize {
    let mut depth = 0usize;
    let mut deepest = 0usize;
    let mut in_string = false;
    let mut is_escape = false;
    for byte in json.bytes() {
        match byte {
            _ if is_escape => is_escape = false,
            b'\\' => is_escape = true,
            b'"' => in_string = !in_string,
            _ if in_string => {}
            b'{' | b'[' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' => depth -= 1,
            _ => {}
        }
    }
    deepest
}

struct ElementsOf {
    kept_max: usize,
}

impl<'de> DeserializeSeed<'de> for ElementsOf {
    type Value = ArrayElements<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for ElementsOf {
    type Value = ArrayElements<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut elements = ArrayElements {
            kept: Vec::new(),
            count: 0,
        };
        while let Some(element) = seq.next_element::<&'de RawValue>()? {
            elements.count += 1;
            if elements.count <= self.kept_max {
                elements.kept.push(element);
            }
        }
        Ok(elements)
    }
}

struct MembersOf<F> {
    each: F,
}

/// A member's name, borrowed unless it contains escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct MemberName<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de, F> Visitor<'de> for MembersOf<F>
where
    F: FnMut(Cow<'de, str>, &'de RawValue) -> Result<(), Refusal>,
{
    type Value = Result<(), Refusal>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut verdict = Ok(());
        // After an error the rest is read and discarded, because serde_json must reach the end of
        // the map.
        while let Some((MemberName(name), value)) =
            map.next_entry::<MemberName<'de>, &'de RawValue>()?
        {
            if verdict.is_ok() {
                verdict = (self.each)(name, value);
            }
        }
        Ok(verdict)
    }
}
