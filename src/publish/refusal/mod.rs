//! Everything a publisher can be told instead of 200: Azure's error JSON with Azure's codes and words, as far as these
//! are known. Where they are not, a sentence of ours says what is wrong.
//!
//! `Retry-After` goes with 429 and 503 and with nothing else: some clients repeat *any* answer that has it, ten times.

mod answer;

use std::{fmt, net::IpAddr};

use actix_web::http::StatusCode;

pub(crate) use self::answer::RefusalBody as AnswerBody;
use crate::{event::Schema, fanout::meter::PublishRefusal, journal};

/// A request was not taken. Nothing of it is stored, but after [`Refusal::Unknown`], where that is open.
///
/// The messages are what a publisher reads: sentences, in Event Grid's wording.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The body ends before its JSON does, or is empty.
    #[error("Unexpected end when reading JSON.")]
    CutOff,
    /// The body is not JSON.
    #[error("{} It is not JSON: {why}.", BodyComplaint(.schema))]
    NotJson {
        /// What the topic takes.
        schema: Schema,
        /// Where and what.
        why: String,
    },
    /// A JSON value of the wrong kind stands where events or an event should be.
    #[error("{} Token Expected: {expected:?}, Actual Token Received: {actual:?}.", BodyComplaint(.schema))]
    Token {
        /// What the topic takes.
        schema: Schema,
        /// What should be there.
        expected: JsonToken,
        /// What is there.
        actual: JsonToken,
    },
    /// An array without events.
    #[error("{}", BodyComplaint(.schema))]
    Empty {
        /// What the topic takes.
        schema: Schema,
    },
    /// An event breaks a rule of its schema.
    #[error("{} {why}.", BodyComplaint(.schema))]
    Nonconforming {
        /// What the topic takes.
        schema: Schema,
        /// Which rule.
        why: String,
    },
    /// A required property is absent, or empty.
    #[error("This resource is configured for '{}' schema and requires '{property}' property to be set.", name(.schema))]
    Missing {
        /// What the topic takes.
        schema: Schema,
        /// Its name, as Event Grid or the topic's mapping calls it.
        property: String,
    },
    /// A property that the schema does not have.
    #[error(
        "This resource is configured to receive event in '{}' schema. Received unexpected property '{property}' in JSON which does not conform to the expected schema.",
        name(.schema)
    )]
    Unexpected {
        /// What the topic takes.
        schema: Schema,
        /// Its name, not too long.
        property: String,
    },
    /// A CloudEvent in binary mode lacks an attribute.
    #[error(
        "ce-{name} header is missing for the cloud event. Please check required attributes at https://github.com/cloudevents/spec/blob/v1.0/spec.md#required-attributes"
    )]
    MissingHeader {
        /// The attribute.
        name: &'static str,
    },
    /// `ce-…` headers beside a body that has the attributes itself.
    #[error("Conflicting content mode: binary mode headers with structured mode content type.")]
    ConflictingModes,
    /// A content type that CloudEvents do not come in.
    #[error(
        "The Content-Type header is either missing or it doesn't have a valid value. The content type header must either be application/cloudevents+json; charset=utf-8 or application/cloudevents-batch+json; charset=UTF-8."
    )]
    ContentType,
    /// A compressed body. Its size would not be known before it is unpacked.
    #[error("The Content-Encoding header must be absent or 'identity'. Compressed bodies are not supported.")]
    ContentEncoding,
    /// A request, or an event in it, is too large.
    #[error("The maximum size ({bytes_max}) has been exceeded.")]
    TooLarge {
        /// The limit that was passed.
        bytes_max: usize,
    },
    /// A request has too many events.
    #[error("The maximum number of events in a request ({events_max}) has been exceeded.")]
    TooMany {
        /// The limit that was passed.
        events_max: usize,
    },
    /// An event says that it belongs to another topic.
    #[error("The 'topic' property of an event must be absent or '{topic}'.")]
    OtherTopic {
        /// The topic that was published to.
        topic: String,
    },
    /// Neither a key nor a token.
    #[error("Request must contain one of the following authorization signature: aeg-sas-token, aeg-sas-key.")]
    NoKey,
    /// A key that is empty.
    #[error("Request must have a value for aeg-sas-key.")]
    EmptyKey,
    /// A key or a token that is not good for the topic.
    #[error("The request authorization key is not authorized for {}. This is due to the reason: {why}.", .host.to_uppercase())]
    NotAuthorized {
        /// Whom the publisher called.
        host: String,
        /// What is wrong with the key or the token.
        why: &'static str,
    },
    /// A SAS token that is no good.
    #[error("The specified SAS token {problem} for topic '{}'.", .host.to_uppercase())]
    Sas {
        /// Whom the publisher called.
        host: String,
        /// What is wrong with it.
        problem: SasProblem,
    },
    /// What should be a JWT is none.
    #[error("Unable to read access token.")]
    UnreadableToken,
    /// `Authorization` with a scheme that Event Grid does not have.
    #[error("Request has an unsupported Authorization scheme (must be SharedAccessSignature or Bearer).")]
    Scheme,
    /// Nothing that a namespace knows.
    #[error(
        "Request must have an 'Authorization' header with the scheme SharedAccessKey, SharedAccessSignature or Bearer."
    )]
    NoAuthorization,
    /// The topic's rules do not let this address in.
    #[error("Publishing to {topic} by client {} is rejected due to IpAddress filtering rules.", ClientAddress(.client))]
    AddressRules {
        /// The topic.
        topic: String,
        /// Where the request came from.
        client: Option<IpAddr>,
    },
    /// The topic takes nothing from the public network.
    #[error(
        "Publishing to {topic} by client {} is rejected as public network access is disabled for the resource.",
        ClientAddress(.client)
    )]
    PublicNetwork {
        /// The topic.
        topic: String,
        /// Where the request came from.
        client: Option<IpAddr>,
    },
    /// An `api-version` that is not written like one.
    #[error(
        "The HTTP resource that matches the request URI '{uri}' does not support the API version '{version}'. Allowed is a day, perhaps with a word behind it, such as 2018-01-01 or 2023-06-01-preview; it may be left out."
    )]
    ApiVersion {
        /// The address, percent-encoded as a whole, without its query.
        uri: String,
        /// The version that was asked for, not too long.
        version: String,
    },
    /// A header that says which host was called says something else.
    #[error("{problem}. Allowed is one host with or without a port, such as events.example.com or 10.1.2.3:8080.")]
    Host {
        /// Which header, and what is wrong with it.
        problem: &'static str,
    },
    /// A trusted proxy says that the request came by a scheme that there is not.
    #[error("The 'X-Forwarded-Proto' header, or proto in the 'Forwarded' header, is neither http nor https.")]
    ForwardedScheme,
    /// The topic's rate is used up.
    #[error("Too Many Events. This topic takes {rates}; try again in {seconds} s.")]
    Throttled {
        /// What it takes.
        rates: String,
        /// When it takes more.
        seconds: u32,
    },
    /// No such topic, or no such path.
    #[error("No HTTP resource was found that matches the request URI '{uri}'.")]
    NotFound {
        /// The address, percent-encoded as a whole, without its query: a key may be in that.
        uri: String,
    },
    /// No such topic in a namespace that is there.
    #[error("There is no topic '{topic}' in the namespace '{namespace}'.")]
    NoTopic {
        /// The namespace.
        namespace: String,
        /// The name that was asked for, not too long.
        topic: String,
    },
    /// No such event subscription of a topic of a namespace.
    #[error("There is no event subscription '{subscription}' of the topic '{topic}' in the namespace '{namespace}'.")]
    NoSubscription {
        /// The namespace.
        namespace: String,
        /// The topic.
        topic: String,
        /// The name that was asked for, not too long.
        subscription: String,
    },
    /// A client that pulls asks for, or says, what it may not.
    #[error("{why}.")]
    Parameter {
        /// What, and what is allowed.
        why: String,
    },
    /// A namespace is asked for, and it is not clear which one.
    #[error(
        "The request does not say which namespace it is for, or names one that is not there. Name it in the path ('/namespaces/NAME/topics/…') or as the first label of the host."
    )]
    NoNamespace,
    /// Another method than POST.
    #[error(".")]
    Method,
    /// The body did not come in time.
    #[error("The request's body was not received within {seconds} seconds.")]
    Slow {
        /// The time it had.
        seconds: u64,
    },
    /// The body came too slowly.
    #[error("The request's body was received at less than {bytes_per_second} bytes a second for {seconds} seconds.")]
    Stalled {
        /// The least that it must bring.
        bytes_per_second: u64,
        /// Over how long that is counted.
        seconds: u64,
    },
    /// The publisher went away, or broke the framing of its body.
    #[error("The request's body could not be read to its end.")]
    Broken,
    /// Bytes of publishers fill what may be in hand at once, or what one of them may have of it.
    #[error("The server is busy: too many bytes are being published. Try again.")]
    NoRoom,
    /// The disk is full.
    #[error("The server cannot store events: its storage is full. Try again later.")]
    Full,
    /// Too much of the topic's log waits for a subscription of it.
    #[error(
        "The topic cannot store more events: its backlog is at its bound, because its event subscription '{laggard}' has not taken them. Other topics are not affected. Try again later."
    )]
    Backlog {
        /// The subscription that has taken least, by name; its number where it was deleted meanwhile.
        laggard: String,
    },
    /// The server is going down.
    #[error("The server is shutting down. Try again.")]
    Closing,
    /// The store no longer took the request, or did not say what became of it: it may be stored.
    #[error("The server could not confirm that the events are stored. Try again.")]
    Unknown,
    /// The store is damaged.
    #[error("The server encountered an internal error.")]
    Internal,
}

/// What a JSON value begins with, by the names that Event Grid's messages use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonToken {
    /// `{`
    StartObject,
    /// `[`
    StartArray,
    /// `"`
    String,
    /// A number without fraction and exponent.
    Integer,
    /// Any other number.
    Float,
    /// `true` or `false`.
    Boolean,
    /// `null`
    Null,
    /// Nothing that JSON begins with.
    Undefined,
}

/// What is wrong with a SAS token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SasProblem {
    /// It is not `r=…&e=…&s=…`.
    Format,
    /// Neither key made its signature.
    Signature,
    /// It was good once.
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

/// An address, or what is said where a connection has none.
struct ClientAddress<'a>(&'a Option<IpAddr>);

impl fmt::Display for ClientAddress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => address.fmt(f),
            None => f.write_str("(unknown)"),
        }
    }
}

/// As many bytes of a name, or a character more, say which it is; it could have a million.
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
            Self::AddressRules { .. } | Self::PublicNetwork { .. } => (StatusCode::FORBIDDEN, "Forbidden"),
            Self::NotFound { .. } | Self::NoSubscription { .. } | Self::NoNamespace => {
                (StatusCode::NOT_FOUND, "ResourceNotFound")
            }
            Self::NoTopic { .. } => (StatusCode::GONE, "ResourceNotFound"),
            Self::Method => (StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
            Self::Slow { .. } | Self::Stalled { .. } => (StatusCode::REQUEST_TIMEOUT, "RequestTimeout"),
            Self::TooLarge { .. } | Self::TooMany { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "PayloadTooLarge"),
            Self::ContentType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "InvalidContentType"),
            Self::ContentEncoding => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "InvalidContentEncoding"),
            Self::Throttled { .. } => (StatusCode::TOO_MANY_REQUESTS, "TooManyRequests"),
            Self::NoRoom | Self::Full | Self::Backlog { .. } | Self::Closing | Self::Unknown => {
                (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable")
            }
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError"),
        }
    }

    /// As what it is counted.
    pub(super) fn counted(&self) -> PublishRefusal {
        let (status, code) = self.status();
        PublishRefusal { status: status.as_u16(), code }
    }

    /// A body that is not JSON.
    pub(super) fn not_json(schema: Schema, why: String) -> Self {
        Self::NotJson { schema, why }
    }

    /// An event that later readers could not read.
    pub(super) fn too_deep(schema: Schema, depth_max: usize) -> Self {
        Self::Nonconforming { schema, why: format!("An event is nested more than {depth_max} levels deep") }
    }

    /// A property that the schema does not have.
    pub(super) fn unexpected(schema: Schema, property: &str) -> Self {
        Self::Unexpected { schema, property: Self::shortened(property).to_owned() }
    }

    /// As much of a name as a message has room for.
    pub(crate) fn shortened(name: &str) -> &str {
        match name.char_indices().find(|(at, _)| *at >= NAME_BYTES_MAX) {
            Some((end, _)) => &name[..end],
            None => name,
        }
    }
}

/// What Event Grid calls a schema in its messages and headers.
pub(super) fn name(schema: &Schema) -> &'static str {
    match schema {
        Schema::EventGrid => "EventGridEvent",
        Schema::CloudEvents => "CloudEventV10",
        Schema::Custom => "CustomInputEvent",
    }
}

/// The sentences that most complaints about a body begin with.
struct BodyComplaint<'a>(&'a Schema);

impl fmt::Display for BodyComplaint<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = name(self.0);
        write!(f, "This resource is configured to receive event in '{name}' schema. ")?;
        f.write_str("The JSON received does not conform to the expected schema.")
    }
}

impl From<journal::Error> for Refusal {
    fn from(error: journal::Error) -> Self {
        match error {
            journal::Error::Full => Self::Full,
            journal::Error::Backlog(number) => Self::Backlog { laggard: number.0.to_string() },
            journal::Error::Closed => Self::Closing,
            journal::Error::Fenced | journal::Error::Unknown => Self::Unknown,
            journal::Error::Damaged(_) => Self::Internal,
        }
    }
}
