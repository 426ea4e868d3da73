//! Lines of ledgers, the newest first.
//!
//! The ledgers are read backward in ranges of time, which are shorter where many events were
//! delivered.

use crate::AdminResult;
use std::{cmp::Reverse, time::Duration};

use tracing::warn;

use super::Control;
use gridhook_event::{SubscriptionKey, Timestamp};
use gridhook_policy::record::{LedgerEntry, LedgerLine};

/// Maximum ranges of time of one page.
const RANGES: usize = 64;

/// Length of the first range of time that is read.
const RANGE: Duration = Duration::from_secs(3600);

/// The shortest range of time that is read. Lines of one instant are few enough for one read.
pub(crate) const INSTANT: Duration = Duration::from_micros(1);

pub(crate) struct NewestLines {
    /// At least as many lines as were asked for, if that many exist: all lines of the last instant
    /// are in one page.
    pub(crate) lines: Vec<(SubscriptionKey, LedgerLine)>,
    /// The time before which the next page begins, unless this is the last one.
    pub(crate) next: Option<Timestamp>,
}

/// Reads the `wanted` lines of these event subscriptions from `oldest` until `before`, about `top`
/// of them.
pub(crate) async fn read_newest_lines(
    control: &Control,
    subscriptions: &[SubscriptionKey],
    oldest: Timestamp,
    mut before: Timestamp,
    top: usize,
    wanted: impl Fn(&LedgerEntry) -> bool + Clone + Send + 'static,
) -> AdminResult<NewestLines> {
    let mut lines = Vec::new();
    let mut range = RANGE;
    for _ in 0..RANGES {
        if lines.len() >= top || before <= oldest || subscriptions.is_empty() {
            break;
        }
        let from = before.before(range).max(oldest);
        let read = control
            .registry
            .lines_of_all(subscriptions, from..before, wanted.clone());
        match read.await? {
            None if range > INSTANT => range = (range / 8).max(INSTANT),
            found => {
                if found.is_none() {
                    warn!(at = %from, "an instant has too many lines of ledgers; they are not listed");
                }
                let found = found.unwrap_or_default();
                range = if found.is_empty() {
                    range.saturating_mul(8)
                } else {
                    range
                };
                lines.extend(found);
                before = from;
            }
        }
    }
    lines.sort_by_key(|(key, line)| {
        (
            Reverse(line.entry.at),
            *key,
            line.entry.runs.first().map(|run| Reverse(run.first)),
        )
    });
    let cut = lines
        .get(top - 1)
        .filter(|_| lines.len() > top)
        .map(|(_, line)| line.entry.at);
    if let Some(last) = cut {
        lines.retain(|(_, line)| line.entry.at >= last);
        before = last;
    }
    let is_end = subscriptions.is_empty() || before <= oldest;
    Ok(NewestLines {
        lines,
        next: (!is_end).then_some(before),
    })
}
