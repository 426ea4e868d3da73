//! Every error of a publish request: Azure's error JSON with Azure's codes and texts, as far as
//! these are known, and plain sentences otherwise.
//!
//! `Retry-After` is sent with 429 and 503 only: some clients repeat *any* response that has it, ten
//! times.

mod response;

use std::{fmt, net::IpAddr};

use actix_web::http::StatusCode;

pub use self::response::RefusalBody;
use gridhook_engine::fanout::meter::PublishRefusal;
use gridhook_escape::count_with_noun;
use gridhook_event::Schema;
use gridhook_journal as journal;
use gridhook_record::token::TokenRole;

/// A request was refused. None of it is stored, except after [`Refusal::Unknown`], which leaves
/// that open.
///
/// The messages are what a publisher reads: sentences in Event Grid's wording.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The body is empty, or ends before its JSON does.
    #[error("Unexpected end when reading JSON.")]
    CutOff,
    /// The body is not JSON.
    #[error("{} It is not JSON: {why}.", BodyMismatch(.schema))]
    NotJson {
        schema: Schema,
        /// The position and the error.
        why: String,
    },
    /// A JSON value of the wrong kind stands in place of an event or a list of events.
    #[error("{} Token Expected: {expected:?}, Actual Token Received: {actual:?}.", BodyMismatch(.schema))]
    Token {
        schema: Schema,
        expected: JsonToken,
        actual: JsonToken,
    },
    /// The body is an array without events.
    #[error("{}", BodyMismatch(.schema))]
    Empty { schema: Schema },
    /// An event breaks a rule of its schema.
    #[error("{} {why}.", BodyMismatch(.schema))]
    Nonconforming { schema: Schema, why: String },
    /// A required property is absent or empty.
    #[error("This resource is configured for '{}' schema and requires '{property}' property to be \
        set.", name(.schema))]
    Missing {
        schema: Schema,
        /// The property, as Event Grid or the topic's mapping calls it.
        property: String,
    },
    /// A property that the schema does not have.
    #[error(
        "This resource is configured to receive event in '{}' schema. Received unexpected property \
         '{property}' in JSON which does not conform to the expected schema.",
        name(.schema)
    )]
    Unexpected { schema: Schema, property: String },
    /// A CloudEvent in binary mode lacks an attribute.
    #[error(
        "ce-{name} header is missing for the cloud event. Please check required attributes at \
         https://github.com/cloudevents/spec/blob/v1.0/spec.md#required-attributes"
    )]
    MissingHeader { name: &'static str },
    /// The request has both `ce-…` headers and a body that has the attributes itself.
    #[error("Conflicting content mode: binary mode headers with structured mode content type.")]
    ConflictingModes,
    /// A content type that CloudEvents do not have.
    #[error(
        "The Content-Type header is either missing or it doesn't have a valid value. The content \
         type header must either be application/cloudevents+json; charset=utf-8 or \
         application/cloudevents-batch+json; charset=UTF-8."
    )]
    ContentType,
    /// An event in binary mode whose data is not JSON, for a topic or a domain.
    #[error(
        "The Content-Type header of an event in binary mode is '{given}'; expected \
         application/json. A topic of a namespace takes data of any type; here, send it as \
         data_base64 in structured mode (application/cloudevents+json)."
    )]
    BinaryContentType { given: String },
    /// An unknown content coding, or more than one.
    #[error(
        "The Content-Encoding header must be absent, 'identity', 'gzip' or 'zstd', and name one \
         encoding only."
    )]
    ContentEncoding,
    /// A body that is not encoded as its headers say.
    #[error(
        "The body could not be decoded as {encoding}, which its Content-Encoding header names."
    )]
    DamagedEncoding { encoding: &'static str },
    /// A request, or an event in it, is too large.
    #[error("The maximum size ({bytes_max}) has been exceeded.")]
    TooLarge { bytes_max: usize },
    /// A request has too many events.
    #[error("The maximum number of events in a request ({events_max}) has been exceeded.")]
    TooMany { events_max: usize },
    /// An event names another topic.
    #[error("The 'topic' property of an event must be absent or '{topic}'.")]
    OtherTopic {
        /// The topic of the request.
        topic: String,
    },
    /// The request has neither a key nor a token.
    #[error(
        "Request must contain one of the following authorization signature: aeg-sas-token, \
         aeg-sas-key."
    )]
    NoKey,
    #[error("Request must have a value for aeg-sas-key.")]
    EmptyKey,
    /// A key or token that is not valid for the topic.
    #[error("The request authorization key is not authorized for {}. This is due to the reason: \
        {why}.", .host.to_uppercase())]
    NotAuthorized { host: String, why: &'static str },
    /// A bearer token without the role for the topic.
    #[error("The token is not permitted to {} at {}: it lacks the role, or is limited to other \
        resources.", .needed.name(), .host.to_uppercase())]
    NotPermitted { host: String, needed: TokenRole },
    #[error("The specified SAS token {problem} for topic '{}'.", .host.to_uppercase())]
    Sas { host: String, problem: SasProblem },
    /// A bearer token that is not a JWT.
    #[error("Unable to read access token.")]
    UnreadableToken,
    /// The scheme of `Authorization` is unknown.
    #[error(
        "Request has an unsupported Authorization scheme (must be SharedAccessSignature or Bearer)."
    )]
    Scheme,
    /// The request has no credential that a namespace accepts.
    #[error(
        "Request must have an 'Authorization' header with the scheme SharedAccessKey, \
         SharedAccessSignature or Bearer."
    )]
    NoAuthorization,
    /// The topic's rules exclude this address.
    #[error("Publishing to {topic} by client {} is rejected due to IpAddress filtering rules.", ClientAddress(.client))]
    AddressRules {
        topic: String,
        client: Option<IpAddr>,
    },
    /// The topic accepts nothing from the public network.
    #[error(
        "Publishing to {topic} by client {} is rejected as public network access is disabled for \
         the resource.",
        ClientAddress(.client)
    )]
    PublicNetwork {
        topic: String,
        client: Option<IpAddr>,
    },
    /// An `api-version` in a wrong form.
    #[error(
        "The HTTP resource that matches the request URI '{uri}' does not support the API version \
         '{version}'. Allowed is a date with an optional suffix, such as 2018-01-01 or \
         2023-06-01-preview, or no api-version."
    )]
    ApiVersion {
        /// The URL, percent-encoded as a whole, without its query.
        uri: String,
        version: String,
    },
    /// A header with the called host is invalid.
    #[error(
        "{problem}. Allowed is one host with or without a port, such as events.example.com or \
         10.1.2.3:8080."
    )]
    Host {
        /// The name of the header, and what is wrong with its value.
        problem: &'static str,
    },
    /// A trusted proxy reports an unknown scheme.
    #[error(
        "The 'X-Forwarded-Proto' header, or proto in the 'Forwarded' header, is neither http nor \
         https."
    )]
    ForwardedScheme,
    /// The topic's rate is exceeded.
    #[error("Too Many Events. This topic accepts {rates}; try again in {seconds} s.")]
    Throttled {
        rates: String,
        /// The time until the next request is accepted.
        seconds: u32,
    },
    /// The topic or the path does not exist.
    #[error("No HTTP resource was found that matches the request URI '{uri}'.")]
    NotFound {
        /// The URL, percent-encoded as a whole, without its query, which may contain a key.
        uri: String,
    },
    /// The namespace exists, but the topic does not.
    #[error("There is no topic '{topic}' in the namespace '{namespace}'.")]
    NoTopic { namespace: String, topic: String },
    /// The topic of a namespace exists, but the event subscription does not.
    #[error(
        "There is no event subscription '{subscription}' of the topic '{topic}' in the namespace \
         '{namespace}'."
    )]
    NoSubscription {
        namespace: String,
        topic: String,
        subscription: String,
    },
    /// An invalid parameter of a pull request.
    #[error("{why}.")]
    Parameter {
        /// The parameter, and the allowed values.
        why: String,
    },
    /// The namespace of the request is unclear or unknown.
    #[error(
        "The request names no namespace, or one that does not exist. Name it in the path \
         ('/namespaces/NAME/topics/…') or as the first label of the host."
    )]
    NoNamespace,
    /// A method other than POST.
    #[error(".")]
    Method,
    /// The body was not received in time.
    #[error(
        "The request's body was not received within {}.",
        count_with_noun(seconds, "second")
    )]
    Slow { seconds: u64 },
    /// The body was received too slowly.
    #[error(
        "The request's body was received at less than {} a second for {}.",
        count_with_noun(bytes_per_second, "byte"),
        count_with_noun(seconds, "second")
    )]
    Stalled {
        bytes_per_second: u64,
        /// The time over which the rate is measured.
        seconds: u64,
    },
    /// The publisher disconnected, or broke the framing of its body.
    #[error("The request's body could not be read to its end.")]
    Broken,
    /// The bytes in flight of all publishers, or of this one, are at their limit.
    #[error("The server is busy: too many bytes are being published. Try again.")]
    NoRoom,
    /// The threads that check the data of events have too much to do.
    #[error("The server is busy: too many events wait for a check of their data. Try again.")]
    Unchecked,
    /// The keys of the issuer were not read yet, or may have changed.
    #[error(
        "The server cannot check the access token: it has no current keys of the issuer. Try again."
    )]
    NoIssuerKeys,
    #[error("The server cannot store events: its storage is full. Try again later.")]
    Full,
    /// The topic's backlog is at its limit.
    #[error(
        "The topic cannot store more events: its backlog is at its limit, because its event \
         subscription '{laggard}' has not taken them. Other topics are not affected. Try again \
         later."
    )]
    Backlog {
        /// The subscription that is furthest behind, by name; by number if it was deleted
        /// meanwhile.
        laggard: String,
    },
    /// The server is shutting down.
    #[error("The server is shutting down. Try again.")]
    Closing,
    /// The journal did not confirm the request, which may be stored.
    #[error("The server could not confirm that the events are stored. Try again.")]
    Unknown,
    #[error("The server encountered an internal error.")]
    Internal,
}

/// The kind of a JSON value, by the names of Event Grid's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonToken {
    StartObject,
    StartArray,
    String,
    /// A number without fraction and exponent.
    Integer,
    Float,
    Boolean,
    Null,
    Undefined,
}

/// The error of a SAS token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SasProblem {
    /// The token is not `r=…&e=…&s=…`.
    Format,
    /// The signature was made with neither key.
    Signature,
    Expired,
}

impl fmt::Display for SasProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Format => "format is invalid",
            Self::Signature => "signature is invalid",
            Self::Expired => "has expired",
        })
    }
}

/// An address, or the text for a connection without one.
struct ClientAddress<'a>(&'a Option<IpAddr>);

impl fmt::Display for ClientAddress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => address.fmt(f),
            None => f.write_str("(unknown)"),
        }
    }
}

/// The maximum length of a name in a message; the name itself could have a megabyte.
const NAME_BYTES_MAX: usize = 128;

impl Refusal {
    /// The status and the specific code.
    pub fn status(&self) -> (StatusCode, &'static str) {
        match self {
            Self::CutOff
            | Self::NotJson { .. }
            | Self::Token { .. }
            | Self::Empty { .. }
            | Self::Nonconforming { .. }
            | Self::Missing { .. }
            | Self::Unexpected { .. }
            | Self::ConflictingModes
            | Self::Broken => (StatusCode::BAD_REQUEST, "InputJsonInvalid"),
            Self::DamagedEncoding { .. } => (StatusCode::BAD_REQUEST, "InvalidContentEncoding"),
            Self::EmptyKey => (StatusCode::BAD_REQUEST, "InvalidSas"),
            Self::MissingHeader { .. } => (StatusCode::BAD_REQUEST, "InvalidCloudEventHeader"),
            Self::Parameter { .. } => (StatusCode::BAD_REQUEST, "InvalidParameter"),
            Self::Host { .. } | Self::ForwardedScheme => (StatusCode::BAD_REQUEST, "InvalidHost"),
            Self::ApiVersion { .. } => (StatusCode::BAD_REQUEST, "UnsupportedApiVersion"),
            Self::OtherTopic { .. }
            | Self::NoKey
            | Self::NotAuthorized { .. }
            | Self::Sas { .. }
            | Self::UnreadableToken
            | Self::NoAuthorization
            | Self::Scheme => (StatusCode::UNAUTHORIZED, "Unauthorized"),
            Self::AddressRules { .. } | Self::PublicNetwork { .. } | Self::NotPermitted { .. } => {
                (StatusCode::FORBIDDEN, "Forbidden")
            }
            Self::NotFound { .. } | Self::NoSubscription { .. } | Self::NoNamespace => {
                (StatusCode::NOT_FOUND, "ResourceNotFound")
            }
            Self::NoTopic { .. } => (StatusCode::GONE, "ResourceNotFound"),
            Self::Method => (StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
            Self::Slow { .. } | Self::Stalled { .. } => {
                (StatusCode::REQUEST_TIMEOUT, "RequestTimeout")
            }
            Self::TooLarge { .. } | Self::TooMany { .. } => {
                (StatusCode::PAYLOAD_TOO_LARGE, "PayloadTooLarge")
            }
            Self::ContentType | Self::BinaryContentType { .. } => {
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, "InvalidContentType")
            }
            Self::ContentEncoding => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "InvalidContentEncoding"),
            Self::Throttled { .. } => (StatusCode::TOO_MANY_REQUESTS, "TooManyRequests"),
            Self::NoRoom
            | Self::Unchecked
            | Self::NoIssuerKeys
            | Self::Full
            | Self::Backlog { .. }
            | Self::Closing
            | Self::Unknown => (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable"),
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError"),
        }
    }

    pub(super) fn metric_label(&self) -> PublishRefusal {
        let (status, code) = self.status();
        PublishRefusal {
            status: status.as_u16(),
            code,
        }
    }

    /// A body that is not JSON.
    pub(super) fn not_json(schema: Schema, why: String) -> Self {
        Self::NotJson { schema, why }
    }

    /// An event too deep for later readers.
    pub(super) fn too_deep(schema: Schema, depth_max: usize) -> Self {
        Self::Nonconforming {
            schema,
            why: format!("An event is nested more than {depth_max} levels deep"),
        }
    }

    /// A property that the schema does not have.
    pub(super) fn unexpected_property(schema: Schema, property: &str) -> Self {
        Self::Unexpected {
            schema,
            property: Self::shorten_name(property).to_owned(),
        }
    }

    /// The part of a name that fits into a message.
    pub fn shorten_name(name: &str) -> &str {
        match name.char_indices().find(|(at, _)| *at >= NAME_BYTES_MAX) {
            Some((end, _)) => &name[..end],
            None => name,
        }
    }
}

/// Event Grid's name of a schema in messages and headers.
pub(super) fn name(schema: &Schema) -> &'static str {
    match schema {
        Schema::EventGrid => "EventGridEvent",
        Schema::CloudEvents => "CloudEventV10",
        Schema::Custom => "CustomInputEvent",
    }
}

/// The beginning of most messages about a body.
struct BodyMismatch<'a>(&'a Schema);

impl fmt::Display for BodyMismatch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = name(self.0);
        write!(
            f,
            "This resource is configured to receive event in '{name}' schema. "
        )?;
        f.write_str("The JSON received does not conform to the expected schema.")
    }
}

impl From<journal::Error> for Refusal {
    fn from(error: journal::Error) -> Self {
        match error {
            journal::Error::Full => Self::Full,
            journal::Error::Backlog(number) => Self::Backlog {
                laggard: number.0.to_string(),
            },
            journal::Error::Closed => Self::Closing,
            journal::Error::Fenced | journal::Error::Unknown => Self::Unknown,
            journal::Error::Damaged(_) => Self::Internal,
        }
    }
}
