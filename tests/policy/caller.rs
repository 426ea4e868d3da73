//! A caller that always has more to send, and a scripted endpoint, millisecond by millisecond.

use std::time::Duration;

use gridhook::{
    event::{RequestId, Timestamp},
    policy::{
        SubscriptionSettings,
        endpoint::{Endpoint, EventAge, RequestReport},
        outcome::{Failure, Outcome},
        record::{Cursor, Health},
    },
};

use super::driver::START;

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const MINUTE: Duration = Duration::from_secs(60);

const TICK: Duration = Duration::from_millis(1);

/// How an endpoint handles a request: the result, and the time until then. It gets the number in
/// flight.
pub(super) type Behavior<'a> = &'a mut dyn FnMut(Timestamp, usize) -> (Outcome, Duration);

pub(super) struct Caller {
    pub(super) endpoint: Endpoint,
    pub(super) now: Timestamp,
    /// When each request left.
    pub(super) left: Vec<Timestamp>,
    /// The age of the events that it calls with.
    pub(super) age: EventAge,
    /// Events in a request.
    pub(super) events: usize,
    settings: SubscriptionSettings,
    in_flight: Vec<(Timestamp, RequestReport)>,
}

/// It takes all at once.
pub(super) fn well(_: Timestamp, _: usize) -> (Outcome, Duration) {
    (Outcome::Delivered, Duration::from_millis(10))
}

/// It fails at once.
pub(super) fn busy(_: Timestamp, _: usize) -> (Outcome, Duration) {
    (Outcome::Failed(Failure::Busy), Duration::from_millis(10))
}

impl Caller {
    pub(super) fn new(settings: SubscriptionSettings) -> Self {
        let endpoint =
            Endpoint::from_cursor(&settings, &Cursor::default(), std::iter::empty(), START);
        Self {
            endpoint,
            now: START,
            left: Vec::new(),
            age: EventAge::Old,
            events: 1,
            settings,
            in_flight: Vec::new(),
        }
    }

    /// Calls for a duration, up to a number of times a second.
    pub(super) fn call(&mut self, wait: Duration, per_second: u32, behavior: Behavior<'_>) {
        let end = self.now.after(wait);
        let pause = SECOND / per_second;
        let mut next = self.now;
        while self.now < end {
            // As a machine does it: after each response what may leave leaves.
            loop {
                let landed = self.land();
                while next <= self.now && self.may_send() {
                    self.send(behavior);
                    next = next.after(pause);
                }
                if !landed {
                    break;
                }
            }
            // Requests that were not sent in time are not sent later.
            next = next.max(self.now.before(pause));
            self.now = self.now.after(TICK);
        }
    }

    /// Calls for so long as often as it may.
    pub(super) fn call_all(&mut self, wait: Duration, behavior: Behavior<'_>) {
        self.call(wait, 100_000, behavior);
    }

    /// Two minutes at this rate, ten failures, and the time until a probe may go out.
    pub(super) fn fall(&mut self, per_second: u32) {
        self.call(2 * MINUTE, per_second, &mut well);
        self.call(MINUTE, 1000, &mut busy);
        let Health::Suspended { until, .. } = self.endpoint.health() else {
            panic!("{:?}", self.endpoint)
        };
        self.now = self.now.max(until);
        self.left.clear();
    }

    /// The same with a probe that succeeds.
    pub(super) fn fall_and_return(&mut self, per_second: u32) {
        self.fall(per_second);
        self.probe();
        self.left.clear();
    }

    /// A probe that succeeds.
    pub(super) fn probe(&mut self) {
        while !matches!(self.endpoint.health(), Health::Healthy { .. }) {
            self.call_all(TICK, &mut well);
        }
    }

    /// The process ends and begins again.
    pub(super) fn restart(&mut self, wait: Duration) {
        let cursor = Cursor {
            health: self.endpoint.health(),
            pace: self.endpoint.pace(),
            held: self.endpoint.hold_reason(),
            ..Cursor::default()
        };
        self.now = self.now.after(wait);
        self.in_flight.clear();
        self.endpoint =
            Endpoint::from_cursor(&self.settings, &cursor, std::iter::empty(), self.now);
    }

    fn may_send(&self) -> bool {
        let in_flight = self.in_flight.len();
        self.endpoint.free_requests(in_flight, self.age, self.now) > 0
    }

    /// How many requests left in each `slice` since `from`.
    pub(super) fn counts(&self, from: Timestamp, slice: Duration) -> Vec<usize> {
        let mut counts = vec![0; (self.now.since(from).as_micros() / slice.as_micros()) as usize];
        for left in self.left.iter().filter(|left| **left >= from) {
            if let Some(count) =
                counts.get_mut((left.since(from).as_micros() / slice.as_micros()) as usize)
            {
                *count += 1;
            }
        }
        counts
    }

    /// Requests in a second, now.
    pub(super) fn rate(&self) -> Option<f64> {
        self.endpoint
            .view(self.now)
            .rate
            .map(|rate| (rate.per_second() * 10.0).round() / 10.0)
    }

    fn send(&mut self, behavior: Behavior<'_>) {
        let (outcome, latency) = behavior(self.now, self.in_flight.len() + 1);
        let request = RequestId(self.left.len() as u64 + self.now.0);
        self.endpoint.record_sent(request, self.age, true, self.now);
        self.left.push(self.now);
        let received = RequestReport {
            request,
            sent: self.now,
            events: self.events,
            in_flight: 0,
            outcome,
            refused: false,
            retry_after: None,
            latency,
        };
        self.in_flight.push((self.now.after(latency), received));
    }

    /// Delivers one response, if any is due.
    fn land(&mut self) -> bool {
        let Some(place) = self.in_flight.iter().position(|(at, _)| *at <= self.now) else {
            return false;
        };
        let in_flight = self.in_flight.len();
        let (_, received) = self.in_flight.remove(place);
        self.endpoint.on_response(
            RequestReport {
                in_flight,
                ..received
            },
            self.now,
        );
        true
    }
}

/// The most in any second, whenever that begins.
pub(super) fn most_in_a_second(left: &[Timestamp]) -> usize {
    let within = |first: usize| {
        left[first..]
            .iter()
            .take_while(|at| at.since(left[first]) < SECOND)
            .count()
    };
    (0..left.len()).map(within).max().unwrap_or_default()
}
