//! The maximum events per request for an endpoint that rejected a request as too large (413).
//!
//! A 413 halves the cap. After a number of full batches in a row it is doubled again, up to the
//! configured maximum, so that an endpoint whose limit was raised is used fully. If the larger
//! batch is rejected again, the next try waits for twice as many batches. Probing thus costs one
//! request in fifty at first, and almost none in the long run.

/// Full batches in a row before a larger one is tried.
const PATIENCE: u32 = 50;

/// The number doubles with each try that fails, up to this: days for an endpoint that accepts one
/// batch a minute.
const PATIENCE_MAX: u32 = 50 << 7;

#[derive(Debug, Default)]
pub(super) struct BatchCap {
    /// [`None`] if no request was too large.
    capped: Option<CapState>,
}

#[derive(Debug)]
struct CapState {
    events: u32,
    /// Full batches since it was set.
    taken: u32,
    patience: u32,
    /// Whether the last change raised it.
    raised: bool,
}

impl BatchCap {
    /// The maximum events, at most `wanted`.
    pub(super) fn cap_events(&self, wanted: u32) -> u32 {
        self.capped
            .as_ref()
            .map_or(wanted, |capped| capped.events.min(wanted))
    }

    /// Notes that a batch of this size was too large.
    pub(super) fn record_too_large(&mut self, events: usize) {
        let half = u32::try_from(events / 2).unwrap_or(u32::MAX).max(1);
        let patience = match &self.capped {
            None => PATIENCE,
            // It was sent before the last rejection arrived.
            Some(capped) if half > capped.events => return,
            Some(capped) if capped.raised => capped.patience.saturating_mul(2).min(PATIENCE_MAX),
            Some(capped) => capped.patience,
        };
        self.capped = Some(CapState {
            events: half,
            taken: 0,
            patience,
            raised: false,
        });
    }

    /// Notes that a batch of this size was accepted, where `wanted` would be allowed.
    pub(super) fn record_accepted(&mut self, events: usize, wanted: u32) {
        let Some(capped) = self
            .capped
            .as_mut()
            .filter(|capped| capped.events as usize <= events)
        else {
            return;
        };
        capped.taken += 1;
        if capped.taken < capped.patience {
            return;
        }
        if capped.events >= wanted {
            self.capped = None;
            return;
        }
        let events = capped.events.saturating_mul(2).min(wanted);
        // The last raise is confirmed, so the next one need not wait longer.
        let patience = if capped.raised {
            PATIENCE
        } else {
            capped.patience
        };
        *capped = CapState {
            events,
            taken: 0,
            patience,
            raised: true,
        };
    }
}
