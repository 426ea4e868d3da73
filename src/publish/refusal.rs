//! Everything a publisher can be told instead of 200: Azure's error JSON with Azure's codes and words, as far as these
//! are known. Where they are not, a sentence of ours says what is wrong.
//!
//! `Retry-After` goes with 503 and with nothing else: some clients repeat *any* answer that has it, ten times.

use std::fmt;

use actix_web::{HttpResponse, http::StatusCode, http::header};
use serde::Serialize;
use uuid::Uuid;

use crate::{
    event::{Schema, Timestamp},
    journal,
};

/// A request was not taken. Nothing of it is stored, but after [`Refusal::Unknown`], where that is open.
///
/// The messages are what a publisher reads: sentences, in Event Grid's wording.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The body ends before its JSON does, or is empty.
    #[error("Unexpected end when reading JSON.")]
    CutOff,
    /// The body is not JSON.
    #[error("{} It is not JSON: {why}.", Conform(.schema))]
    NotJson {
        /// What the topic takes.
        schema: Schema,
        /// Where and what.
        why: String,
    },
    /// A JSON value of the wrong kind stands where events or an event should be.
    #[error("{} Token Expected: {expected:?}, Actual Token Received: {actual:?}.", Conform(.schema))]
    Token {
        /// What the topic takes.
        schema: Schema,
        /// What should be there.
        expected: Token,
        /// What is there.
        actual: Token,
    },
    /// An array without events.
    #[error("{}", Conform(.schema))]
    Empty {
        /// What the topic takes.
        schema: Schema,
    },
    /// An event breaks a rule of its schema.
    #[error("{} {why}.", Conform(.schema))]
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
        /// Its name, as Event Grid calls it.
        property: &'static str,
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
    /// The topic takes a custom schema, and this server does not read these yet.
    #[error("This resource is configured for 'CustomInputEvent' schema, which this server does not read yet.")]
    CustomSchema,
    /// `ce-…` headers beside a body that has the attributes itself.
    #[error("Conflicting content mode: binary mode headers with structured mode content type.")]
    ConflictingModes,
    /// A CloudEvent in binary mode, which this server does not read yet.
    #[error(
        "The binary content mode of CloudEvents is not supported yet. Send application/cloudevents+json; charset=utf-8 or application/cloudevents-batch+json; charset=UTF-8."
    )]
    BinaryMode,
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
    /// A key that is not the topic's.
    #[error("The request authorization key is not authorized for {}. This is due to the reason: {why}.", .host.to_uppercase())]
    WrongKey {
        /// Whom the publisher called.
        host: String,
        /// What is wrong with the key.
        why: &'static str,
    },
    /// A SAS token or a token of Entra, which this server does not read yet.
    #[error("This server does not read '{header}' yet. Use aeg-sas-key.")]
    Unread {
        /// The header that has it.
        header: &'static str,
    },
    /// `Authorization` with a scheme that Event Grid does not have.
    #[error("Request has an unsupported Authorization scheme (must be SharedAccessSignature or Bearer).")]
    Scheme,
    /// No such topic, or no such path.
    #[error("No HTTP resource was found that matches the request URI '{uri}'.")]
    NotFound {
        /// The address, percent-encoded as a whole, without its query: a key may be in that.
        uri: String,
    },
    /// Another method than POST.
    #[error(".")]
    Method,
    /// The body did not come in time.
    #[error("The request's body was not received within {seconds} seconds.")]
    Slow {
        /// The time it had.
        seconds: u64,
    },
    /// The publisher went away, or broke the framing of its body.
    #[error("The request's body could not be read to its end.")]
    Broken,
    /// Other publishers' bytes fill what may be in hand at once.
    #[error("The server is busy: too many bytes are being published. Try again.")]
    NoRoom,
    /// The disk is full.
    #[error("The server cannot store events: its storage is full. Try again later.")]
    Full,
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
pub enum Token {
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

/// A second or so: what fills the permits is read or written within milliseconds, unless the disk is slow.
const SOON_SECONDS: u32 = 1;

/// Ten seconds: a full disk wants a hand, a restart wants a moment.
const LATER_SECONDS: u32 = 10;

/// As many bytes of a name, or a character more, say which it is; it could have a million.
const NAME_BYTES_MAX: usize = 128;

#[derive(Serialize)]
struct Body<'a> {
    error: Error<'a>,
}

#[derive(Serialize)]
struct Error<'a> {
    code: &'a str,
    message: &'a str,
    details: [Detail<'a>; 1],
}

#[derive(Serialize)]
struct Detail<'a> {
    code: &'a str,
    message: &'a str,
}

impl Refusal {
    /// The answer to the request `id`, at `now`.
    pub fn respond(&self, id: Uuid, now: Timestamp) -> HttpResponse {
        let (status, detail) = self.status();
        let mut message = self.to_string();
        if self.is_reported() {
            message.push_str(&report(id, now));
        }
        let code = code(status);
        let details = [Detail { code: detail, message: &message }];
        let body = Body { error: Error { code, message: &message, details } };
        let mut response = HttpResponse::build(status);
        response.insert_header(("x-ms-request-id", id.to_string()));
        response.insert_header(("api-supported-versions", "2018-01-01"));
        response.insert_header((header::CONTENT_TYPE, "application/json; charset=utf-8"));
        if let Some(seconds) = self.retry_after_seconds() {
            response.insert_header((header::RETRY_AFTER, seconds));
        }
        if matches!(self, Self::Method) {
            response.insert_header((header::ALLOW, "OPTIONS, POST"));
        }
        response.body(serde_json::to_string(&body).expect("strings are always written"))
    }

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
            | Self::CustomSchema
            | Self::ConflictingModes
            | Self::Broken => (StatusCode::BAD_REQUEST, "InputJsonInvalid"),
            Self::EmptyKey => (StatusCode::BAD_REQUEST, "InvalidSas"),
            Self::OtherTopic { .. } | Self::NoKey | Self::WrongKey { .. } | Self::Unread { .. } | Self::Scheme => {
                (StatusCode::UNAUTHORIZED, "Unauthorized")
            }
            Self::NotFound { .. } => (StatusCode::NOT_FOUND, "ResourceNotFound"),
            Self::Method => (StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
            Self::Slow { .. } => (StatusCode::REQUEST_TIMEOUT, "RequestTimeout"),
            Self::TooLarge { .. } | Self::TooMany { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "PayloadTooLarge"),
            Self::ContentType | Self::BinaryMode => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "InvalidContentType"),
            Self::ContentEncoding => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "InvalidContentEncoding"),
            Self::NoRoom | Self::Full | Self::Closing | Self::Unknown => {
                (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable")
            }
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "InternalServerError"),
        }
    }

    fn retry_after_seconds(&self) -> Option<u32> {
        match self.status().0 {
            StatusCode::SERVICE_UNAVAILABLE if matches!(self, Self::NoRoom) => Some(SOON_SECONDS),
            StatusCode::SERVICE_UNAVAILABLE => Some(LATER_SECONDS),
            _ => None,
        }
    }

    /// Whether the message ends with an invitation to report it. What is too large has none in Azure.
    fn is_reported(&self) -> bool {
        self.status().0 != StatusCode::PAYLOAD_TOO_LARGE
    }

    /// A body that is not JSON.
    pub(super) fn not_json(schema: Schema, why: String) -> Self {
        Self::NotJson { schema, why }
    }

    /// A property that the schema does not have.
    pub(super) fn unexpected(schema: Schema, property: &str) -> Self {
        Self::Unexpected { schema, property: Self::shortened(property).to_owned() }
    }

    /// As much of a name as a message has room for.
    pub(super) fn shortened(name: &str) -> &str {
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
struct Conform<'a>(&'a Schema);

impl fmt::Display for Conform<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = name(self.0);
        write!(f, "This resource is configured to receive event in '{name}' schema. ")?;
        f.write_str("The JSON received does not conform to the expected schema.")
    }
}

/// The names that .NET has for these, which are not always HTTP's.
fn code(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST => "BadRequest",
        StatusCode::UNAUTHORIZED => "Unauthorized",
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
        StatusCode::REQUEST_TIMEOUT => "RequestTimeout",
        StatusCode::PAYLOAD_TOO_LARGE => "RequestEntityTooLarge",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "UnsupportedMediaType",
        StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
        _ => "InternalServerError",
    }
}

/// Azure's invitation, with the id by which this server's log knows the request.
fn report(id: Uuid, now: Timestamp) -> String {
    let at = i64::try_from(now.0).ok().and_then(|micros| jiff::Timestamp::from_microsecond(micros).ok());
    let at = at.unwrap_or(jiff::Timestamp::MAX).strftime("%-m/%-d/%Y %-I:%M:%S %p");
    format!(" Report '{id}:0:{at} (UTC)' to our forums for assistance or raise a support ticket.")
}

impl From<journal::Error> for Refusal {
    fn from(error: journal::Error) -> Self {
        match error {
            journal::Error::Full => Self::Full,
            journal::Error::Closed => Self::Closing,
            journal::Error::Fenced | journal::Error::Unknown => Self::Unknown,
            journal::Error::Damaged(_) => Self::Internal,
        }
    }
}
