//! The response of an endpoint.
//!
//! The status decides. A delivery has succeeded when a status line with 200 to 204 has arrived: the
//! endpoint accepted the events, whether its head and body then end, break off, or stall. The body
//! is only shown to operators.
//!
//! The body is kept up to [`BODY_BYTES_MAX`] and read up to [`DRAINED_BYTES_MAX`]. Head and body
//! are read for at most [`BODY_TIMEOUT`] after the status line. If they end within these limits,
//! the connection is reused; otherwise it is closed, because an endpoint could keep it open without
//! end.

use std::time::{Duration, UNIX_EPOCH};

use awc::{
    ClientResponse, SendClientRequest,
    error::SendRequestError,
    http::{StatusCode, header},
};
use bytes::BytesMut;
use futures_util::StreamExt as _;
use tokio::time::timeout_at;

use super::{
    failure::shorten_detail,
    shown_head::shown_response_head,
    socket::{RequestAttempt, RequestPhase},
};
use gridhook_event::WallTime;
use gridhook_policy::outcome::{Outcome, RequestHeads, RequestResult};

/// 4 KiB of a response body are kept for operators.
pub const BODY_BYTES_MAX: usize = 4_096;

/// 64 KiB of a response body are read so that its connection can be reused: a new one costs more.
pub const DRAINED_BYTES_MAX: usize = 65_536;

/// How long the rest of a response is read after its status line, within the request's own time
/// limit.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(2);

/// Waits for the response, reads what is kept of it, and decides whether its connection may be
/// reused.
pub(super) async fn read_response(
    pending_response: SendClientRequest,
    request_attempt: &RequestAttempt,
    wall: WallTime,
    kept_max: usize,
) -> Result<RequestResult, SendRequestError> {
    let mut response = pending_response.await?;
    let status = response.status();
    request_attempt.enter_phase(RequestPhase::Reading(status.as_u16()));
    let mut result = RequestResult::from_outcome(Outcome::from_status(status.as_u16()));
    result.status = Some(status.as_u16());
    result.retry_after = retry_after(&response, wall);
    if result.outcome != Outcome::Delivered {
        result.heads = Some(Box::new(RequestHeads {
            response: shown_response_head(response.headers()),
            ..RequestHeads::default()
        }));
    }
    if status.is_informational() {
        request_attempt.discard_connection();
        result.detail = match status {
            StatusCode::SWITCHING_PROTOCOLS => {
                "101 switches the protocol, which was not requested".to_owned()
            }
            status => format!(
                "{} is an interim response, and no final one followed 1 MiB of these",
                status.as_u16()
            ),
        };
        return Ok(result);
    }
    if request_attempt.late.get() {
        // The body of a late response is not needed, and may never end.
        request_attempt.discard_connection();
        return Ok(result);
    }
    let mut body_bytes = BytesMut::new();
    let reading = read_body(
        &mut response,
        &mut body_bytes,
        [kept_max, DRAINED_BYTES_MAX],
    );
    result.detail = match timeout_at(request_attempt.reading_until(), reading).await {
        Ok(detail) => detail,
        Err(_) => "the response body did not end in time; the connection was closed".to_owned(),
    };
    result.body = body_bytes.freeze();
    // If the body was not read to its end, dropping the response closes the connection.
    drop(response);
    request_attempt.finish_response();
    Ok(result)
}

/// Reads at most `read_max` bytes of the body and keeps the first ones. Returns a text about the
/// rest.
pub(super) async fn read_body(
    response: &mut ClientResponse,
    kept: &mut BytesMut,
    [kept_max, read_max]: [usize; 2],
) -> String {
    let mut read_bytes = 0;
    loop {
        match response.next().await {
            None => return String::new(),
            Some(Ok(chunk)) => {
                read_bytes += chunk.len();
                kept.extend_from_slice(&chunk[..chunk.len().min(kept_max - kept.len())]);
                if read_bytes > read_max {
                    return format!(
                        "the response body is longer than {read_max} bytes; the connection was \
                         closed"
                    );
                }
            }
            Some(Err(error)) => {
                return shorten_detail(format!("the response body broke off: {error}"));
            }
        }
    }
}

/// `Retry-After`, in seconds or as a date. Unreadable values are ignored.
fn retry_after(response: &ClientResponse, wall: WallTime) -> Option<Duration> {
    let value = response
        .headers()
        .get(header::RETRY_AFTER)?
        .to_str()
        .ok()?
        .trim();
    if !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit()) {
        // Larger numbers are clamped.
        return Some(Duration::from_secs(
            value.parse::<u32>().unwrap_or(u32::MAX).into(),
        ));
    }
    let date = httpdate::parse_http_date(value)
        .ok()?
        .duration_since(UNIX_EPOCH)
        .ok()?;
    Some(date.saturating_sub(wall.since_epoch()))
}
