//! Reads a response that has arrived as a whole, in one pass: what nearly every endpoint sends.
//!
//! It takes only what has one meaning: HTTP/1.1, a status from 200 on that may have a body, one `Content-Length`, nothing that
//! changes framing or connection, and exactly the bytes that the length announces. The codec reads anything else, so what
//! is not understood here is not decided here.

use std::mem::MaybeUninit;

use actix_http::{BoxedPayloadStream, Payload};
use awc::{
    ClientResponse,
    http::{
        StatusCode,
        header::{HeaderName, HeaderValue},
    },
};
use bytes::{Buf as _, BytesMut};
use futures_util::stream;
use httparse::{Header, ParserConfig, Response, Status};

/// More headers than usual endpoints send.
const HEADERS: usize = 24;

/// Digits of a length that fits.
const LENGTH_DIGITS: usize = 9;

/// Takes the response that is the whole content of `buffer`. The connection stays open after it.
pub(super) fn take(buffer: &mut BytesMut) -> Option<ClientResponse> {
    let mut headers = [const { MaybeUninit::uninit() }; HEADERS];
    let mut parsed = Response::new(&mut []);
    let parsing = ParserConfig::default().parse_response_with_uninit_headers(&mut parsed, buffer, &mut headers);
    let Ok(Status::Complete(head)) = parsing else { return None };
    let status = parsed.code.filter(|code| matches!(code, 200..=203 | 205..=303 | 305..=599))?;
    let status = StatusCode::from_u16(status).ok().filter(|_| parsed.version == Some(1))?;
    if head > super::HEAD_BYTES_MAX || buffer.len() - head != length(parsed.headers)? {
        return None;
    }
    let response = super::response(|own| {
        own.status = status;
        for Header { name, value } in &*parsed.headers {
            let name = HeaderName::from_bytes(name.as_bytes());
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(value)) {
                own.headers.append(name, value);
            }
        }
        Payload::None
    });
    buffer.advance(head);
    if buffer.is_empty() {
        return Some(response);
    }
    let payload: BoxedPayloadStream = Box::pin(stream::iter([Ok(buffer.split().freeze())]));
    Some(response.map_body(|_, _| payload.into()))
}

/// The announced length, if it alone decides what follows the head.
fn length(headers: &[Header<'_>]) -> Option<usize> {
    let mut length = None;
    for Header { name, value } in headers {
        match name.len() {
            14 if name.eq_ignore_ascii_case("content-length") => {
                let is_number = (1..=LENGTH_DIGITS).contains(&value.len()) && value.iter().all(u8::is_ascii_digit);
                let number = str::from_utf8(value).ok().filter(|_| is_number && length.is_none())?;
                length = Some(number.parse().ok()?);
            }
            10 if name.eq_ignore_ascii_case("connection") => {
                value.eq_ignore_ascii_case(b"keep-alive").then_some(())?;
            }
            17 if name.eq_ignore_ascii_case("transfer-encoding") => return None,
            7 if name.eq_ignore_ascii_case("upgrade") => return None,
            _ => {}
        }
    }
    length
}
