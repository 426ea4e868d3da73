//! Values that Azure accepts besides the documented ones, and templates and clients therefore send.

use serde::{Deserialize, Deserializer, de::DeserializeOwned, de::Error};
use serde_json::Value;

/// Reads an optional value; empty text means none.
pub(crate) fn value_unless_empty<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: DeserializeOwned,
    D: Deserializer<'de>,
{
    let value = Value::deserialize(deserializer)?;
    if value == "" {
        return Ok(None);
    }
    Option::deserialize(value).map_err(Error::custom)
}

/// Reads optional text; empty text means none.
pub(crate) fn text_unless_empty<'de, D>(deserializer: D) -> Result<Option<String>, D::Error>
where
    D: Deserializer<'de>,
{
    value_unless_empty(deserializer)
}
