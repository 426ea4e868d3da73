//! The little that publishing needs to know of JSON: what kind a value is, what an object's members are, how deep it goes.
//!
//! serde_json decides what is JSON; values stay the bytes that were sent ([`RawValue`]). Two things it leaves to us:
//! skipping a value costs it no stack, so it sets no limit to the depth either, and a skipped string may contain escapes
//! that stand for no character (lone surrogates). Whoever needs the text of a string asks [`text`], which refuses those.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::publish::refusal::{JsonToken, Refusal};

/// The elements of an array: the first `kept_max`, and how many there are.
pub(super) struct ArrayElements<'a> {
    pub(super) kept: Vec<&'a RawValue>,
    pub(super) count: usize,
}

/// Reads an array. A body of commas and zeros has hundreds of thousands of elements: no more than `kept_max` are kept.
pub(super) fn elements(json: &str, kept_max: usize) -> serde_json::Result<ArrayElements<'_>> {
    let mut reader = serde_json::Deserializer::from_str(json);
    let elements = ElementsOf { kept_max }.deserialize(&mut reader)?;
    reader.end()?;
    Ok(elements)
}

/// Hands the members of `object` to `each`, in order, until it refuses one.
pub(super) fn members<'a>(
    object: &'a RawValue,
    each: impl FnMut(Cow<'a, str>, &'a RawValue) -> Result<(), Refusal>,
) -> serde_json::Result<Result<(), Refusal>> {
    serde_json::Deserializer::from_str(object.get()).deserialize_map(MembersOf { each })
}

/// What a JSON text begins with; [`None`] where it has nothing but white space.
pub(super) fn token(json: &str) -> Option<JsonToken> {
    let json = json.trim_start_matches([' ', '\t', '\r', '\n']);
    Some(match json.as_bytes().first()? {
        b'{' => JsonToken::StartObject,
        b'[' => JsonToken::StartArray,
        b'"' => JsonToken::String,
        b't' | b'f' => JsonToken::Boolean,
        b'n' => JsonToken::Null,
        b'-' | b'0'..=b'9' => {
            let end = json.find([',', ']', '}', ' ', '\t', '\r', '\n']).unwrap_or(json.len());
            if json[..end].contains(['.', 'e', 'E']) { JsonToken::Float } else { JsonToken::Integer }
        }
        _ => JsonToken::Undefined,
    })
}

/// Whether a value is `null`.
pub(super) fn is_null(value: &RawValue) -> bool {
    value.get() == "null"
}

/// The characters of a string. [`None`] where the value is no string, or has escapes that stand for no character.
pub(super) fn text(value: &RawValue) -> Option<Cow<'_, str>> {
    let inside = value.get().strip_prefix('"')?.strip_suffix('"')?;
    if !inside.contains('\\') {
        return Some(Cow::Borrowed(inside));
    }
    serde_json::from_str(value.get()).ok().map(Cow::Owned)
}

/// Whether objects and arrays are nested more than `max` deep in `json`, which is JSON.
pub(super) fn is_deeper(json: &str, max: usize) -> bool {
    // Counting the openers is many times faster than following strings, and nearly always answers.
    let openers = json.bytes().filter(|byte| matches!(byte, b'{' | b'[')).count();
    openers > max && deepest(json) > max
}

fn deepest(json: &str) -> usize {
    let (mut depth, mut deepest) = (0usize, 0usize);
    let (mut in_string, mut escaped) = (false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
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
        let mut elements = ArrayElements { kept: Vec::new(), count: 0 };
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

/// A member's name, borrowed unless it was written with escapes.
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
        // After a refusal the rest is read and thrown away: serde_json wants to see the end of a map it began.
        while let Some((MemberName(name), value)) = map.next_entry::<MemberName<'de>, &'de RawValue>()? {
            if verdict.is_ok() {
                verdict = (self.each)(name, value);
            }
        }
        Ok(verdict)
    }
}
