//! What follows when an endpoint comes back: how long until its backlog is gone and its rate is back, and how hard it was
//! hit meanwhile.
//!
//! A return that the next spell or the end of the simulation cut short has no such time, and says so: leaving it out
//! would make the worst recoveries look like none.

use std::{collections::VecDeque, time::Duration};

use crate::{
    event::{Seq, Timestamp},
    simulate::{endpoint::SimulatedEndpoint, endpoint_model::AvailabilityPeriod, log::SimulatedLog},
};

/// Rates are events in a minute: shorter, and a rate of a few events an hour would be noise.
const MINUTE: Duration = Duration::from_secs(60);

/// The healthy rate is that of the last hour before the endpoint went down.
const HEALTHY: Duration = Duration::from_secs(3600);

/// Watches one endpoint and what is sent to it.
#[derive(Debug)]
pub(super) struct RecoveryWatch {
    spell: AvailabilityPeriod,
    /// Events offered at the end of this spell, within [`HEALTHY`].
    offered: u64,
    /// Events a minute, before it went down.
    healthy: Option<f64>,
    returns: Vec<EndpointReturn>,
}

/// A time that an endpoint came back.
#[derive(Debug)]
pub(super) struct EndpointReturn {
    at: Timestamp,
    /// Everything below was published before.
    target: Seq,
    healthy: Option<f64>,
    /// After so long everything published before was finished.
    pub(super) backlog_gone: Option<Duration>,
    /// After so long a minute brought as many events as a healthy one.
    pub(super) rate_back: Option<Duration>,
    /// The minute that something was last offered in, counted from the return, and how many events.
    minute: (u64, u64),
    /// The most that a minute offered before the backlog was gone.
    most: u64,
    /// What was delivered within a minute.
    lately: VecDeque<(Timestamp, u64)>,
}

impl EndpointReturn {
    /// The most that was offered in a minute, in healthy minutes' worth.
    pub(super) fn peak(&self) -> Option<f64> {
        self.healthy.map(|healthy| self.most as f64 / healthy)
    }
}

impl RecoveryWatch {
    pub(super) fn new(spell: AvailabilityPeriod) -> Self {
        Self { spell, offered: 0, healthy: None, returns: Vec::new() }
    }

    /// The endpoint's returns, in order.
    pub(super) fn returns(&self) -> &[EndpointReturn] {
        &self.returns
    }

    /// Time has come to `now`; everything below `low` is finished.
    pub(super) fn see(
        &mut self,
        now: Timestamp,
        endpoint: &SimulatedEndpoint,
        log: &SimulatedLog,
        low: impl Fn() -> Seq,
    ) {
        while self.spell.until <= now {
            let last = self.spell;
            self.spell = endpoint.availability(last.until);
            if last.up {
                // Within a recovery no rate is a healthy one.
                if self.open().is_none_or(|back| back.backlog_gone.is_some()) && self.offered > 0 {
                    let watched = last.until.since(last.from).min(HEALTHY);
                    self.healthy = Some(self.offered as f64 * MINUTE.div_duration_f64(watched));
                }
            } else {
                let (at, target) = (last.until, log.at(last.until));
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

    /// A request leaves with so many events. Returns whether the endpoint is up.
    pub(super) fn sent(&mut self, events: u64, now: Timestamp) -> bool {
        if self.spell.until.since(now) <= HEALTHY {
            self.offered += events;
        }
        if let Some(back) = self.open().filter(|back| back.backlog_gone.is_none()) {
            let minute = now.since(back.at).as_micros() as u64 / MINUTE.as_micros() as u64;
            let so_far = if back.minute.0 == minute { back.minute.1 } else { 0 };
            back.minute = (minute, so_far + events);
            back.most = back.most.max(back.minute.1);
        }
        self.spell.up
    }

    /// So many events were delivered.
    pub(super) fn delivered(&mut self, events: u64, now: Timestamp) {
        let Some(back) = self.open().filter(|back| back.rate_back.is_none()) else { return };
        let Some(healthy) = back.healthy else { return };
        back.lately.push_back((now, events));
        while back.lately.front().is_some_and(|(at, _)| at.after(MINUTE) <= now) {
            back.lately.pop_front();
        }
        if back.lately.iter().map(|(_, events)| *events as f64).sum::<f64>() >= healthy {
            back.rate_back = Some(now.since(back.at));
            back.lately = VecDeque::new();
        }
    }

    /// Something was written: everything below `low` is finished.
    pub(super) fn written(&mut self, now: Timestamp, low: impl Fn() -> Seq) {
        if let Some(back) = self.open().filter(|back| back.backlog_gone.is_none())
            && low() >= back.target
        {
            back.backlog_gone = Some(now.since(back.at));
        }
    }

    /// The return that this spell began with.
    fn open(&mut self) -> Option<&mut EndpointReturn> {
        self.returns.last_mut().filter(|_| self.spell.up)
    }
}
