//! How long a request may take, and what is heard of it after that.
//!
//! A [`Call`] ends within the wait with an answer. Where that is a timeout and the endpoint has the whole request, it may
//! take the events yet: the request lives on as [`Lingering`], whose one word is whether a success came.
//!
//! Invariants:
//! - What was not sent whole when the wait is over is cut: nobody can take it, and going on would be an attempt that its
//!   caller does not know of.
//! - What lingers keeps a connection and no events: its own copy went with the last byte sent, and the copy for another
//!   try is given up with the wait. So it is never sent again.
//! - A late answer is its head alone; its body is not read, and its connection is closed. An answer whose head came within
//!   the wait is no late one, whatever its body does.
//! - Those of all subscriptions of an arbiter that linger are bounded ([`Options::lingering_max`]).
//!
//! [`Options::lingering_max`]: super::webhook::Options::lingering_max

use std::{cell::Cell, pin::Pin, rc::Rc, time::Duration};

use tokio::time::{Instant, timeout_at};

use super::{
    failure::{failure, silence},
    request::{Destination, Outgoing},
    socket::{Exchange, Phase},
    webhook::{Again, Client, Place},
};
use crate::{
    event::Timestamp,
    policy::outcome::{Answer, Outcome},
};

type Attempts<'a> = Pin<Box<dyn Future<Output = Answer> + 'a>>;

/// A request on its way.
pub struct Call<'a> {
    client: &'a Client,
    destination: &'a Destination,
    attempts: Attempts<'a>,
    again: Again,
    exchanges: [Rc<Exchange>; 2],
}

/// A request whose wait is over.
pub struct Lingering<'a> {
    start: Instant,
    /// The endpoint has it all and has said nothing.
    attempts: Attempts<'a>,
    _place: Place,
}

impl<'a> Call<'a> {
    pub(super) fn new(client: &'a Client, destination: &'a Destination, outgoing: Outgoing, now: Timestamp) -> Self {
        let outgoing = Rc::new(outgoing);
        let again: Again = Rc::new(Cell::new(Some(Rc::clone(&outgoing))));
        let exchanges = [Exchange::new(false), Exchange::new(true)];
        let attempts = Box::pin(client.attempts(destination, outgoing, Rc::clone(&again), exchanges.clone(), now));
        Self { client, destination, attempts, again, exchanges }
    }

    /// The answer, within `wait` from now; and the request itself, where it may be answered yet.
    pub async fn answer(mut self, wait: Duration) -> (Answer, Option<Lingering<'a>>) {
        let start = Instant::now();
        if let Err(refused) = self.client.rules().check_url(self.destination.url()) {
            return (failure(Outcome::SocketError, refused.to_string()), None);
        }
        let [first, second] = &self.exchanges;
        for exchange in [first, second] {
            exchange.until.set(Some(start + wait));
        }
        let mut answered = timeout_at(start + wait, &mut self.attempts).await;
        let has_head = |exchange: &Rc<Exchange>| matches!(exchange.phase(), Phase::Reading(_));
        if answered.is_err() && (has_head(first) || has_head(second)) {
            // The status has decided, and the body's own timer is over, too.
            answered = Ok((&mut self.attempts).await);
        }
        let began = second.began.get().or(first.began.get()).unwrap_or(start);
        let current = if second.phase() == Phase::Beginning { first } else { second };
        let phases = current.phases(self.destination.url().scheme() == "https");
        match answered {
            Ok(answer) => (Answer { latency: began.elapsed(), phases, ..answer }, None),
            Err(_) => {
                let phase = current.phase();
                let answer = failure(Outcome::TimedOut, silence(phase, self.destination, wait));
                let unreached = matches!(phase, Phase::Resolving | Phase::Connecting(_));
                let answer = Answer { latency: began.elapsed(), phases, unreached, ..answer };
                current.late.set(true);
                (answer, self.linger(phase, start))
            }
        }
    }

    fn linger(self, phase: Phase, start: Instant) -> Option<Lingering<'a>> {
        self.again.take();
        match phase {
            Phase::Waiting => Some(Lingering { start, _place: self.client.linger()?, attempts: self.attempts }),
            Phase::Beginning
            | Phase::Resolving
            | Phase::Connecting(_)
            | Phase::Connected(_)
            | Phase::Sending
            | Phase::Reading(_) => None,
        }
    }
}

impl Lingering<'_> {
    /// Whether a success comes within `wait` from when the request left. Whatever else comes is as good as nothing.
    pub async fn is_taken(self, wait: Duration) -> bool {
        let answered = timeout_at(self.start + wait, self.attempts).await;
        answered.is_ok_and(|answer| answer.outcome == Outcome::Delivered)
    }
}
