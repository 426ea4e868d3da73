//! Compressed bodies of publish requests: `Content-Encoding: gzip` (RFC 9110) and `zstd` (RFC
//! 9659).
//!
//! The decoded size is bounded by the limit of a request, and each part of it is reserved before it
//! is produced. So a decompression bomb costs no more than a plain body of the largest size.

use std::io::{self, Read};

use actix_web::http::header::{CONTENT_ENCODING, HeaderMap};
use bytes::Bytes;
use flate2::bufread::MultiGzDecoder;

use super::{Refusal, in_flight_bytes::Permit};

/// The content codings that a publisher may use, as a response names them.
pub(super) const ACCEPTED: &str = "gzip, zstd";

/// The largest window of a zstd frame: 8 MB, as RFC 9659 has it for HTTP.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

const PART_BYTES: usize = 64 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyEncoding {
    Identity,
    Gzip,
    Zstd,
}

impl BodyEncoding {
    /// The encoding in the headers of a request. One content coding at most: nothing needs two.
    pub(super) fn from_headers(headers: &HeaderMap) -> Result<Self, Refusal> {
        let mut encoding = Self::Identity;
        for value in headers.get_all(CONTENT_ENCODING) {
            let coding = match value.as_bytes().trim_ascii() {
                b"" => continue,
                name if name.eq_ignore_ascii_case(b"identity") => continue,
                name if name.eq_ignore_ascii_case(b"gzip")
                    || name.eq_ignore_ascii_case(b"x-gzip") =>
                {
                    Self::Gzip
                }
                name if name.eq_ignore_ascii_case(b"zstd") => Self::Zstd,
                _ => return Err(Refusal::ContentEncoding),
            };
            if std::mem::replace(&mut encoding, coding) != Self::Identity {
                return Err(Refusal::ContentEncoding);
            }
        }
        Ok(encoding)
    }

    /// Decodes a body that `permit` covers, into at most `bytes_max` bytes, which it covers
    /// afterwards.
    pub(super) fn decode(
        self,
        body: Bytes,
        bytes_max: usize,
        permit: &mut Permit,
    ) -> Result<Bytes, Refusal> {
        let damage_error_of = |encoding| move |_: io::Error| Refusal::DamagedEncoding { encoding };
        match self {
            Self::Identity => Ok(body),
            Self::Gzip => read_decoder(
                MultiGzDecoder::new(&*body),
                body.len(),
                bytes_max,
                permit,
                damage_error_of("gzip"),
            ),
            Self::Zstd => {
                let damage_error = damage_error_of("zstd");
                let mut decoder =
                    zstd::stream::read::Decoder::with_buffer(&*body).map_err(damage_error)?;
                decoder
                    .window_log_max(ZSTD_WINDOW_LOG_MAX)
                    .map_err(damage_error)?;
                read_decoder(decoder, body.len(), bytes_max, permit, damage_error)
            }
        }
    }
}

/// Reads `decoder` to its end. The compressed bytes are held until then, so the permit covers both.
fn read_decoder(
    mut decoder: impl Read,
    compressed: usize,
    bytes_max: usize,
    permit: &mut Permit,
    damaged: impl Fn(io::Error) -> Refusal,
) -> Result<Bytes, Refusal> {
    let mut output = Vec::new();
    loop {
        let len = output.len();
        // One byte more than allowed shows that there is too much.
        let more = PART_BYTES.min(bytes_max + 1 - len);
        permit
            .grow_to(compressed + len + more)
            .map_err(|_| Refusal::NoRoom)?;
        let read = decoder
            .by_ref()
            .take(more as u64)
            .read_to_end(&mut output)
            .map_err(&damaged)?;
        if output.len() > bytes_max {
            return Err(Refusal::TooLarge { bytes_max });
        }
        if read < more {
            break;
        }
    }
    permit.shrink_to(output.len());
    Ok(output.into())
}
