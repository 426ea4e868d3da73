//! The load: so many events in a second, whatever the server is doing.
//!
//! Nothing is published twice: what was refused, or not answered, is noted as such, and the next events are others.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    time::Duration,
};

use awc::http::{Method, header};
use url::Url;

use super::{
    verdict::PublishedCount,
    webhook::{Account, with},
};
use crate::{cli::client::ServerClient, clock::Clock};

/// How often something is published.
const TICK: Duration = Duration::from_millis(10);

/// So many requests wait for their answers at once; where there are as many, the load waits with them.
const IN_FLIGHT_MAX: usize = 64;

/// So many events are in one request at the most.
const EVENTS_MAX: u64 = 1_000;

/// What a server that stood still has missed is not all published at once: no more than so much of a second.
const CATCH_UP: u64 = 4;

/// A server that refuses is left alone for so long.
const REFUSED_WAIT: Duration = Duration::from_millis(50);

/// 64 KiB: more than any error of the server has.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// The load while it runs.
#[derive(Clone)]
pub(super) struct LoadGenerator {
    session: Rc<ServerClient>,
    /// Where publishers connect, if not where operators do.
    at: Option<Rc<Url>>,
    path: Rc<str>,
    account: Account,
    in_flight: Rc<Cell<usize>>,
    stopped: Rc<Cell<bool>>,
    published: Rc<RefCell<PublishedCount>>,
}

impl LoadGenerator {
    pub(super) fn new(session: Rc<ServerClient>, at: Option<Url>, topic: &str, account: Account) -> Self {
        let path = format!("/topics/{topic}/api/events").into();
        Self {
            session,
            at: at.map(Rc::new),
            path,
            account,
            in_flight: Rc::default(),
            stopped: Rc::default(),
            published: Rc::default(),
        }
    }

    /// What was published so far.
    pub(super) fn published(&self) -> PublishedCount {
        *self.published.borrow()
    }

    /// Nothing more is published.
    pub(super) fn stop(&self) {
        self.stopped.set(true);
    }

    /// Whether every request was answered.
    pub(super) fn is_quiet(&self) -> bool {
        self.in_flight.get() == 0
    }

    /// Publishes until it is stopped.
    pub(super) async fn run(self, rate: u32, clock: Clock) {
        let started = clock.now();
        let mut issued = 0_u64;
        while !self.stopped.get() {
            actix_rt::time::sleep(TICK).await;
            let wanted = (clock.now().since(started).as_secs_f64() * f64::from(rate)) as u64;
            issued = issued.max(wanted.saturating_sub(u64::from(rate) / CATCH_UP));
            while issued < wanted && self.in_flight.get() < IN_FLIGHT_MAX && !self.stopped.get() {
                let events = (wanted - issued).min(EVENTS_MAX);
                issued += events;
                self.in_flight.set(self.in_flight.get() + 1);
                let load = self.clone();
                actix_rt::spawn(async move {
                    load.publish(events as usize).await;
                    load.in_flight.set(load.in_flight.get() - 1);
                });
            }
        }
    }

    async fn publish(&self, events: usize) {
        let (first, body) = with(&self.account, |ledger| ledger.issue(events));
        let request = match &self.at {
            Some(at) => self.session.request_to(at, Method::POST, &self.path),
            None => self.session.request(Method::POST, &self.path),
        };
        let request = request.insert_header((header::CONTENT_TYPE, "application/json; charset=utf-8"));
        let Ok(mut response) = request.send_body(body).await else {
            self.published.borrow_mut().unknown += 1;
            return;
        };
        let status = response.status();
        // Read to the end, so that the connection can be used again.
        response.body().limit(ANSWER_BYTES_MAX).await.ok();
        if status.is_success() {
            with(&self.account, |ledger| ledger.acknowledged(first, events));
            self.published.borrow_mut().requests += 1;
        } else {
            with(&self.account, |ledger| ledger.refused(first, events));
            self.published.borrow_mut().refused += 1;
            actix_rt::time::sleep(REFUSED_WAIT).await;
        }
    }
}
