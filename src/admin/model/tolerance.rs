//! What Azure accepts in bodies besides the documented form, and templates and clients therefore
//! send: empty text for a property without a value, booleans as text, enumerations in any case, and
//! names from older API versions.

use serde::{
    Deserializer,
    de::{
        Error as _, IntoDeserializer, Visitor,
        value::{MapDeserializer, SeqDeserializer},
    },
    forward_to_deserialize_any,
};
use serde_json::{Error, Value};

/// The input schema of the API versions before CloudEvents 1.0.
pub(super) const FORMER_CLOUD_EVENTS: &str = "CloudEventV01Schema";

/// Removes the optional properties at `paths`, keys joined by dots, that are empty text.
pub(super) fn clear_empty(value: &mut Value, paths: &[&str]) {
    for path in paths {
        let pointer = format!("/{}", path.replace('.', "/"));
        if let Some(empty) = value.pointer_mut(&pointer).filter(|value| **value == "") {
            *empty = Value::Null;
        }
    }
}

/// Reads a boolean, or a text with one.
pub(super) fn boolean_of(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(value) => Some(*value),
        Value::String(text) if text.eq_ignore_ascii_case("true") => Some(true),
        Value::String(text) if text.eq_ignore_ascii_case("false") => Some(false),
        _ => None,
    }
}

/// A value of a body. Enumerations are read in any case, and booleans also from text.
pub(super) struct TolerantValue(pub(super) Value);

impl<'de> Deserializer<'de> for TolerantValue {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.0 {
            Value::Array(items) => {
                let count = items.len();
                let mut items = SeqDeserializer::new(items.into_iter().map(Self));
                let value = visitor.visit_seq(&mut items)?;
                let is_read = items.end();
                is_read
                    .map(|()| value)
                    .map_err(|_: Error| Error::invalid_length(count, &"fewer elements in array"))
            }
            Value::Object(members) => {
                let members = members.into_iter().map(|(key, value)| (key, Self(value)));
                visitor.visit_map(MapDeserializer::new(members))
            }
            scalar => scalar.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.0.is_null() {
            visitor.visit_none()
        } else {
            visitor.visit_some(self)
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match boolean_of(&self.0) {
            Some(value) => visitor.visit_bool(value),
            None => self.0.deserialize_bool(visitor),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let value = match self.0 {
            Value::String(given) => super::canonical_name(&given, variants).into(),
            other => other,
        };
        value.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

impl IntoDeserializer<'_, Error> for TolerantValue {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}
