//! The HTTP response of a refusal: Azure's error JSON, its headers, and the request's id at the end
//! of the message.

use actix_web::{
    HttpResponse,
    http::{StatusCode, header},
};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::Refusal;
use crate::encoding::ACCEPTED;
use gridhook_event::WallTime;

/// A second: permits are freed within milliseconds, unless the disk is slow.
const SOON_SECONDS: u32 = 1;

/// Ten seconds: a full disk needs an operator, a restart needs a moment.
const LATER_SECONDS: u32 = 10;

const VERSIONS: header::HeaderName = header::HeaderName::from_static("api-supported-versions");
const ERROR_CODE: header::HeaderName = header::HeaderName::from_static("x-ms-error-code");

#[derive(Serialize, ToSchema)]
#[schema(as = PublishError)]
pub struct RefusalBody<'a> {
    /// Error of the request, or of one lock token
    error: RefusalError<'a>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = PublishErrorBody)]
struct RefusalError<'a> {
    /// Machine-readable code of the error
    code: &'a str,
    /// Explanation of the error for people
    message: &'a str,
    /// Further causes of the error
    details: [RefusalDetail<'a>; 1],
}

#[derive(Serialize, ToSchema)]
#[schema(as = PublishErrorDetail)]
struct RefusalDetail<'a> {
    /// Machine-readable code of the error
    code: &'a str,
    /// Explanation of the error for people
    message: &'a str,
}

impl Refusal {
    /// The response to the request `id` at `wall`.
    pub fn to_response(&self, id: Uuid, wall: WallTime) -> HttpResponse {
        let (_, mut response) = self.to_code_and_response(id, wall);
        response
            .headers_mut()
            .insert(VERSIONS, header::HeaderValue::from_static("2018-01-01"));
        response
    }

    /// The response in a namespace, which also has the code in a header.
    pub fn respond_in_namespace(&self, id: Uuid, wall: WallTime) -> HttpResponse {
        let (code, mut response) = self.to_code_and_response(id, wall);
        response
            .headers_mut()
            .insert(ERROR_CODE, header::HeaderValue::from_static(code));
        response
    }

    fn to_code_and_response(&self, id: Uuid, wall: WallTime) -> (&'static str, HttpResponse) {
        let (status, detail) = self.status();
        let mut message = self.to_string();
        if self.is_reported() {
            message.push_str(&request_reference(id, wall));
        }
        let code = status_name(status);
        let details = [RefusalDetail {
            code: detail,
            message: &message,
        }];
        let body = RefusalBody {
            error: RefusalError {
                code,
                message: &message,
                details,
            },
        };
        let mut response = HttpResponse::build(status);
        response.insert_header(("x-ms-request-id", id.to_string()));
        response.insert_header((header::CONTENT_TYPE, "application/json; charset=utf-8"));
        if let Some(seconds) = self.retry_after_seconds() {
            response.insert_header((header::RETRY_AFTER, seconds));
        }
        if matches!(self, Self::ContentEncoding) {
            response.insert_header((header::ACCEPT_ENCODING, ACCEPTED));
        }
        if matches!(self, Self::Method) {
            response.insert_header((header::ALLOW, "OPTIONS, POST"));
        }
        (
            code,
            response.body(serde_json::to_string(&body).expect("strings are always written")),
        )
    }

    fn retry_after_seconds(&self) -> Option<u32> {
        if let Self::Throttled { seconds, .. } = self {
            return Some(*seconds);
        }
        match self.status().0 {
            StatusCode::SERVICE_UNAVAILABLE => Some(match self {
                Self::NoRoom | Self::Unchecked | Self::NoIssuerKeys => SOON_SECONDS,
                _ => LATER_SECONDS,
            }),
            _ => None,
        }
    }

    /// Whether the message ends with the request's id. Azure omits it for a body that is too large.
    fn is_reported(&self) -> bool {
        self.status().0 != StatusCode::PAYLOAD_TOO_LARGE
    }
}

/// .NET's names of status codes, which Azure uses. Some differ from HTTP's.
fn status_name(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST => "BadRequest",
        StatusCode::UNAUTHORIZED => "Unauthorized",
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::GONE => "Gone",
        StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
        StatusCode::REQUEST_TIMEOUT => "RequestTimeout",
        StatusCode::PAYLOAD_TOO_LARGE => "RequestEntityTooLarge",
        StatusCode::UNSUPPORTED_MEDIA_TYPE => "UnsupportedMediaType",
        StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
        StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
        _ => "InternalServerError",
    }
}

/// The request's id, as in the header `x-ms-request-id`, and the time. A publisher quotes them to
/// the operator.
fn request_reference(id: Uuid, wall: WallTime) -> String {
    let at = i64::try_from(wall.0)
        .ok()
        .and_then(|micros| jiff::Timestamp::from_microsecond(micros).ok());
    let at = at
        .unwrap_or(jiff::Timestamp::MAX)
        .strftime("%-m/%-d/%Y %-I:%M:%S %p");
    format!(" Request '{id}', {at} (UTC).")
}
