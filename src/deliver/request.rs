//! The request that carries events: headers and body as in Event Grid.
//!
//! Invariants:
//! - An event's stored form is copied once, into the body, and not parsed if the delivery schema is
//!   its own.
//! - Data of an event cannot break a header: a value that is not printable ASCII is
//!   percent-encoded, and a very long one is cut visibly. The body is always complete.
//! - A destination that cannot be called is refused when it is created, with a message for its
//!   author.
//!
//! Sockets and clocks are not here. `Content-Length`, `Host` and `Date` belong to the connection.

use std::{
    borrow::Cow,
    fmt::{self, Write as _},
    sync::Arc,
};

use awc::http::{Method, Uri, uri::InvalidUri};
use bytes::{Bytes, BytesMut};
use url::Url;

use super::{
    address::{AmbiguousAddress, check_unambiguous},
    convert::{self, convert_event, delivered_bytes},
};
use gridhook_event::{Event, Schema, Seq, Transformed};
use gridhook_policy::property::{self, DeliveryProperty};

/// Why a destination or a request cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The endpoint's address is not a URL.
    #[error("the endpoint's address is not a URL: {0}")]
    Url(String),
    /// The scheme is neither https nor http.
    #[error(
        "the endpoint's address begins with `{0}:`, but it must begin with `https:` or `http:`"
    )]
    Scheme(String),
    /// The URL has no host.
    #[error("the endpoint's address has no host")]
    Host,
    #[error("the endpoint's address {0}")]
    Ambiguous(#[from] AmbiguousAddress),
    #[error("the endpoint's address has a fragment (`#...`), which is never sent")]
    Fragment,
    #[error("the endpoint's address has {0} bytes, more than {URL_BYTES_MAX}")]
    Length(usize),
    #[error("events in schema {from:?} cannot be delivered in schema {to:?}")]
    Schema { from: Schema, to: Schema },
    /// The stored event does not match its schema. Nothing was sent.
    #[error("cannot read the event at {seq:?}: {detail}")]
    Unreadable { seq: Seq, detail: String },
}

/// 8 KiB: common servers reject a longer request line.
const URL_BYTES_MAX: usize = 8_192;

/// 2 KiB per header: common servers reject heads of more than 8 KiB, and a long id must not make an
/// event undeliverable.
const VALUE_BYTES_MAX: usize = 2_048;

/// Room for the header lines of nearly every request.
pub(super) const HEADER_BYTES: usize = 512;

/// `WebHook-Request-Origin`: Azure's own, so that an endpoint that allows Event Grid allows
/// gridhook.
pub const ORIGIN: &str = "eventgrid.azure.net";

/// A checked endpoint, with everything that its requests have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    url: Url,
    /// The URL as the HTTP client needs it, parsed once.
    uri: Uri,
    /// The subscription's name as the value of a header.
    name_value: Box<str>,
    schema: Schema,
    batched: bool,
    properties: Vec<DeliveryProperty>,
}

impl Destination {
    /// Checks where and how events are sent: from a topic with schema `input`, in schema
    /// `delivery`. `batched`: the subscription allows several events per request.
    ///
    /// # Errors
    /// If no request can be built. [`AddressRules`](super::AddressRules) decides whether the
    /// address is *allowed*.
    pub fn new(
        url: &str,
        subscription_name: &str,
        input: Schema,
        delivery: Schema,
        batched: bool,
    ) -> Result<Self, RequestError> {
        convert::check_conversion(input, delivery)?;
        if url.len() > URL_BYTES_MAX {
            return Err(RequestError::Length(url.len()));
        }
        let text = url;
        let url = Url::parse(text).map_err(|error| RequestError::Url(error.to_string()))?;
        if !matches!(url.scheme(), "https" | "http") {
            return Err(RequestError::Scheme(url.scheme().to_owned()));
        }
        check_unambiguous(text)?;
        if url.host().is_none() {
            return Err(RequestError::Host);
        }
        if url.fragment().is_some() {
            return Err(RequestError::Fragment);
        }
        let uri = url
            .as_str()
            .parse()
            .map_err(|error: InvalidUri| RequestError::Url(error.to_string()))?;
        Ok(Self {
            url,
            uri,
            name_value: header_value(&subscription_name.to_uppercase()).into(),
            schema: delivery,
            batched,
            properties: Vec::new(),
        })
    }

    /// Adds delivery properties, which are sent with each request.
    #[must_use]
    pub fn with_properties(self, properties: &[DeliveryProperty]) -> Self {
        Self {
            properties: properties.to_vec(),
            ..self
        }
    }

    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Host and port, the value of `Host`. A URL omits the port of its scheme; one with a user is
    /// refused.
    pub(super) fn authority(&self) -> &str {
        self.uri
            .authority()
            .map_or("", |authority| authority.as_str())
    }

    /// The URI with `suffix` after its path.
    pub(super) fn uri_with(&self, suffix: &str) -> Uri {
        let path = self.uri.path().trim_end_matches('/');
        let query = self
            .uri
            .query()
            .map(|query| format!("?{query}"))
            .unwrap_or_default();
        let target = format!("{path}/{}{query}", suffix.trim_start_matches('/'));
        let mut parts = self.uri.clone().into_parts();
        parts.path_and_query = target.parse().ok();
        Uri::from_parts(parts).unwrap_or_else(|_| self.uri.clone())
    }

    /// The subscription's name as the value of a header.
    pub(super) fn name_value(&self) -> &str {
        &self.name_value
    }

    /// Whether a delivery property has this name and a secret value.
    pub(super) fn has_secret(&self, name: &str) -> bool {
        let mut secrets = self
            .properties
            .iter()
            .filter(|property| property.source.is_secret());
        secrets.any(|property| property.name.eq_ignore_ascii_case(name))
    }

    pub fn schema(&self) -> Schema {
        self.schema
    }
}

/// A header's name and value. Most are constant and allocate nothing.
pub type RequestHeader = (&'static str, Cow<'static, str>);

#[derive(Clone, Default, PartialEq, Eq)]
pub struct OutgoingRequest {
    /// Headers as they are sent, each of another name. A header of the same name in `headers` or
    /// `properties` takes precedence.
    pub lines: String,
    /// Headers besides `lines`. Names are in lower case, values are printable ASCII.
    pub headers: Vec<RequestHeader>,
    /// Delivery properties. Values are printable ASCII and may be secret.
    pub properties: Vec<(String, String)>,
    pub body: Bytes,
    /// The method and the path, where a transformation sets them.
    pub transformed: Option<Arc<Transformed>>,
    /// Bytes of the response body that the encoding reads, if more than are kept for operators.
    pub response_bytes: usize,
}

impl OutgoingRequest {
    /// The method and the URI: those of the destination, or what a transformation makes of them.
    pub(super) fn method_and_uri(
        &self,
        destination: &Destination,
        method: Method,
    ) -> (Method, Uri) {
        let uri = || destination.uri.clone();
        let Some(transformed) = &self.transformed else {
            return (method, uri());
        };
        let method = transformed
            .method
            .as_deref()
            .and_then(|name| name.parse().ok())
            .unwrap_or(method);
        (
            method,
            transformed
                .path_suffix
                .as_deref()
                .map_or_else(uri, |suffix| destination.uri_with(suffix)),
        )
    }
}

impl fmt::Debug for OutgoingRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            lines,
            headers,
            properties,
            body,
            transformed,
            response_bytes: _,
        } = self;
        let properties: Vec<&String> = properties.iter().map(|(name, _)| name).collect();
        f.debug_struct("Outgoing")
            .field("lines", lines)
            .field("headers", headers)
            .field("properties", &properties)
            .field("body", body)
            .field(
                "path",
                &transformed
                    .as_ref()
                    .map(|transformed| &transformed.path_suffix),
            )
            .finish()
    }
}

/// The request that delivers `events` after `attempts_before` earlier attempts. All events have the
/// same delivery properties as the first.
///
/// # Errors
/// If an event must be converted and cannot be read.
///
/// # Panics
/// Without events.
pub fn build(
    destination: &Destination,
    events: &[Event],
    attempts_before: u32,
) -> Result<OutgoingRequest, RequestError> {
    assert!(!events.is_empty(), "a request without events");
    let schema = destination.schema;
    let replacement = events[0].transformed();
    // Event Grid's own schema is an array even of one event; a transformation makes the whole body.
    let is_replaced = replacement.is_some_and(|made| made.body.is_some());
    let is_object = schema == Schema::CloudEvents || is_replaced;
    let lone_object = is_object && !destination.batched && events.len() == 1;
    let content_type = match schema {
        _ if is_replaced => "application/json; charset=utf-8",
        Schema::EventGrid | Schema::Custom => "application/json; charset=utf-8",
        Schema::CloudEvents if lone_object => "application/cloudevents+json; charset=utf-8",
        Schema::CloudEvents => "application/cloudevents-batch+json; charset=utf-8",
    };
    let mut lines = String::with_capacity(HEADER_BYTES);
    put_line(&mut lines, "content-type", content_type);
    put_line(&mut lines, "aeg-event-type", "Notification");
    put_line(&mut lines, "aeg-subscription-name", &destination.name_value);
    match attempts_before {
        0 => put_line(&mut lines, "aeg-delivery-count", "0"),
        attempts => put_line(&mut lines, "aeg-delivery-count", &attempts.to_string()),
    }
    match schema {
        Schema::EventGrid | Schema::Custom => put_line(&mut lines, "aeg-metadata-version", "1"),
        Schema::CloudEvents => {
            put_line(&mut lines, "aeg-metadata-version", "1.0");
            put_line(&mut lines, "webhook-request-origin", ORIGIN);
        }
    }
    if let [event] = events {
        put_line(
            &mut lines,
            "aeg-output-event-id",
            &make_sendable(&event.id()),
        );
        if schema == Schema::EventGrid {
            put_line(
                &mut lines,
                "aeg-data-version",
                &make_sendable(&event.data_version()),
            );
        }
    }
    let body = if lone_object {
        convert_event(&events[0], schema)?
    } else {
        encode_array(events, schema)?
    };
    let mut properties = property_headers(destination, Some(&events[0]));
    if let Some(replacement) = replacement {
        for (name, _) in &replacement.headers {
            properties.retain(|(property, _)| !property.eq_ignore_ascii_case(name));
        }
        let headers = replacement.headers.iter();
        properties.extend(headers.filter_map(|(name, value)| encoded_property(name, value)));
    }
    Ok(OutgoingRequest {
        lines,
        headers: Vec::new(),
        properties,
        body,
        transformed: replacement.cloned().map(Arc::new),
        response_bytes: 0,
    })
}

pub(super) fn put_line(lines: &mut String, name: &str, value: &str) {
    for part in [name, ": ", value, "\r\n"] {
        lines.push_str(part);
    }
}

/// The delivery properties. A value that is too long after encoding is omitted.
pub(super) fn property_headers(
    destination: &Destination,
    event: Option<&Event>,
) -> Vec<(String, String)> {
    let headers = property::request_headers(&destination.properties, event);
    headers
        .iter()
        .filter_map(|(name, value)| encoded_property(name, value))
        .collect()
}

fn encoded_property(name: &str, value: &str) -> Option<(String, String)> {
    let value = make_printable(value);
    (value.len() <= property::VALUE_BYTES_MAX).then(|| (name.to_owned(), value.into_owned()))
}

/// A JSON array of the events.
///
/// # Errors
/// If an event must be converted and cannot be read.
pub fn encode_array(events: &[Event], schema: Schema) -> Result<Bytes, RequestError> {
    let mut body = BytesMut::with_capacity(
        events
            .iter()
            .map(|event| event.delivered_len(schema) + 1)
            .sum::<usize>()
            + 1,
    );
    for (index, event) in events.iter().enumerate() {
        body.extend_from_slice(if index == 0 { b"[" } else { b"," });
        body.extend_from_slice(&delivered_bytes(event, schema)?);
    }
    body.extend_from_slice(b"]");
    Ok(body.freeze())
}

/// `text` as a header value: unchanged if it is printable ASCII without spaces at its ends, else
/// percent-encoded (including `%`, so that it can be decoded). Values above 2 KiB are cut and end
/// in `...`.
pub fn header_value(text: &str) -> String {
    make_sendable(text).into_owned()
}

/// Like [`header_value`], but borrows a text that stays unchanged.
pub(super) fn make_sendable(text: &str) -> Cow<'_, str> {
    let mut value = make_printable(text);
    if value.len() > VALUE_BYTES_MAX {
        value.to_mut().truncate(VALUE_BYTES_MAX - 3);
        value.to_mut().push_str("...");
    }
    value
}

fn make_printable(text: &str) -> Cow<'_, str> {
    // Without an early end, so that several bytes are compared at once.
    let is_visible = text
        .bytes()
        .fold(true, |all, byte| all & matches!(byte, b' '..=b'~'));
    let plain = is_visible && !text.starts_with(' ') && !text.ends_with(' ');
    if plain {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(percent_encoded(text))
    }
}

fn percent_encoded(text: &str) -> String {
    let mut output = String::with_capacity(text.len() + 16);
    for byte in text.bytes() {
        match byte {
            b'%' | 0..=b' ' | 0x7f.. => {
                write!(output, "%{byte:02X}").expect("a string takes everything")
            }
            b'!'..=b'~' => output.push(char::from(byte)),
        }
    }
    output
}
