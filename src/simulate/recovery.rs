//! Recoveries of an endpoint: the time until its backlog is gone and its rate is back, and the peak
//! load meanwhile.
//!
//! A recovery cut short by the next outage or the end of the simulation has no such time and is
//! reported without one. Leaving it out would hide the worst recoveries.

use std::{collections::VecDeque, time::Duration};

use crate::{endpoint::SimulatedEndpoint, endpoint_model::AvailabilityPeriod, log::SimulatedLog};
use gridhook_event::{Seq, Timestamp};

/// Rates are events per minute. Over a shorter time, a rate of a few events per hour would be
/// noise.
const MINUTE: Duration = Duration::from_secs(60);

/// The healthy rate is that of the last hour before the outage.
const HEALTHY: Duration = Duration::from_secs(3600);

/// Observes one endpoint and the requests to it.
#[derive(Debug)]
pub(super) struct RecoveryWatch {
    spell: AvailabilityPeriod,
    /// Events sent at the end of this period, within [`HEALTHY`].
    offered: u64,
    /// Events per minute before the outage.
    healthy: Option<f64>,
    returns: Vec<EndpointReturn>,
}

#[derive(Debug)]
pub(super) struct EndpointReturn {
    at: Timestamp,
    /// Everything below was published before the recovery.
    target: Seq,
    healthy: Option<f64>,
    /// Time until everything published before had ended.
    pub(super) backlog_gone: Option<Duration>,
    /// Time until the deliveries in a minute reached the healthy rate.
    pub(super) rate_back: Option<Duration>,
    /// The last minute with attempts, counted from the recovery, and their number.
    minute: (u64, u64),
    /// The maximum of attempts in a minute before the backlog was gone.
    most: u64,
    /// Deliveries of the last minute.
    lately: VecDeque<(Timestamp, u64)>,
}

impl EndpointReturn {
    /// The maximum of attempts in a minute, as a multiple of the healthy rate.
    pub(super) fn peak_ratio(&self) -> Option<f64> {
        self.healthy.map(|healthy| self.most as f64 / healthy)
    }
}

impl RecoveryWatch {
    pub(super) fn new(spell: AvailabilityPeriod) -> Self {
        Self {
            spell,
            offered: 0,
            healthy: None,
            returns: Vec::new(),
        }
    }

    /// The endpoint's recoveries, in order.
    pub(super) fn returns(&self) -> &[EndpointReturn] {
        &self.returns
    }

    /// Advances to `now`; everything below `low` has ended.
    pub(super) fn observe(
        &mut self,
        now: Timestamp,
        endpoint: &SimulatedEndpoint,
        log: &SimulatedLog,
        low: impl Fn() -> Seq,
    ) {
        while self.spell.until <= now {
            let last = self.spell;
            self.spell = endpoint.availability_at(last.until);
            if last.up {
                // During a recovery no rate counts as healthy.
                if self.open().is_none_or(|back| back.backlog_gone.is_some()) && self.offered > 0 {
                    let watch_time = last.until.since(last.from).min(HEALTHY);
                    self.healthy = Some(self.offered as f64 * MINUTE.div_duration_f64(watch_time));
                }
            } else {
                let at = last.until;
                let target = log.seq_at(last.until);
                self.returns.push(EndpointReturn {
                    at,
                    target,
                    healthy: self.healthy,
                    backlog_gone: (low() >= target).then_some(Duration::ZERO),
                    rate_back: None,
                    minute: (0, 0),
                    most: 0,
                    lately: VecDeque::new(),
                });
            }
            self.offered = 0;
        }
    }

    /// Notes a request with this many events. Returns whether the endpoint is up.
    pub(super) fn record_sent(&mut self, events: u64, now: Timestamp) -> bool {
        if self.spell.until.since(now) <= HEALTHY {
            self.offered += events;
        }
        if let Some(back) = self.open().filter(|back| back.backlog_gone.is_none()) {
            let minute = now.since(back.at).as_micros() as u64 / MINUTE.as_micros() as u64;
            let so_far = if back.minute.0 == minute {
                back.minute.1
            } else {
                0
            };
            back.minute = (minute, so_far + events);
            back.most = back.most.max(back.minute.1);
        }
        self.spell.up
    }

    pub(super) fn record_delivered(&mut self, events: u64, now: Timestamp) {
        let Some(back) = self.open().filter(|back| back.rate_back.is_none()) else {
            return;
        };
        let Some(healthy) = back.healthy else { return };
        back.lately.push_back((now, events));
        while back
            .lately
            .front()
            .is_some_and(|(at, _)| at.after(MINUTE) <= now)
        {
            back.lately.pop_front();
        }
        if back
            .lately
            .iter()
            .map(|(_, events)| *events as f64)
            .sum::<f64>()
            >= healthy
        {
            back.rate_back = Some(now.since(back.at));
            back.lately = VecDeque::new();
        }
    }

    /// Notes a write: everything below `low` has ended.
    pub(super) fn record_written(&mut self, now: Timestamp, low: impl Fn() -> Seq) {
        if let Some(back) = self.open().filter(|back| back.backlog_gone.is_none())
            && low() >= back.target
        {
            back.backlog_gone = Some(now.since(back.at));
        }
    }

    /// The recovery with which this period began.
    fn open(&mut self) -> Option<&mut EndpointReturn> {
        self.returns.last_mut().filter(|_| self.spell.up)
    }
}
