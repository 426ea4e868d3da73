//! Reads and writes JSON objects without changing their values.

use std::borrow::Cow;

use serde::{
    Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;

pub(super) struct JsonObjectBuilder<'a> {
    out: &'a mut String,
    empty: bool,
}

impl<'a> JsonObjectBuilder<'a> {
    pub(super) fn begin_object(out: &'a mut String) -> Self {
        out.push('{');
        Self { out, empty: true }
    }

    /// Adds a member whose value is JSON.
    pub(super) fn put_json(&mut self, name: &str, json: &str) {
        if !self.empty {
            self.out.push(',');
        }
        self.empty = false;
        self.out.push_str(&quote(name));
        self.out.push(':');
        self.out.push_str(json);
    }

    pub(super) fn put_text(&mut self, name: &str, text: &str) {
        self.put_json(name, &quote(text));
    }

    /// Adds a member whose value is an object.
    pub(super) fn put_object(&mut self, name: &str, fill: impl FnOnce(&mut JsonObjectBuilder<'_>)) {
        self.put_json(name, "");
        let mut object = JsonObjectBuilder::begin_object(self.out);
        fill(&mut object);
        object.end_object();
    }

    pub(super) fn end_object(self) {
        self.out.push('}');
    }
}

fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

pub(crate) type Members<'a> = Vec<(Cow<'a, str>, &'a RawValue)>;

/// The members of an object, in order, with unchanged values.
pub(crate) fn parse_members(wire: &[u8]) -> Result<Members<'_>, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(wire);
    let members = reader.deserialize_map(MembersOf)?;
    reader.end()?;
    Ok(members)
}

struct MembersOf;

impl<'a> Visitor<'a> for MembersOf {
    type Value = Members<'a>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an event")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::with_capacity(12);
        while let Some((MemberName(name), value)) = map.next_entry()? {
            members.push((name, value));
        }
        Ok(members)
    }
}

/// A member's name, borrowed if it has no escapes.
#[derive(serde::Deserialize)]
struct MemberName<'a>(#[serde(borrow)] Cow<'a, str>);
