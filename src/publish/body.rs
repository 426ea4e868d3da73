//! The limits on receiving a body: its announced length, its deadline and its minimum rate.
//! actix-web has none of these.

use actix_web::http::header::{CONTENT_LENGTH, HeaderMap};
use bytes::Bytes;
use tokio::time::Instant;

use super::{PublishLimits, Refusal};

/// The announced length of the body, or else the limit. A wrong length is detected while reading.
pub(super) fn announced_length(headers: &HeaderMap, bytes_max: usize) -> Result<usize, Refusal> {
    let Some(length) = headers.get(CONTENT_LENGTH) else {
        return Ok(bytes_max);
    };
    match length
        .to_str()
        .ok()
        .and_then(|length| length.parse::<usize>().ok())
    {
        Some(length) if length <= bytes_max => Ok(length),
        Some(_) => Err(Refusal::TooLarge { bytes_max }),
        None => Err(Refusal::Broken),
    }
}

/// U+FEFF in UTF-8. PowerShell and some editors begin a JSON file with it.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Removes the byte order mark of a body of JSON.
pub fn strip_byte_order_mark(body: Bytes) -> Bytes {
    if body.starts_with(BYTE_ORDER_MARK) {
        body.slice(BYTE_ORDER_MARK.len()..)
    } else {
        body
    }
}

/// The deadline of a body: for its end, and for the bytes due in the current window.
pub(super) struct BodyDeadline {
    end: Instant,
    window_end: Instant,
    /// The bytes that must have been received at `window_end`.
    bytes_due: usize,
}

impl BodyDeadline {
    pub(super) fn begin(limits: &PublishLimits, received: usize) -> Self {
        let now = Instant::now();
        let mut deadline = Self {
            end: now + limits.body_timeout,
            window_end: now,
            bytes_due: 0,
        };
        deadline.begin_window(limits, received);
        deadline
    }

    fn begin_window(&mut self, limits: &PublishLimits, received: usize) {
        let bytes =
            u128::from(limits.body_bytes_per_second) * limits.body_window.as_millis() / 1_000;
        self.window_end += limits.body_window;
        self.bytes_due = received.saturating_add(usize::try_from(bytes).unwrap_or(usize::MAX));
    }

    /// The next time to check.
    pub(super) fn next_check(&self) -> Instant {
        self.end.min(self.window_end)
    }

    /// Checks the deadlines and begins the next window.
    pub(super) fn check_progress(
        &mut self,
        limits: &PublishLimits,
        received: usize,
    ) -> Result<(), Refusal> {
        if Instant::now() >= self.end {
            return Err(Refusal::Slow {
                seconds: limits.body_timeout.as_secs(),
            });
        }
        if received < self.bytes_due {
            let PublishLimits {
                body_bytes_per_second: bytes_per_second,
                body_window,
                ..
            } = limits;
            return Err(Refusal::Stalled {
                bytes_per_second: *bytes_per_second,
                seconds: body_window.as_secs(),
            });
        }
        self.begin_window(limits, received);
        Ok(())
    }
}
