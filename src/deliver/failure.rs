//! What a request that brought no answer means: its outcome, and what happened in words for people.
//!
//! Absent on purpose: statuses. Where there is one, [`Outcome::of_status`] has the say.

use std::{io, time::Duration};

use awc::error::{ConnectError, SendRequestError};

use super::{
    address::AddressRefused,
    request::Destination,
    socket::{RequestAttempt, RequestPhase},
};
use crate::policy::outcome::{Outcome, RequestResult};

/// 400 bytes say what went wrong; the text of an error may carry an endpoint's own words.
const DETAIL_BYTES_MAX: usize = 400;

/// Whether nothing at all came back. awc does not read before it has written, and a plain end without a byte of HTTP is
/// `Disconnected`; of a broken read only the count of bytes knows.
pub(super) fn unanswered(error: &SendRequestError, exchange: &RequestAttempt) -> bool {
    match error {
        SendRequestError::Send(_) | SendRequestError::Connect(ConnectError::Disconnected) => true,
        SendRequestError::Response(error) => exchange.received.get() == 0 && io_cause(error).is_some(),
        _ => false,
    }
}

fn io_cause<'a>(error: &'a (dyn std::error::Error + 'static)) -> Option<&'a io::Error> {
    error.source()?.downcast_ref::<io::Error>()
}

/// What a failed request means.
pub(super) fn failed(error: &SendRequestError, phase: RequestPhase, destination: &Destination) -> RequestResult {
    let host = destination.url().host_str().unwrap_or_default();
    match error {
        SendRequestError::Connect(ConnectError::Resolver(error)) => {
            unreached(Outcome::ResolutionError, format!("the name {host} could not be looked up: {error}"))
        }
        SendRequestError::Connect(ConnectError::NoRecords) => {
            unreached(Outcome::ResolutionError, format!("the name {host} has no address"))
        }
        SendRequestError::Connect(ConnectError::Io(error)) => match (why_not(error), phase) {
            (Some(why), _) => failure(Outcome::SocketError, why),
            (None, RequestPhase::Connecting(_)) => unreached(Outcome::SocketError, unconnected(error, phase)),
            (None, _) => failure(Outcome::SocketError, unconnected(error, phase)),
        },
        SendRequestError::Connect(ConnectError::Disconnected) => {
            failure(Outcome::SocketError, "the connection was closed without an answer".to_owned())
        }
        SendRequestError::Connect(ConnectError::Timeout) | SendRequestError::Timeout => {
            failure(Outcome::TimedOut, "no answer".to_owned())
        }
        SendRequestError::Connect(error) => failure(Outcome::SocketError, format!("no connection: {error}")),
        SendRequestError::Send(error) => {
            failure(Outcome::SocketError, format!("the connection broke while the request was sent: {error}"))
        }
        SendRequestError::Response(error) => match io_cause(error) {
            Some(error) => failure(Outcome::SocketError, format!("the connection broke before the answer: {error}")),
            None => failure(Outcome::GenericError, format!("the answer is not understood: {error}")),
        },
        error => failure(Outcome::GenericError, format!("the request could not be made: {error}")),
    }
}

/// Why we made no connection, where that was our own doing.
fn why_not(error: &io::Error) -> Option<String> {
    error.get_ref().filter(|error| error.is::<AddressRefused>()).map(ToString::to_string)
}

fn unconnected(error: &io::Error, phase: RequestPhase) -> String {
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

/// What there was to hear until the wait was over.
pub(super) fn silence(phase: RequestPhase, destination: &Destination, wait: Duration) -> String {
    let host = destination.url().host_str().unwrap_or_default();
    let missing = match phase {
        RequestPhase::Beginning => "no connection".to_owned(),
        RequestPhase::Resolving => format!("no address for {host}"),
        RequestPhase::Connecting(address) => format!("no connection to {address}"),
        RequestPhase::Connected(address) => format!("no TLS with {address}"),
        RequestPhase::Sending => "the request was not taken whole".to_owned(),
        RequestPhase::Waiting => "no answer".to_owned(),
        RequestPhase::Reading(status) => format!("{status}, but no end of its body"),
    };
    format!("{missing} within {wait:?}")
}

/// No connection was made, for a cause of the network.
fn unreached(outcome: Outcome, detail: String) -> RequestResult {
    RequestResult { unreached: true, ..failure(outcome, detail) }
}

/// An answer without a status.
pub(super) fn failure(outcome: Outcome, detail: String) -> RequestResult {
    RequestResult { detail: bounded(detail), ..RequestResult::bare(outcome) }
}

/// `text`, cut where it is longer than a line of a log should be.
pub(super) fn bounded(mut text: String) -> String {
    if text.len() > DETAIL_BYTES_MAX {
        let end = (0..=DETAIL_BYTES_MAX).rev().find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        text.truncate(end);
        text.push_str("...");
    }
    text
}
