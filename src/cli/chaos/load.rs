//! The load generator: publishes at a fixed rate, independent of the server's state.
//!
//! No event is published twice: requests that were refused or had no response are recorded, not retried.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use awc::http::{Method, header};
use url::Url;

use super::{
    verdict::PublishedCount,
    webhook::{SharedLedger, with_ledger},
};
use crate::client::ServerClient;
use gridhook_clock::Clock;

const TICK: Duration = Duration::from_millis(10);

/// The maximum number of requests in flight; at the limit, publishing pauses.
const IN_FLIGHT_MAX: usize = 64;

/// The maximum number of events in one request.
const EVENTS_MAX: u64 = 1_000;

/// The part of a second whose events are published at once after a pause, at most: 1/4.
const CATCH_UP: u64 = 4;

/// The pause after a refused request.
const REFUSED_DELAY: Duration = Duration::from_millis(50);

/// 64 KiB, above every error response of the server.
const ANSWER_BYTES_MAX: usize = 64 << 10;

#[derive(Clone)]
pub(super) struct LoadGenerator {
    server: Rc<ServerClient>,
    /// The publishers' address, if the control plane has its own address.
    at: Option<Rc<Url>>,
    path: Rc<str>,
    ledger: SharedLedger,
    in_flight: Rc<Cell<usize>>,
    stopped: Rc<Cell<bool>>,
    published: Rc<RefCell<PublishedCount>>,
}

impl LoadGenerator {
    pub(super) fn new(
        server: Rc<ServerClient>,
        at: Option<Url>,
        topic: &str,
        ledger: SharedLedger,
    ) -> Self {
        let path = format!("/topics/{topic}/api/events").into();
        Self {
            server,
            at: at.map(Rc::new),
            path,
            ledger,
            in_flight: Rc::default(),
            stopped: Rc::default(),
            published: Rc::default(),
        }
    }

    pub(super) fn published_count(&self) -> PublishedCount {
        *self.published.borrow()
    }

    pub(super) fn stop(&self) {
        self.stopped.set(true);
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.in_flight.get() == 0
    }

    /// Publishes until it is stopped, at `rate` events per second.
    pub(super) async fn run(self, rate: u32, clock: Clock) {
        let start = clock.now();
        let mut event_count = 0_u64;
        while !self.stopped.get() {
            actix_rt::time::sleep(TICK).await;
            let due_events = (clock.now().since(start).as_secs_f64() * f64::from(rate)) as u64;
            event_count = event_count.max(due_events.saturating_sub(u64::from(rate) / CATCH_UP));
            while event_count < due_events
                && self.in_flight.get() < IN_FLIGHT_MAX
                && !self.stopped.get()
            {
                let events = (due_events - event_count).min(EVENTS_MAX);
                event_count += events;
                self.in_flight.set(self.in_flight.get() + 1);
                let load = self.clone();
                actix_rt::spawn(async move {
                    load.publish_events(events as usize).await;
                    load.in_flight.set(load.in_flight.get() - 1);
                });
            }
        }
    }

    async fn publish_events(&self, events: usize) {
        let (first, body) = with_ledger(&self.ledger, |ledger| ledger.issue_events(events));
        let request = match &self.at {
            Some(at) => self.server.request_to(at, Method::POST, &self.path),
            None => self.server.build_request(Method::POST, &self.path),
        };
        let request =
            request.insert_header((header::CONTENT_TYPE, "application/json; charset=utf-8"));
        let Ok(mut response) = request.send_body(body).await else {
            self.published.borrow_mut().unknown += 1;
            return;
        };
        let status = response.status();
        // Read to the end, so that the connection can be reused.
        response.body().limit(ANSWER_BYTES_MAX).await.ok();
        if status.is_success() {
            with_ledger(&self.ledger, |ledger| {
                ledger.record_acknowledged(first, events)
            });
            self.published.borrow_mut().requests += 1;
        } else {
            with_ledger(&self.ledger, |ledger| ledger.record_refused(first, events));
            self.published.borrow_mut().refused += 1;
            actix_rt::time::sleep(REFUSED_DELAY).await;
        }
    }
}
