//! Delivery properties: headers that a subscription adds to its requests, either static or taken
//! from the event.
//!
//! Invariants:
//! - A request has one set of headers. A batch therefore contains only events with equal property
//!   values: its [`PropertyGroup`].
//! - An event cannot break a request: a value that is too long or has a control character counts as
//!   missing, and the header is left out.
//! - A static value may be a secret: only an explicit request returns it, and `Debug` hides it.

use std::{borrow::Cow, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::filter::{key::FilterKey, view::EventView};
use gridhook_event::{Event, Schema};

/// Azure's limit. Common servers accept headers of 8 KiB in addition.
pub const PROPERTIES_MAX: usize = 10;

/// Azure's limit of a value.
pub const VALUE_BYTES_MAX: usize = 4096;

/// Maximum length of a name: 128 bytes. Common names have less than half, and ten names must not
/// fill the request head.
pub const NAME_BYTES_MAX: usize = 128;

/// A header of every request, in ARM's form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryProperty {
    /// Its name, compared without case.
    pub name: String,
    /// The source of its value.
    #[serde(flatten)]
    pub source: PropertySource,
}

/// The source of a property's value.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", content = "properties", rename_all_fields = "camelCase")]
pub enum PropertySource {
    /// A fixed value.
    Static {
        /// Sent as it is.
        value: String,
        /// Whether it is hidden unless explicitly requested.
        is_secret: bool,
    },
    /// A value from the event.
    Dynamic {
        /// The key in the event.
        source_field: FilterKey,
    },
}

impl PropertySource {
    /// Whether it is a fixed value that is hidden.
    pub fn is_secret(&self) -> bool {
        matches!(
            self,
            Self::Static {
                is_secret: true,
                ..
            }
        )
    }
}

impl fmt::Debug for PropertySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Static { .. } => f.write_str("Static([hidden])"),
            Self::Dynamic { source_field } => write!(f, "Dynamic({})", source_field.as_str()),
        }
    }
}

/// Why a property is invalid. Values are not repeated, because they may be secrets.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PropertyError {
    /// The name is not a valid HTTP header name.
    #[error("is \"{}\"; expected 1 to {NAME_BYTES_MAX} letters, digits and any of \
        !#$%&'*+-.^_`|~", .0.escape_debug())]
    Name(String),
    /// The header is one that gridhook or HTTP sets itself.
    #[error("is \"{name}\", which is not allowed: {because}")]
    Reserved {
        /// The name as it was given.
        name: String,
        /// What the name is used for.
        because: &'static str,
    },
    /// A header cannot contain the value.
    #[error(
        "has a character in it that a header cannot carry; expected printable ASCII characters, \
         without a space at either end"
    )]
    Characters,
    /// The value is empty or too long.
    #[error("has {0} bytes; expected 1 to {VALUE_BYTES_MAX}")]
    Length(usize),
}

/// Names that belong to the connection or describe the encoding of the body.
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
    Err(PropertyError::Reserved {
        name: name.to_owned(),
        because,
    })
}

/// Whether a static property can have this value.
pub fn check_value(value: &str) -> Result<(), PropertyError> {
    if !(1..=VALUE_BYTES_MAX).contains(&value.len()) {
        return Err(PropertyError::Length(value.len()));
    }
    let plain = value.bytes().all(|byte| matches!(byte, b' '..=b'~')) && value.trim() == value;
    if plain {
        Ok(())
    } else {
        Err(PropertyError::Characters)
    }
}

/// The event keys of dynamic properties.
pub fn dynamic_keys(properties: &[DeliveryProperty]) -> impl Iterator<Item = &FilterKey> {
    properties
        .iter()
        .filter_map(|DeliveryProperty { source, .. }| match source {
            PropertySource::Dynamic { source_field } => Some(source_field),
            PropertySource::Static { .. } => None,
        })
}

/// The headers of a request with `event`; without an event, those of every request.
pub fn request_headers(
    properties: &[DeliveryProperty],
    event: Option<&Event>,
) -> Vec<(String, String)> {
    if properties.is_empty() {
        return Vec::new();
    }
    let view = event.map(EventView::new);
    let pairs = properties
        .iter()
        .filter_map(|DeliveryProperty { name, source }| {
            let value = match source {
                PropertySource::Static { value, .. } => value.clone(),
                PropertySource::Dynamic { source_field } => value_at(view.as_ref()?, source_field)?,
            };
            Some((name.clone(), value))
        });
    pairs.collect()
}

/// Those that a reader without the right to see secrets may read.
pub fn open(properties: &[DeliveryProperty]) -> Vec<DeliveryProperty> {
    properties
        .iter()
        .filter(|property| !property.source.is_secret())
        .cloned()
        .collect()
}

/// The value that an event has at `key`, if a header can contain it: a string, a number or a
/// boolean.
fn value_at(view: &EventView<'_>, key: &FilterKey) -> Option<String> {
    view.scalar_text(key)
        .filter(|text| is_value(text))
        .map(Cow::into_owned)
}

/// Whether a text of an event is the value of a header, which may be percent-encoded. Else the
/// header is left out.
pub fn is_value(text: &str) -> bool {
    (1..=VALUE_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// What the events of a request share: the values of the subscription's dynamic properties.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PropertyGroup(Option<Arc<[Option<String>]>>);

impl PropertyGroup {
    /// The group of `event`. Without dynamic properties all events are in one group, and nothing is
    /// read.
    pub fn from_event(keys: &[FilterKey], event: &Event) -> Self {
        if keys.is_empty() {
            return Self::default();
        }
        let view = EventView::new(event);
        Self(Some(keys.iter().map(|key| value_at(&view, key)).collect()))
    }
}
