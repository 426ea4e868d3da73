//! The head of a response, from endpoints that are not trusted to write it well.
//!
//! Invariants:
//! - The status line decides. A head that is folded, malformed, too long or unfinished has the
//!   status of its first line. Then its other fields are those that can be read, and its connection
//!   is not kept.
//! - A body is read only if one reading of its length is possible. So bytes of one response are
//!   never taken for another one.
//! - Whatever is not understood closes the connection. `Connection: upgrade` is understood: it
//!   offers a protocol, and is ignored.

use std::borrow::Cow;

use actix_http::{ResponseHead, error::ParseError};
use awc::http::{
    StatusCode, Version,
    header::{self, HeaderName, HeaderValue},
};
use bytes::{Buf as _, BytesMut};

/// 128 KiB of a head are read, as of a request's.
pub const HEAD_BYTES_MAX: usize = 128 * 1024;

const PROTOCOL: &[u8] = b"HTTP/1.";

/// The length of `HTTP/1.1 200`.
const STATUS_END: usize = 12;

/// The line that a response begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StatusLine {
    /// The status, from 100 to 999.
    pub(super) status: u16,
    version: Version,
    /// The length of the line, with its end and with empty lines before it.
    len: usize,
}

impl StatusLine {
    /// Parses the line that `bytes` begin with; [`None`] if more bytes are needed.
    ///
    /// # Errors
    /// If it is not the status line of HTTP/1.
    pub(super) fn parse(bytes: &[u8]) -> Result<Option<Self>, ParseError> {
        let start = bytes
            .iter()
            .position(|byte| !matches!(byte, b'\r' | b'\n'))
            .unwrap_or(bytes.len());
        let line = &bytes[start..];
        let common = line.len().min(PROTOCOL.len());
        if line[..common] != PROTOCOL[..common] {
            return Err(ParseError::Version);
        }
        let Some(line_end) = line.iter().position(|byte| *byte == b'\n') else {
            return if bytes.len() > HEAD_BYTES_MAX {
                Err(ParseError::TooLarge)
            } else {
                Ok(None)
            };
        };
        let [
            b'H',
            b'T',
            b'T',
            b'P',
            b'/',
            b'1',
            b'.',
            minor,
            b' ',
            digits @ ..,
            _,
        ] = &line[..=line_end]
        else {
            return Err(ParseError::Status);
        };
        let version = match minor {
            b'0' => Version::HTTP_10,
            b'1'..=b'9' => Version::HTTP_11,
            _ => return Err(ParseError::Version),
        };
        let (digits, rest) = digits.split_at_checked(3).ok_or(ParseError::Status)?;
        let status = str::from_utf8(digits)
            .ok()
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()));
        let status = status
            .and_then(|digits| digits.parse().ok())
            .filter(|status| *status >= 100);
        match (status, rest) {
            (Some(status), [] | [b' ' | b'\r', ..]) => Ok(Some(Self {
                status,
                version,
                len: start + line_end + 1,
            })),
            _ => Err(ParseError::Status),
        }
    }

    /// Whether another response follows this one. 101 ends HTTP on the connection.
    pub(super) fn is_interim(self) -> bool {
        matches!(self.status, 100 | 102..=199)
    }

    /// The length of the head that begins with this line; [`None`] if its end has not arrived.
    pub(super) fn head_len(self, bytes: &[u8]) -> Option<usize> {
        let mut at = self.len;
        loop {
            let line = split_line(&bytes[at..])?;
            at += line.len();
            if matches!(line, b"\n" | b"\r\n") {
                return Some(at);
            }
        }
    }
}

/// Whether `bytes` begin with the status of a final response.
pub(super) fn is_final(bytes: &[u8]) -> bool {
    bytes.len() >= STATUS_END && bytes.starts_with(PROTOCOL) && matches!(bytes[9], b'2'..=b'5')
}

/// Whether `bytes` begin with the status of a response that refuses the request.
pub(super) fn is_refusal(bytes: &[u8]) -> bool {
    is_final(bytes) && bytes[9] != b'2'
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyFraming {
    /// There is no body, or it is not read.
    None,
    Length(u64),
    Chunked,
    /// A body that ends with the connection.
    UntilEnd,
}

/// A received head, and what it says about the rest of the response.
#[derive(Debug)]
pub(super) struct ReceivedHead {
    status: StatusCode,
    version: Version,
    fields: Vec<(HeaderName, HeaderValue)>,
    pub(super) framing: BodyFraming,
    /// Whether the connection may be kept after the body.
    pub(super) keep_alive: bool,
}

impl ReceivedHead {
    /// Takes the head that `buffer` begins with; [`None`] if more bytes are needed.
    ///
    /// # Errors
    /// If there is no status line.
    pub(super) fn take_head(buffer: &mut BytesMut) -> Result<Option<Self>, ParseError> {
        let Some(line) = StatusLine::parse(buffer)? else {
            return Ok(None);
        };
        match line.head_len(buffer) {
            Some(len) if len <= HEAD_BYTES_MAX => {
                let head = Self::new(line, &buffer[..len], true)?;
                buffer.advance(len);
                Ok(Some(head))
            }
            None if buffer.len() <= HEAD_BYTES_MAX => Ok(None),
            Some(_) | None => Self::take_unfinished(buffer),
        }
    }

    /// Takes the part of a head that has arrived, of which no more is read.
    ///
    /// # Errors
    /// If there is no status line.
    pub(super) fn take_unfinished(buffer: &mut BytesMut) -> Result<Option<Self>, ParseError> {
        let bytes = buffer.split();
        let Some(line) = StatusLine::parse(&bytes)? else {
            return Ok(None);
        };
        Self::new(line, &bytes[..bytes.len().min(HEAD_BYTES_MAX)], false).map(Some)
    }

    fn new(line: StatusLine, bytes: &[u8], is_whole: bool) -> Result<Self, ParseError> {
        let status = StatusCode::from_u16(line.status).map_err(|_| ParseError::Status)?;
        let mut fields = Vec::new();
        let mut rules = FramingRules {
            is_clear: is_whole,
            ..FramingRules::default()
        };
        let mut rest = &bytes[line.len..];
        while let Some((field, after)) = unfold_field(rest) {
            rest = after;
            match parse_field(&field) {
                Some((name, value)) => {
                    rules.add_header(&name, &value);
                    fields.push((name, value));
                }
                None => rules.is_clear = false,
            }
        }
        let (framing, keep_alive) = rules.body_framing(status, line.version);
        Ok(Self {
            status,
            version: line.version,
            fields,
            framing,
            keep_alive,
        })
    }

    /// Fills in the head as awc has it.
    pub(super) fn write_to(self, head: &mut ResponseHead) {
        head.status = self.status;
        head.version = self.version;
        for (name, value) in self.fields {
            head.headers.append(name, value);
        }
    }
}

/// The next line with its end.
fn split_line(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    Some(&bytes[..=end])
}

/// The next field, with the lines that continue it, and what follows; [`None`] at the end of a
/// head.
fn unfold_field(bytes: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let first = split_line(bytes)?;
    let mut rest = &bytes[first.len()..];
    let first = first.trim_ascii_end();
    if first.is_empty() && rest.is_empty() {
        return None;
    }
    let mut field = Cow::Borrowed(first);
    while let [b' ' | b'\t', ..] = rest {
        let Some(next) = split_line(rest) else { break };
        rest = &rest[next.len()..];
        field.to_mut().push(b' ');
        field.to_mut().extend_from_slice(next.trim_ascii());
    }
    Some((field, rest))
}

fn parse_field(field: &[u8]) -> Option<(HeaderName, HeaderValue)> {
    let colon = field.iter().position(|byte| *byte == b':')?;
    let name = HeaderName::from_bytes(field[..colon].trim_ascii_end()).ok()?;
    let value = HeaderValue::from_bytes(field[colon + 1..].trim_ascii()).ok()?;
    Some((name, value))
}

/// The rules for the body and the connection that the fields contain.
#[derive(Default)]
struct FramingRules {
    /// Whether nothing in the head is malformed or contradictory.
    is_clear: bool,
    length: Option<u64>,
    encodings: usize,
    is_chunked: bool,
    closes: bool,
}

impl FramingRules {
    fn add_header(&mut self, name: &HeaderName, value: &HeaderValue) {
        let bytes = value.as_bytes();
        if name == header::CONTENT_LENGTH {
            for item in bytes.split(|byte| *byte == b',') {
                let length = parse_length(item.trim_ascii());
                self.is_clear &=
                    length.is_some() && (self.length.is_none() || self.length == length);
                self.length = length;
            }
        } else if name == header::TRANSFER_ENCODING {
            self.encodings += 1;
            self.is_chunked = bytes.eq_ignore_ascii_case(b"chunked");
        } else if name == header::CONNECTION {
            let mut options = bytes.split(|byte| *byte == b',');
            self.closes |= options.any(|option| option.trim_ascii().eq_ignore_ascii_case(b"close"));
        }
    }

    fn body_framing(self, status: StatusCode, version: Version) -> (BodyFraming, bool) {
        let keep_alive = self.is_clear && !self.closes && version == Version::HTTP_11;
        if status.is_informational()
            || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)
        {
            return (BodyFraming::None, keep_alive && !status.is_informational());
        }
        if !self.is_clear {
            return (BodyFraming::None, false);
        }
        match (self.encodings, self.length) {
            (1, length) if self.is_chunked && version == Version::HTTP_11 => {
                // With a length, a proxy in between may have read another body.
                (BodyFraming::Chunked, keep_alive && length.is_none())
            }
            (0, Some(0)) => (BodyFraming::None, keep_alive),
            (0, Some(length)) => (BodyFraming::Length(length), keep_alive),
            (0, None) if version == Version::HTTP_10 => (BodyFraming::UntilEnd, false),
            // Without any length a body would end with the connection, which most endpoints leave
            // open.
            _ => (BodyFraming::None, false),
        }
    }
}

fn parse_length(digits: &[u8]) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    str::from_utf8(digits)
        .ok()
        .filter(|_| is_number)?
        .parse()
        .ok()
}
