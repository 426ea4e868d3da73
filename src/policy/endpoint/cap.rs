//! How many events in a request, for an endpoint that called one too large (413).
//!
//! A refusal halves the cap. After a while of successes it is doubled again, up to what is wanted, so that an endpoint that
//! was mended is used fully. Where the larger batch is refused again, the next try waits twice as long: it costs one
//! request in fifty at first, and hardly any in the long run.

/// So many full batches in a row are taken before a larger one is tried …
const PATIENCE: u32 = 50;

/// … and so many at the most, where every try fails: days, for an endpoint that takes one in a minute.
const PATIENCE_MAX: u32 = 50 << 7;

/// The cap.
#[derive(Debug, Default)]
pub(super) struct ConcurrencyCap {
    /// [`None`] where nothing was too large.
    capped: Option<CapState>,
}

#[derive(Debug)]
struct CapState {
    events: u32,
    /// Full batches taken since it was set.
    taken: u32,
    patience: u32,
    /// Whether it was raised last, and not halved.
    raised: bool,
}

impl ConcurrencyCap {
    /// The most events, of the `wanted`.
    pub(super) fn most(&self, wanted: u32) -> u32 {
        self.capped.as_ref().map_or(wanted, |capped| capped.events.min(wanted))
    }

    /// A batch of so many events was too large.
    pub(super) fn refused(&mut self, events: usize) {
        let half = u32::try_from(events / 2).unwrap_or(u32::MAX).max(1);
        let patience = match &self.capped {
            None => PATIENCE,
            // It left before the last refusal came.
            Some(capped) if half > capped.events => return,
            Some(capped) if capped.raised => capped.patience.saturating_mul(2).min(PATIENCE_MAX),
            Some(capped) => capped.patience,
        };
        self.capped = Some(CapState { events: half, taken: 0, patience, raised: false });
    }

    /// A batch of so many events was taken, where `wanted` would be allowed.
    pub(super) fn took(&mut self, events: usize, wanted: u32) {
        let Some(capped) = self.capped.as_mut().filter(|capped| capped.events as usize <= events) else { return };
        capped.taken += 1;
        if capped.taken < capped.patience {
            return;
        }
        if capped.events >= wanted {
            self.capped = None;
            return;
        }
        let events = capped.events.saturating_mul(2).min(wanted);
        // The last try has proven itself: the next one need not wait for its sake.
        let patience = if capped.raised { PATIENCE } else { capped.patience };
        *capped = CapState { events, taken: 0, patience, raised: true };
    }
}
