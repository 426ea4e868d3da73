//! The request that carries events: headers and body, as Event Grid makes them.
//!
//! Invariants:
//! - An event's wire form is copied once, into the body, and never parsed where the delivery schema is its own.
//! - What an event says can't break a header: a value that is not printable ASCII is percent-encoded, a very long one is
//!   cut visibly. The body always has the whole.
//! - A destination that can't be called is refused when it is made, with a message for whoever wrote it.
//!
//! Absent on purpose: sockets, clocks, and `Content-Length`, `Host` and `Date`, which belong to the connection.

use std::{
    borrow::Cow,
    fmt::{self, Write as _},
};

use awc::http::{
    Uri,
    header::{HeaderValue, InvalidHeaderValue},
    uri::InvalidUri,
};
use bytes::{BufMut, Bytes, BytesMut};
use url::Url;

use super::{
    address::{AmbiguousAddress, check_unambiguous},
    convert::{self, delivered},
};
use crate::{
    event::{Event, Schema, Seq},
    policy::property::{self, DeliveryProperty},
};

/// Why there is no such destination, or no such request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The endpoint's address can't be read.
    #[error("the endpoint's address is no URL: {0}")]
    Url(String),
    /// Only the web is called.
    #[error("the endpoint's address begins with `{0}:`, but it must begin with `https:` or `http:`")]
    Scheme(String),
    /// Clients come for its events.
    #[error("the events are pulled, not sent")]
    Pulled,
    /// There is nobody to call.
    #[error("the endpoint's address names no host")]
    Host,
    /// It could be read in two ways.
    #[error("the endpoint's address {0}")]
    Ambiguous(#[from] AmbiguousAddress),
    /// A fragment is never sent.
    #[error("the endpoint's address has a fragment (`#...`), which is never sent")]
    Fragment,
    /// Longer than any server takes.
    #[error("the endpoint's address has {0} bytes, more than {URL_BYTES_MAX}")]
    Length(usize),
    /// There is no way from one schema to the other.
    #[error("events in schema {from:?} can't be delivered in schema {to:?}")]
    Schema {
        /// The topic's.
        from: Schema,
        /// The subscription's.
        to: Schema,
    },
    /// The stored event is not what its schema says; nothing was sent.
    #[error("the event at {seq:?} can't be read: {detail}")]
    Unreadable {
        /// Which event.
        seq: Seq,
        /// Why, for people.
        detail: String,
    },
}

/// 8 KiB: common servers refuse a longer request line.
const URL_BYTES_MAX: usize = 8_192;

/// 2 KiB of one header: common servers refuse heads of more than 8 KiB, and an id that long must not make an event
/// undeliverable.
const VALUE_BYTES_MAX: usize = 2_048;

/// Who sends, as CloudEvents asks it: Azure's own name, so that an endpoint that allows Event Grid allows this.
pub const ORIGIN: &str = "eventgrid.azure.net";

/// An endpoint, checked, with what each request to it needs to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    url: Url,
    /// The same, as the HTTP client has it: every request would read it again.
    uri: Uri,
    host: HeaderValue,
    subscription_name: String,
    schema: Schema,
    batched: bool,
    properties: Vec<DeliveryProperty>,
}

impl Destination {
    /// Checks where and how events shall be sent: from a topic with schema `input`, in schema `delivery`. `batched` says
    /// that the subscription asked for several events in a request.
    ///
    /// # Errors
    /// Where no request could ever be made. Whether the address is *allowed* is asked by
    /// [`AddressRules`](super::AddressRules).
    pub fn new(
        url: &str,
        subscription_name: &str,
        input: Schema,
        delivery: Schema,
        batched: bool,
    ) -> Result<Self, RequestError> {
        convert::check(input, delivery)?;
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
        let uri = uri(&url).map_err(|error| RequestError::Url(error.to_string()))?;
        let host = host(&url).map_err(|error| RequestError::Url(error.to_string()))?;
        Ok(Self {
            url,
            uri,
            host,
            subscription_name: subscription_name.to_uppercase(),
            schema: delivery,
            batched,
            properties: Vec::new(),
        })
    }

    /// The same, with these headers of the subscription's own on each request.
    #[must_use]
    pub fn with_properties(self, properties: &[DeliveryProperty]) -> Self {
        Self { properties: properties.to_vec(), ..self }
    }

    /// Where requests go.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Whether its connections begin with TLS.
    pub(super) fn is_secure(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// The same for the HTTP client, and the value of `Host`.
    pub(super) fn target(&self) -> (Uri, HeaderValue) {
        (self.uri.clone(), self.host.clone())
    }

    /// The subscription's name, as the endpoint is told it.
    pub fn subscription_name(&self) -> &str {
        &self.subscription_name
    }

    /// The schema that events are delivered in.
    pub fn schema(&self) -> Schema {
        self.schema
    }
}

/// What awc is told: always http, because TLS is begun below it, and the port of https by its number.
fn uri(url: &Url) -> Result<Uri, InvalidUri> {
    if url.scheme() != "https" {
        return url.as_str().parse();
    }
    let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or_default());
    let query = url.query().map(|query| format!("?{query}")).unwrap_or_default();
    format!("http://{host}:{port}{}{query}", url.path()).parse()
}

/// awc leaves out port 80 of https and 443 of http; a URL knows which port goes without saying.
fn host(url: &Url) -> Result<HeaderValue, InvalidHeaderValue> {
    let name = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{name}:{port}").try_into(),
        None => name.try_into(),
    }
}

/// A header's name and value. Most are the same for every request, and cost it nothing.
pub type RequestHeader = (&'static str, Cow<'static, str>);

/// A request, all but the connection.
#[derive(Clone, PartialEq, Eq)]
pub struct OutgoingRequest {
    /// Its headers, names in lower case, values printable ASCII.
    pub headers: Vec<RequestHeader>,
    /// The subscription's own headers, values printable ASCII: secrets may be among them.
    pub properties: Vec<(String, String)>,
    /// Its body.
    pub body: Bytes,
}

impl fmt::Debug for OutgoingRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { headers, properties, body } = self;
        let properties: Vec<&String> = properties.iter().map(|(name, _)| name).collect();
        f.debug_struct("Outgoing")
            .field("headers", headers)
            .field("properties", &properties)
            .field("body", body)
            .finish()
    }
}

/// The request that delivers `events` after `attempts_before` earlier attempts. They are of one group: the properties of
/// the first are those of all.
///
/// # Errors
/// Where an event must be delivered in another schema and can't be read.
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
    let forms = events.iter().map(|event| delivered(event, schema)).collect::<Result<Vec<_>, _>>()?;
    let lone_object = schema == Schema::CloudEvents && !destination.batched && events.len() == 1;
    let content_type = match schema {
        Schema::EventGrid | Schema::Custom => "application/json; charset=utf-8",
        Schema::CloudEvents if lone_object => "application/cloudevents+json; charset=utf-8",
        Schema::CloudEvents => "application/cloudevents-batch+json; charset=utf-8",
    };
    let mut headers = vec![
        ("content-type", content_type.into()),
        ("aeg-event-type", "Notification".into()),
        ("aeg-subscription-name", header_value(&destination.subscription_name).into()),
        ("aeg-delivery-count", attempts_before.to_string().into()),
    ];
    match schema {
        Schema::EventGrid | Schema::Custom => headers.push(("aeg-metadata-version", "1".into())),
        Schema::CloudEvents => {
            headers.push(("aeg-metadata-version", "1.0".into()));
            headers.push(("webhook-request-origin", ORIGIN.into()));
        }
    }
    if let [event] = events {
        headers.push(("aeg-output-event-id", header_value(&event.id()).into()));
        if schema == Schema::EventGrid {
            headers.push(("aeg-data-version", header_value(&event.data_version()).into()));
        }
    }
    let body = if lone_object { forms[0].clone() } else { array(&forms) };
    let properties = properties(destination, Some(&events[0]));
    Ok(OutgoingRequest { headers, properties, body })
}

/// The subscription's own headers. A value that is too long once it is encoded is left out like one that was before.
pub(super) fn properties(destination: &Destination, event: Option<&Event>) -> Vec<(String, String)> {
    let headers = property::headers(&destination.properties, event).into_iter();
    headers
        .map(|(name, value)| (name, printable(&value).into_owned()))
        .filter(|(_, value)| value.len() <= property::VALUE_BYTES_MAX)
        .collect()
}

/// `[`, the forms with commas between them, `]`.
fn array(forms: &[Bytes]) -> Bytes {
    let mut body = BytesMut::with_capacity(forms.iter().map(|form| form.len() + 1).sum::<usize>() + 1);
    for (place, form) in forms.iter().enumerate() {
        body.put_u8(if place == 0 { b'[' } else { b',' });
        body.put_slice(form);
    }
    body.put_u8(b']');
    body.freeze()
}

/// `text` as a header's value: as it is where it is printable ASCII without spaces at its ends, else percent-encoded
/// (`%` with it, so that it can be read back). More than 2 KiB are cut, and end in `...`.
pub fn header_value(text: &str) -> String {
    let mut value = printable(text);
    if value.len() > VALUE_BYTES_MAX {
        value.to_mut().truncate(VALUE_BYTES_MAX - 3);
        value.to_mut().push_str("...");
    }
    value.into_owned()
}

fn printable(text: &str) -> Cow<'_, str> {
    let plain = text.bytes().all(|byte| matches!(byte, b' '..=b'~')) && text.trim() == text;
    if plain { Cow::Borrowed(text) } else { Cow::Owned(percent_encoded(text)) }
}

fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len() + 16);
    for byte in text.bytes() {
        match byte {
            b'%' | 0..=b' ' | 0x7f.. => write!(encoded, "%{byte:02X}").expect("a string takes everything"),
            b'!'..=b'~' => encoded.push(char::from(byte)),
        }
    }
    encoded
}
