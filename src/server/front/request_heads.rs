//! Three fields of request heads that actix-http treats otherwise than HTTP asks for.
//!
//! - `Connection: upgrade` is copied into the response, and ends the connection. A server may
//!   ignore it (RFC 9110, 7.8), and JDK's HTTP client sends it with each request.
//! - `Upgrade: websocket` makes the rest of the connection the body of the request.
//! - `Expect: 100-continue` gets `100 Continue` before a handler has seen the request, so that a
//!   client sends a body that the head alone refuses (RFC 9110, 10.1.1).
//!
//! The library has no setting for these. So [`RequestHeads`] overwrites the fields before the
//! library reads them, and sends `100 Continue` once a handler reads the body.
//!
//! Invariants:
//! - A field is overwritten with text of its own length, so that nothing in this module can move
//!   the end of a message.
//! - A head of which only a part is understood reaches the library as it is.

use std::{
    io, mem,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use actix_web::{
    HttpMessage as _,
    dev::{Payload, ServiceRequest},
    error::PayloadError,
    http::{Version, header::EXPECT},
};
use bytes::Bytes;
use futures_util::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{
    client_stream::{ClientStream, connection_below},
    connection::RequestStage,
};

/// The text that is written over `upgrade` and `100-continue`, so that the library does not act on
/// them.
const IGNORED: &[u8] = b"ignored";
const DEFERRED: &str = "100-deferred";

/// The names of the fields that matter here.
const NAMES: [&str; 5] = [
    "connection",
    "content-length",
    "expect",
    "transfer-encoding",
    "upgrade",
];

/// The beginning of a line that waits for the rest of the line. It is less than the library has
/// room for in each read.
const HELD_BYTES: usize = 512;

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A stream whose request heads the library treats as HTTP asks for.
pub(super) struct RequestHeads {
    stream: ClientStream,
    stage: Rc<RequestStage>,
    part: MessagePart,
    /// The beginning of a line, which the library has not.
    held: Vec<u8>,
    /// The part of an interim response that is not sent yet.
    interim: &'static [u8],
}

/// The part of a message that the next byte belongs to.
#[derive(Clone, Copy)]
enum MessagePart {
    /// The request line, or empty lines before it.
    Start { has_text: bool },
    Fields {
        body: BodyLength,
        is_within_line: bool,
    },
    /// The body, of which this number of bytes is left.
    Body(u64),
    /// Chunks, or something that is not understood. The next head begins after the response.
    Unknown,
}

#[derive(Clone, Copy)]
enum BodyLength {
    Known(u64),
    Unknown,
}

impl RequestHeads {
    pub(super) fn new(stream: ClientStream) -> Self {
        let stage = connection_below(&stream).stage();
        let part = MessagePart::Start { has_text: false };
        Self {
            stream,
            stage,
            part,
            held: Vec::new(),
            interim: &[],
        }
    }

    pub(super) fn get_ref(&self) -> &ClientStream {
        &self.stream
    }

    /// Overwrites the fields in `bytes`. Returns how many bytes at the end the library must not
    /// have yet.
    fn overwrite_fields(&mut self, bytes: &mut [u8]) -> usize {
        let mut rest = bytes;
        while !rest.is_empty() {
            let line_bytes = match &mut self.part {
                MessagePart::Unknown => return 0,
                MessagePart::Body(left) => {
                    let used = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    *left -= used as u64;
                    if *left == 0 {
                        self.part = MessagePart::Start { has_text: false };
                    }
                    used
                }
                MessagePart::Start { has_text } => {
                    let line_len = line_len(rest);
                    let used = line_len.unwrap_or(rest.len());
                    *has_text |= !rest[..used].trim_ascii().is_empty();
                    if line_len.is_some() && *has_text {
                        let body = BodyLength::Known(0);
                        self.part = MessagePart::Fields {
                            body,
                            is_within_line: false,
                        };
                    }
                    used
                }
                MessagePart::Fields {
                    body,
                    is_within_line,
                } => {
                    let Some(used) = line_len(rest) else {
                        if !*is_within_line && may_matter(rest) {
                            return rest.len();
                        }
                        *is_within_line = true;
                        return 0;
                    };
                    let line = &mut rest[..used];
                    if mem::take(is_within_line) {
                        // The beginning of the line has no field that matters.
                    } else if line.trim_ascii().is_empty() {
                        self.part = match *body {
                            BodyLength::Known(0) => MessagePart::Start { has_text: false },
                            BodyLength::Known(length) => MessagePart::Body(length),
                            BodyLength::Unknown => MessagePart::Unknown,
                        };
                    } else {
                        overwrite_field(line, body);
                    }
                    used
                }
            };
            rest = &mut rest[line_bytes..];
        }
        0
    }

    fn poll_interim(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.interim.is_empty() {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, self.interim))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.interim = &self.interim[written..],
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// The length of the first line, with its end.
fn line_len(bytes: &[u8]) -> Option<usize> {
    memchr::memchr(b'\n', bytes).map(|end| end + 1)
}

/// Whether a line that begins like this may be one of [`NAMES`], or the end of the head.
fn may_matter(line: &[u8]) -> bool {
    let begins = |name: &&str| {
        let common = name.len().min(line.len());
        line[..common].eq_ignore_ascii_case(&name.as_bytes()[..common])
    };
    line == b"\r" || (line.len() <= HELD_BYTES && NAMES.iter().any(begins))
}

fn overwrite_field(line: &mut [u8], body: &mut BodyLength) {
    let Some(colon) = line.iter().position(|byte| *byte == b':') else {
        return;
    };
    let (name, value) = line.split_at_mut(colon);
    let value = &mut value[1..];
    let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
    if is("connection") {
        overwrite_items(value, b"upgrade", IGNORED);
    } else if is("upgrade") {
        name.copy_from_slice(IGNORED);
    } else if is("expect") {
        overwrite_items(value, b"100-continue", DEFERRED.as_bytes());
    } else if is("transfer-encoding") {
        *body = BodyLength::Unknown;
    } else if is("content-length") {
        let length = str::from_utf8(value.trim_ascii())
            .ok()
            .and_then(|length| length.parse().ok());
        *body = match (*body, length) {
            (BodyLength::Known(0), Some(length)) => BodyLength::Known(length),
            _ => BodyLength::Unknown,
        };
    }
}

/// Overwrites the items `old` of a list with `new`, which has the same length.
fn overwrite_items(list: &mut [u8], old: &[u8], new: &[u8]) {
    for item in list.split_mut(|byte| *byte == b',') {
        let start = item.len() - item.trim_ascii_start().len();
        let end = start + item.trim_ascii().len();
        if item[start..end].eq_ignore_ascii_case(old) {
            item[start..end].copy_from_slice(new);
        }
    }
}

impl AsyncRead for RequestHeads {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if matches!(this.part, MessagePart::Unknown) && this.stage.is_between_requests() {
            this.part = MessagePart::Start { has_text: false };
        }
        let start = buf.filled().len();
        if this.held.len() >= buf.remaining() {
            // A smaller buffer than the library's.
            let rest = this.held.split_off(buf.remaining());
            buf.put_slice(&mem::replace(&mut this.held, rest));
            this.part = MessagePart::Unknown;
            return Poll::Ready(Ok(()));
        }
        loop {
            buf.put_slice(&this.held);
            let read_from = buf.filled().len();
            let read = Pin::new(&mut this.stream).poll_read(cx, buf);
            if !matches!(read, Poll::Ready(Ok(()))) {
                buf.set_filled(start);
                return read;
            }
            this.held.clear();
            if buf.filled().len() == read_from {
                // The end of the stream: the HTTP library gets the incomplete line.
                return read;
            }
            let held = this.overwrite_fields(&mut buf.filled_mut()[start..]);
            let end = buf.filled().len() - held;
            this.held.extend_from_slice(&buf.filled()[end..]);
            buf.set_filled(end);
            if end > start {
                return read;
            }
        }
    }
}

impl AsyncWrite for RequestHeads {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_interim(cx))?;
        Pin::new(&mut this.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_interim(cx))?;
        Pin::new(&mut this.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// The library flushes after it has written the responses to earlier requests, and after it has
    /// called the handler.
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.stage.take_awaited_body() {
            this.interim = CONTINUE;
        }
        ready!(this.poll_interim(cx))?;
        Pin::new(&mut this.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

/// Has the client asked for its body once a handler reads it, if the client waits for that.
pub(super) fn defer_continue(request: &mut ServiceRequest, stage: &Rc<RequestStage>) {
    let is_deferred = request
        .headers()
        .get(EXPECT)
        .is_some_and(|expect| expect.as_bytes() == DEFERRED.as_bytes());
    // A client of HTTP/1.0 does not know interim responses.
    if is_deferred && request.version() == Version::HTTP_11 {
        let body = AwaitedBody {
            payload: request.take_payload(),
            stage: Some(Rc::clone(stage)),
        };
        request.set_payload(Payload::Stream {
            payload: Box::pin(body),
        });
    }
}

/// The body of a request whose client waits for `100 Continue`.
struct AwaitedBody {
    payload: Payload,
    /// Set until the body is read.
    stage: Option<Rc<RequestStage>>,
}

impl Stream for AwaitedBody {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(stage) = self.stage.take() {
            stage.await_body();
        }
        Pin::new(&mut self.payload).poll_next(cx)
    }
}
