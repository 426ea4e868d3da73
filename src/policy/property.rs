//! Delivery properties: headers that a subscription adds to its requests, the same for each or taken from the event.
//!
//! Invariants:
//! - A request has one set of headers, so that a batch holds events whose properties are equal: its [`PropertyGroup`].
//! - What an event says can't break a request: a value with a control character in it, or one that is too long, is no
//!   value. As where the event has nothing at the key, the header is left out of that event's request.
//! - A static value may be a secret: it is told by nobody but who was asked for it. `Debug` shows none.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    event::{Event, Schema},
    policy::filter::{key::FilterKey, view::EventView},
};

/// Azure's figure, in front of which common servers have room for a head of 8 KiB.
pub const PROPERTIES_MAX: usize = 10;

/// Azure's figure for a value.
pub const VALUE_BYTES_MAX: usize = 4096;

/// 128 bytes of a name: no header in use has half of them, and ten names must not fill a head.
pub const NAME_BYTES_MAX: usize = 128;

/// A header of every request, in ARM's own form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryProperty {
    /// Its name, compared without case.
    pub name: String,
    /// Where its value comes from.
    #[serde(flatten)]
    pub source: PropertySource,
}

/// Where the value of a property comes from.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "properties", rename_all_fields = "camelCase")]
pub enum PropertySource {
    /// It was given.
    Static {
        /// The value.
        value: String,
        /// Whether it is shown to those who do not ask for it.
        is_secret: bool,
    },
    /// It stands in the event.
    Dynamic {
        /// Where.
        source_field: FilterKey,
    },
}

impl fmt::Debug for PropertySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Static { .. } => f.write_str("Static([hidden])"),
            Self::Dynamic { source_field } => write!(f, "Dynamic({})", source_field.as_str()),
        }
    }
}

/// Why a property cannot be. No value is repeated: it may be a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PropertyError {
    /// The name is none of HTTP's.
    #[error("is \"{}\"; allowed are 1 to {NAME_BYTES_MAX} letters, digits and any of !#$%&'*+-.^_`|~", .0.escape_debug())]
    Name(String),
    /// The name belongs to somebody else.
    #[error("is \"{name}\", which is not allowed: {because}")]
    Reserved {
        /// What was asked for.
        name: String,
        /// Whose it is.
        because: &'static str,
    },
    /// A header cannot carry it.
    #[error(
        "has a character in it that a header cannot carry; allowed are printable ASCII characters, without a space at either end"
    )]
    Characters,
    /// It is empty or too long.
    #[error("has {0} bytes; allowed are 1 to {VALUE_BYTES_MAX}")]
    Length(usize),
}

/// Names that belong to the connection, or say how the body is to be read.
const OF_THE_CONNECTION: [&str; 10] = [
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Whether requests in schema `delivery` can have a property of this name.
pub fn check_name(name: &str, delivery: Schema) -> Result<(), PropertyError> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if !(1..=NAME_BYTES_MAX).contains(&name.len()) || !name.bytes().all(is_token) {
        return Err(PropertyError::Name(name.to_owned()));
    }
    let lower = name.to_ascii_lowercase();
    let because = if lower.starts_with("aeg-") {
        "names that begin with aeg- are Event Grid's own"
    } else if lower.starts_with("ce-") && delivery == Schema::CloudEvents {
        "names that begin with ce- are attributes of a CloudEvent"
    } else if lower.starts_with("webhook-") {
        "names that begin with WebHook- are for the handshake with the endpoint"
    } else if lower.starts_with("proxy-") || OF_THE_CONNECTION.contains(&lower.as_str()) {
        "it says how the request is transferred, which is decided for each request"
    } else {
        return Ok(());
    };
    Err(PropertyError::Reserved { name: name.to_owned(), because })
}

/// Whether every request can have this value.
pub fn check_value(value: &str) -> Result<(), PropertyError> {
    if !(1..=VALUE_BYTES_MAX).contains(&value.len()) {
        return Err(PropertyError::Length(value.len()));
    }
    let plain = value.bytes().all(|byte| matches!(byte, b' '..=b'~')) && value.trim() == value;
    if plain { Ok(()) } else { Err(PropertyError::Characters) }
}

/// The keys that the values of dynamic properties stand at.
pub fn keys(properties: &[DeliveryProperty]) -> impl Iterator<Item = &FilterKey> {
    properties.iter().filter_map(|DeliveryProperty { source, .. }| match source {
        PropertySource::Dynamic { source_field } => Some(source_field),
        PropertySource::Static { .. } => None,
    })
}

/// The names and values that `event` is delivered with; without an event, those that every request has.
pub fn headers(properties: &[DeliveryProperty], event: Option<&Event>) -> Vec<(String, String)> {
    let view = event.map(EventView::new);
    let pairs = properties.iter().filter_map(|DeliveryProperty { name, source }| {
        let value = match source {
            PropertySource::Static { value, .. } => value.clone(),
            PropertySource::Dynamic { source_field } => value_at(view.as_ref()?, source_field)?,
        };
        Some((name.clone(), value))
    });
    pairs.collect()
}

/// The properties that anybody may see.
pub fn open(properties: &[DeliveryProperty]) -> Vec<DeliveryProperty> {
    let is_open =
        |property: &&DeliveryProperty| !matches!(property.source, PropertySource::Static { is_secret: true, .. });
    properties.iter().filter(is_open).cloned().collect()
}

/// The value that an event has at `key`, if a header can have it: a string, a number or a boolean.
fn value_at(view: &EventView<'_>, key: &FilterKey) -> Option<String> {
    let text = view.text(key)?;
    let fit = (1..=VALUE_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control);
    fit.then(|| text.into_owned())
}

/// What the events of a request have in common: the values of the subscription's dynamic properties.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PropertyGroup(Option<Arc<[Option<String>]>>);

impl PropertyGroup {
    /// The group that `event` is of. All events are of one where there are no keys: then nothing is read.
    pub fn of(keys: &[FilterKey], event: &Event) -> Self {
        if keys.is_empty() {
            return Self::default();
        }
        let view = EventView::new(event);
        Self(Some(keys.iter().map(|key| value_at(&view, key)).collect()))
    }
}
