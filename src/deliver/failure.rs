//! Maps a failed request to its outcome and to a text for operators.
//!
//! [`Outcome::from_status`] maps responses with a status.

use std::{io, time::Duration};

use awc::error::{ConnectError, SendRequestError};

use super::{
    address::AddressRefused,
    request::Destination,
    socket::{RequestAttempt, RequestPhase},
};
use gridhook_policy::outcome::{Failure, RequestResult};

/// 400 bytes describe the failure. The text of an error may contain data from the endpoint.
const DETAIL_BYTES_MAX: usize = 400;

/// Whether no byte of a response was received. awc reads only after it has written everything. It
/// reports an end without a byte as `Disconnected`; for a failed read, only the count of bytes
/// tells.
pub(super) fn has_no_response(error: &SendRequestError, request_attempt: &RequestAttempt) -> bool {
    match error {
        SendRequestError::Send(_) | SendRequestError::Connect(ConnectError::Disconnected) => true,
        SendRequestError::Response(error) => {
            request_attempt.received.get() == 0 && io_cause(error).is_some()
        }
        _ => false,
    }
}

fn io_cause<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a io::Error> {
    error.source()?.downcast_ref::<io::Error>()
}

pub(super) fn failed_result(
    error: &SendRequestError,
    phase: RequestPhase,
    destination: &Destination,
) -> RequestResult {
    let host = destination.url().host_str().unwrap_or_default();
    match error {
        SendRequestError::Connect(ConnectError::Resolver(error)) => unreached_result(
            Failure::ResolutionError,
            format!("cannot resolve the name {host}: {error}"),
        ),
        SendRequestError::Connect(ConnectError::NoRecords) => unreached_result(
            Failure::ResolutionError,
            format!("the name {host} has no address"),
        ),
        SendRequestError::Connect(ConnectError::Io(error)) => {
            match (refusal_reason(error), phase) {
                (Some(why), _) => failure_result(Failure::SocketError, why),
                (None, RequestPhase::Connecting(_)) => {
                    unreached_result(Failure::SocketError, connect_detail(error, phase))
                }
                (None, _) => failure_result(Failure::SocketError, connect_detail(error, phase)),
            }
        }
        SendRequestError::Connect(ConnectError::Disconnected) => failure_result(
            Failure::SocketError,
            "the connection was closed without a response".to_owned(),
        ),
        SendRequestError::Connect(ConnectError::Timeout) | SendRequestError::Timeout => {
            failure_result(Failure::TimedOut, "no response".to_owned())
        }
        SendRequestError::Connect(error) => {
            failure_result(Failure::SocketError, format!("no connection: {error}"))
        }
        SendRequestError::Send(error) => failure_result(
            Failure::SocketError,
            format!("the connection broke while sending the request: {error}"),
        ),
        SendRequestError::Response(error) => match io_cause(error) {
            Some(error) => failure_result(
                Failure::SocketError,
                format!("the connection broke before the response: {error}"),
            ),
            None => failure_result(
                Failure::GenericError,
                format!("the response is not valid HTTP: {error}"),
            ),
        },
        error => failure_result(
            Failure::GenericError,
            format!("cannot make the request: {error}"),
        ),
    }
}

/// The reason if gridhook itself refused to connect.
fn refusal_reason(error: &io::Error) -> Option<String> {
    error
        .get_ref()
        .filter(|error| error.is::<AddressRefused>())
        .map(ToString::to_string)
}

fn connect_detail(error: &io::Error, phase: RequestPhase) -> String {
    match phase {
        RequestPhase::Connecting(address) => format!("no connection to {address}: {error}"),
        RequestPhase::Connected(address) => format!("no TLS with {address}: {error}"),
        RequestPhase::Beginning
        | RequestPhase::Resolving
        | RequestPhase::Sending
        | RequestPhase::Waiting
        | RequestPhase::Reading(_) => error.to_string(),
    }
}

/// Says what was missing at the timeout.
pub(super) fn timeout_detail(
    phase: RequestPhase,
    destination: &Destination,
    wait: Duration,
) -> String {
    let host = destination.url().host_str().unwrap_or_default();
    let missing = match phase {
        RequestPhase::Beginning => "no connection".to_owned(),
        RequestPhase::Resolving => format!("no address for {host}"),
        RequestPhase::Connecting(address) => format!("no connection to {address}"),
        RequestPhase::Connected(address) => format!("no TLS with {address}"),
        RequestPhase::Sending => "the request was not fully sent".to_owned(),
        RequestPhase::Waiting => "no response".to_owned(),
        RequestPhase::Reading(status) => format!("status {status}, but no end of the body"),
    };
    format!("{missing} within {wait:?}")
}

/// The result if no connection was made because of the network.
fn unreached_result(kind: Failure, detail: String) -> RequestResult {
    RequestResult {
        unreached: true,
        ..failure_result(kind, detail)
    }
}

/// A result without a status.
pub(super) fn failure_result(kind: Failure, detail: String) -> RequestResult {
    RequestResult {
        detail: shorten_detail(detail),
        ..RequestResult::from_outcome(kind)
    }
}

/// `text`, shortened to the length of a log line.
pub(super) fn shorten_detail(mut text: String) -> String {
    if text.len() > DETAIL_BYTES_MAX {
        let end = (0..=DETAIL_BYTES_MAX)
            .rev()
            .find(|end| text.is_char_boundary(*end))
            .unwrap_or_default();
        text.truncate(end);
        text.push_str("...");
    }
    text
}
