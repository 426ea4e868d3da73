//! One clock for all threads that send and receive.

use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

static BEGIN: OnceLock<Instant> = OnceLock::new();

/// Nanoseconds since the first call.
pub(crate) fn now() -> u64 {
    let begin = *BEGIN.get_or_init(Instant::now);
    nanoseconds(begin.elapsed())
}

pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
