//! Keys of filters: names joined by dots, compared without case.
//!
//! | schema | keys |
//! | --- | --- |
//! | Event Grid | `id`, `topic`, `subject`, `eventType`, `dataVersion`, `data` and paths below it |
//! | CloudEvents | every attribute and extension, `data` and paths below it |
//! | custom | a mapped name (`id`, `subject`, `eventType`, `dataVersion`), or any path in the object |
//!
//! What it does not do: like Event Grid's, a key cannot contain a name with a dot, nor an index of
//! an array.

use serde::{Deserialize, Serialize};

use super::text::fold_case;
use gridhook_event::Schema;

/// Why a key is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterKeyError {
    /// A name between two dots, or the whole key, is empty.
    #[error(
        "is \"{0}\", in which a name is empty; expected names joined by single dots, such as \
         data.order.total"
    )]
    Empty(String),
    /// It is in the language JSONPath.
    #[error(
        "is \"{0}\", which is JSONPath; expected names joined by single dots, such as \
         data.order.total, without $ and without [ and ] for the elements of an array"
    )]
    JsonPath(String),
    /// Events in this schema have no such property.
    #[error("is \"{key}\"; expected {allowed} for events in {schema}")]
    Unknown {
        /// The key as the filter has it.
        key: String,
        /// The name of the schema.
        schema: &'static str,
        /// What is allowed instead, as a list for the message.
        allowed: &'static str,
    },
}

/// Properties of an Event Grid event that filters can use.
const EVENT_GRID: [&str; 5] = ["id", "topic", "subject", "eventtype", "dataversion"];

/// The `key` of an advanced filter: a property of the event, or names joined by dots.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct FilterKey {
    given: String,
    path: Vec<String>,
}

impl FilterKey {
    /// As the filter has it, with its upper case.
    pub fn as_str(&self) -> &str {
        &self.given
    }

    /// The names without case; never empty.
    pub(super) fn folded_names(&self) -> &[String] {
        &self.path
    }

    /// The name, if there is only one.
    pub(super) fn name(&self) -> Option<&str> {
        match self.path.as_slice() {
            [name] => Some(name),
            _ => None,
        }
    }

    /// Whether it begins at JSONPath's root, or has an element of an array. No event would have a
    /// value there.
    fn is_json_path(&self) -> bool {
        self.path[0] == "$" || self.path.iter().any(|name| is_array_element(name))
    }

    /// Checks whether events in `schema` can have a value at this key.
    pub fn check_schema(&self, schema: Schema) -> Result<(), FilterKeyError> {
        if self.path.iter().any(String::is_empty) {
            return Err(FilterKeyError::Empty(self.given.clone()));
        }
        if self.is_json_path() {
            return Err(FilterKeyError::JsonPath(self.given.clone()));
        }
        let is_attribute = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric());
        let in_data = self.path[0] == "data";
        let (known, schema, allowed) = match schema {
            Schema::EventGrid => (
                self.name().is_some_and(|name| EVENT_GRID.contains(&name)),
                "EventGridSchema",
                "id, topic, subject, eventType, dataVersion, data or data.<path>",
            ),
            Schema::CloudEvents => (
                self.name().is_some_and(is_attribute),
                "CloudEventSchemaV1_0",
                "an attribute (id, source, type, subject, ...), an extension, data or data.<path>",
            ),
            Schema::Custom => return Ok(()),
        };
        if known || in_data {
            Ok(())
        } else {
            Err(FilterKeyError::Unknown {
                key: self.given.clone(),
                schema,
                allowed,
            })
        }
    }
}

fn is_array_element(name: &str) -> bool {
    let brackets = name
        .strip_suffix(']')
        .and_then(|name| name.rsplit_once('['));
    brackets.is_some_and(|(_, index)| index == "*" || index.parse::<i64>().is_ok())
}

impl From<String> for FilterKey {
    fn from(given: String) -> Self {
        Self {
            path: given.split('.').map(fold_case).collect(),
            given,
        }
    }
}

impl From<FilterKey> for String {
    fn from(key: FilterKey) -> Self {
        key.given
    }
}
